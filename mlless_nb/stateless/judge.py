"""When a stateless run ends and how its learning rate is cut, as `mlless_nb.worker.judge` decides it. Pure.

Nothing lives between steps, so everything follows from the losses so far: a function that has read them comes to the
same verdict as one that saw them one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ..bus.messages import Invocation
from ..data.prepare import Manifest
from ..exchange.stats import Stats
from ..job.rate_schedule import Schedule
from ..job.stop_rules import StopRules, Verdict
from ..models import model_from_json


@dataclass
class Judge:
    """The losses of a run, and what follows from them.

    Parameters
    ----------
    job : Invocation
    first_factor : float
        Factor of the learning rate at the start; below 1 if an earlier run has cut the rate.

    Attributes
    ----------
    step : int
        The newest step that was observed.
    loss, validation_loss : float or None
        Training loss of that step, and the validation loss of the model before it if it was evaluated.
    best_step, best_loss
        The step of the model with the lowest validation loss so far (None: there is none), and the loss.
    cut_rate : float or None
        The learning rate from the next step on if this step cut it.
    verdict : Verdict or None
        Why training ends after this step; None if it goes on.
    """

    job: Invocation
    first_factor: float = 1.0
    seen: list[list[float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        job = self.job
        self._model = model_from_json(job.model)
        self._n_minibatches = Manifest.from_json(job.manifest).n_minibatches
        self._rate = job.optimizer["learning_rate"]
        self._rules = StopRules(job.stop, self._model.metric, self._rate)
        self._schedule = Schedule(job.schedule, self.first_factor)
        self.step, self.loss, self.best_loss = 0, math.nan, math.inf
        self.validation_loss: float | None = None
        self.best_step: int | None = None
        self.cut_rate: float | None = None
        self.verdict: Verdict | None = None
        told, self.seen = self.seen, []
        for *stats, has_emerged in told:
            self.observe((stats[0], stats[1], stats[2], stats[3]), has_emerged=bool(has_emerged))

    @property
    def rate_factor(self) -> float:
        """Factor of the learning rate in the next step."""
        return self._schedule.factor

    @property
    def epoch(self) -> float:
        """Passes over the training rows after the newest step."""
        return self.step * self.job.n_workers * self.job.local_steps / self._n_minibatches

    @property
    def evaluates_next(self) -> bool:
        """Whether the functions of the next step evaluate the newest model."""
        return self.step > 0 and self.job.validation is not None and self.step % self.job.eval_every == 0

    def observe(self, stats: Stats, *, has_emerged: bool) -> Verdict | None:
        """Take in the sums of the next step; returns why training ends after it, None if it goes on."""
        self.seen.append([*stats, float(has_emerged)])
        self.step += 1
        metric = self._model.metric_value
        self.loss, self.cut_rate = metric(*stats[:2]), None
        self.validation_loss = newest = metric(*stats[2:]) if stats[3] else None
        if newest is not None and newest < self.best_loss:
            self.best_loss, self.best_step = newest, self.step - 1
        has_validation = self.job.validation is not None
        self.verdict = self._rules.observe(self.step, self.epoch, self.loss, newest, has_validation)
        if self.verdict is None and newest is not None:
            self._follow_schedule(newest, has_emerged)
        return self.verdict

    def _follow_schedule(self, loss: float, has_emerged: bool) -> None:
        before = self._schedule.factor
        if self._schedule.observe(self.step, self.epoch, loss, has_emerged=has_emerged) < before:
            self.cut_rate = self._rate * self._schedule.factor
        if self._schedule.is_settled and self.job.ends_settled:
            text = f"the validation loss has settled: no better {self._model.metric} than {self.best_loss:.4f}"
            self.verdict = Verdict("finished", text)

    def mean_loss(self, total: float, count: float) -> float | None:
        """The loss, in the model's metric, of ``count`` rows; None if there are none."""
        return self._model.metric_value(total, count) if count else None

    def kept_step(self, last_loss: float | None, *, has_failed: bool) -> int | None:
        """The step of the model that the run returns, if the last one's validation loss is ``last_loss``.

        None for a run that has failed before there was a better one.
        """
        if self.best_step is not None and (has_failed or last_loss is None or not last_loss < self.best_loss):
            return self.best_step
        return None if has_failed else self.step

    def to_json(self) -> dict[str, Any]:
        """The losses as plain JSON."""
        return {"first_factor": self.first_factor, "seen": self.seen}
