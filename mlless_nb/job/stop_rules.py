"""Stop rules as a pure state machine: losses in, a verdict out. Every worker runs one, and all agree on the verdict."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

from ..plurals import all_done, count

#: Without held-out rows the mean training loss of this many steps is judged.
SMOOTHED_STEPS = 10
#: Training has diverged when the loss exceeds this many times the first one.
EXPLODED = 1e3


@dataclass(frozen=True)
class Verdict:
    """The decision that training ends: the run's status and the reason in one sentence."""

    status: str
    reason: str


class StopRules:
    """The rules on target, epochs, steps, patience and divergence; the first one met ends training.

    Parameters
    ----------
    stop : dict
        Fields of ``Stop``; ``time_s`` is ignored here, since the supervisor enforces it.
    metric : str
        The loss's name in messages.
    learning_rate : float, optional
        The optimiser's; the message about divergence suggests a lower one.
    """

    def __init__(self, stop: dict[str, Any], metric: str, learning_rate: float | None = None) -> None:
        self._stop, self._metric = stop, metric
        self._advice = "lower the learning rate" + (f", e.g. to {lower(learning_rate):g}" if learning_rate else "")
        self._recent: deque[float] = deque(maxlen=SMOOTHED_STEPS)
        self._first: float | None = None
        self._best = math.inf
        self._evaluations_since_best = 0
        self._n_at_target = 0

    def state(self) -> dict[str, Any]:
        """What the losses so far have left, as JSON."""
        return {
            "recent": list(self._recent),
            "first": self._first,
            "best": self._best,
            "evaluations_since_best": self._evaluations_since_best,
            "n_at_target": self._n_at_target,
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a `state`."""
        self._recent.extend(state["recent"])
        self._first, self._best = state["first"], state["best"]
        self._evaluations_since_best, self._n_at_target = state["evaluations_since_best"], state["n_at_target"]

    def observe(
        self, step: int, epoch: float, loss: float, validation_loss: float | None, has_validation: bool
    ) -> Verdict | None:
        """Judge ``step`` (1-based).

        Parameters
        ----------
        epoch : float
            Passes over the training data after this step.
        loss : float
            Training loss of the step, in the model's metric.
        validation_loss : float or None
            A new validation loss, None if there is none since the last call.
        has_validation : bool
            Whether the job has held-out rows.
        """
        if self._first is None and math.isfinite(loss):
            self._first = loss
        if not math.isfinite(loss) or loss > EXPLODED * max(self._first or 1.0, 1e-3):
            return Verdict("failed", f"the loss became {loss:.4g} at step {step}; {self._advice}")
        if validation_loss is not None and not math.isfinite(validation_loss):
            return Verdict("failed", f"the validation loss became {validation_loss} by step {step}; {self._advice}")
        self._recent.append(loss)
        return self._target(step, validation_loss, has_validation) or self.end(step, epoch)

    def _target(self, step: int, validation_loss: float | None, has_validation: bool) -> Verdict | None:
        target, patience = self._stop.get("target"), self._stop.get("patience")
        judged = validation_loss
        if not has_validation and len(self._recent) == SMOOTHED_STEPS:
            judged = math.fsum(self._recent) / SMOOTHED_STEPS
        if judged is None:
            return None
        self._n_at_target = self._n_at_target + 1 if target is not None and judged <= target else 0
        if target is not None and self._n_at_target >= self._stop.get("confirmations", 1):
            kind = "validation" if has_validation else "training"
            told = f"target reached: {kind} {self._metric} {judged:.4f} (target {target:g}) at step {step}"
            return Verdict("finished", told)
        if judged < self._best:
            self._best, self._evaluations_since_best = judged, 0
        else:
            self._evaluations_since_best += 1
        if patience is not None and self._evaluations_since_best >= patience:
            return Verdict(
                "finished", f"no better {self._metric} than {self._best:.4f} in {count(patience, 'evaluation')}"
            )
        return None

    def end(self, step: int, epoch: float) -> Verdict | None:
        """The verdict of the rules that need no loss: all steps or all epochs are done."""
        epochs, steps = self._stop.get("epochs"), self._stop.get("steps")
        if steps is not None and step >= steps:
            return Verdict("finished", all_done(steps, "step"))
        if epochs is not None and epoch >= epochs - 1e-9:
            return Verdict("finished", all_done(epochs, "epoch"))
        return None


def lower(rate: float) -> float:
    """The largest of 1, 2 or 5 times a power of ten that is at most a third of ``rate``."""
    power = 10.0 ** math.floor(math.log10(rate / 3 * (1 + 1e-9)))
    return max(factor * power for factor in (1, 2, 5) if factor * power <= rate / 3 * (1 + 1e-9))
