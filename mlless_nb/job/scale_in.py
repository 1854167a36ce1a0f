"""Scale-in: how the supervisor removes workers while the run trains, as a user asks for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import JobError
from ..validation import check_choice, check_flag, is_number, specification

KNEES = ("slope", "kneedle")
GLOBAL_MINIBATCHES = ("keep", "shrink")


@specification
@dataclass(frozen=True)
class ScaleIn:
    """When workers are removed, and what becomes of the global minibatch then.

    With ``global_minibatch="keep"``, the default, those that stay take over the shards of those that leave: every step
    is over the same rows as before, so that the loss does not suffer. The tuner then decides on time and dollars alone.
    From the step times so far it predicts those with fewer workers, and removes workers where dollars x time to the end
    of the run fall; where nothing but the budget ends the run, where a step becomes cheaper, so that the budget buys
    more of them. A removal that did not pay is the last.

    With ``"shrink"``, as in the paper, each worker goes on with minibatches of its own size, and the global minibatch
    shrinks. A step then moves the model nearly as far, until the noise of a small global minibatch shows. Past the knee
    of the loss curve the tuner projects where the run would be with all its workers and where it will be with those
    left. It removes one more where the projected loss is worse by less than ``threshold``, where dollars x time to the
    target (or to what else ends the run) fall, and where the target stays in reach. A removal that turned out worse
    than projected raises the bar for the next. A quarter of the workers always stays. What fewer workers cost in loss
    is learnt from those that have left, and no worker can be had back: the loss may settle higher for good.

    Since decisions depend on the time that steps take, two runs of one seed need not remove workers at the same steps:
    for models that are the same bit for bit say ``ScaleIn.off()``. What a user does (``run.scale_in``) pauses the
    tuner until ``run.resume_tuner()``.

    Parameters
    ----------
    interval_s : float
        With "shrink": the longest between two removals, seconds > 0; short runs are tuned in shorter ones (12 steps, or
        5 % of what is left of the run).
    horizon_s : float
        With "shrink": how far ahead losses are compared, seconds > 0; in short runs less (50 steps, or 10 % of what is
        left), and no further than the loss curve can be relied on.
    threshold : float
        With "shrink": ``S`` in [0, 1], the most by which the projected loss may be worse, relative to that with all
        workers.
    knee : {"slope", "kneedle"}
        With "shrink": how the knee is found, where the curve has become flat, relative to its own mean slope, or by
        Kneedle.
    enabled : bool
        Whether workers are removed at all; `ScaleIn.off` is False.
    global_minibatch : {"keep", "shrink"}
        Whether the rows of a step stay as many when workers leave, whoever removed them.

    References
    ----------
    MLLess (Middleware and journal), scale-in auto-tuner; Satopaa et al., "Finding a 'Kneedle' in a Haystack" (2011).
    """

    interval_s: float = 20.0
    horizon_s: float = 10.0
    threshold: float = 0.02
    knee: str = "slope"
    enabled: bool = True
    global_minibatch: str = "keep"

    def __post_init__(self) -> None:
        for name in ("interval_s", "horizon_s"):
            if not is_number(value := getattr(self, name)) or value <= 0:
                raise JobError(f"ScaleIn.{name}", value, "a finite number of seconds > 0")
        if not is_number(self.threshold) or not 0 <= self.threshold <= 1:
            raise JobError("ScaleIn.threshold", self.threshold, "a number between 0 and 1, e.g. 0.02")
        check_choice("ScaleIn.knee", self.knee, KNEES)
        check_choice("ScaleIn.global_minibatch", self.global_minibatch, GLOBAL_MINIBATCHES)
        check_flag("ScaleIn.enabled", self.enabled)

    @classmethod
    def off(cls) -> ScaleIn:
        """No worker is removed but by hand."""
        return cls(enabled=False)

    def to_json(self) -> dict[str, Any]:
        """The specification as plain JSON."""
        return asdict(self)
