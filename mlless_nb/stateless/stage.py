"""What every stage of a stateless iteration works on, and what it returns."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ..bus.messages import Invocation
from ..exchange import RedisCoordinator
from ..exchange.stats import NO_STATS, Stats
from ..job.stop_rules import Verdict
from ..storage.objects import ObjectStore
from .messages import Call


@dataclass(frozen=True)
class Stage:
    """One call: its arguments, the run's invocation with the call's index as slot, and the object storage.

    Attributes
    ----------
    log : RedisCoordinator
        The atomic counters and the budget.
    invoke : callable
        Invokes further functions.
    """

    call: Call
    job: Invocation
    objects: ObjectStore
    log: RedisCoordinator
    invoke: Callable[[list[Call]], None]


@dataclass(frozen=True)
class Made:
    """What a stage made, beside its objects.

    Attributes
    ----------
    stats : Stats
        Sums of the training and of the validation loss.
    compute_s, compute_cpu_s : float
        Wall time and processor time of the computation, without the object storage.
    has_emerged : bool
        See `mlless_nb.models.base.Model`; of the model after the step.
    verdict : Verdict or None
        Why the run ends after this function.
    """

    stats: Stats = NO_STATS
    compute_s: float = 0.0
    compute_cpu_s: float = 0.0
    has_emerged: bool = True
    verdict: Verdict | None = None


class Stopwatch:
    """Wall time and processor time since it was made, seconds."""

    def __init__(self) -> None:
        self._began, self._cpu_began = time.monotonic(), time.thread_time()

    def read(self) -> tuple[float, float]:
        """Both, so far."""
        return time.monotonic() - self._began, time.thread_time() - self._cpu_began
