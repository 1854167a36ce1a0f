"""The messages of stateless functions: what one is called with, and what it reports when it has done its part."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..bus.messages import KINDS, Message

#: The stages of an iteration, in their order; "evaluate" comes once, after the last step.
STAGES = ("launch", "update", "reduce", "merge", "evaluate")
#: Names a part of a run's work, whichever attempt does it: step, stage, index.
Task = tuple[int, str, int]


@dataclass(frozen=True)
class Call(Message):
    """One invocation of a stateless function.

    ``job`` has the fields of the run's `Invocation`. ``launched_at_s`` is on the coordinator's clock, ``granted_nusd``
    the grant, nano-dollars. ``attempt`` is 0 for the first function that is sent to do this part of the step. ``by`` is
    the stage and index of the function that invoked it. ``n_reducers`` is 0 in a map-reduce run; else functions invoke
    each other, ``held_out_gets`` is as in `StatelessMoney`, and ``stats`` are the sums that a merger takes over.
    """

    carries_secrets = True
    job: dict[str, Any] = field(repr=False)  # its URLs may hold passwords
    stage: str
    step: int  # 1-based
    index: int  # the worker's slot, or the reducer's number
    attempt: int
    granted_nusd: int
    launched_at_s: float
    model_key: str  # the model before the step
    rate_factor: float = 1.0
    evaluates: bool = False  # whether update functions evaluate that model on the held-out rows, too
    by: list[Any] = field(default_factory=lambda: ["driver", 0])
    n_reducers: int = 0
    held_out_gets: int = 0
    stats: list[float] = field(default_factory=list)

    @property
    def task(self) -> Task:
        """The part of the run's work that the function does."""
        return self.step, self.stage, self.index

    @property
    def account(self) -> int:
        """A number that is unique to this call in its run, under which its unused grant is returned."""
        place = (self.step * len(STAGES) + STAGES.index(self.stage)) * 100_000 + self.index
        return place * 100 + self.attempt


@dataclass(frozen=True)
class Done(Message):
    """A stateless function has ended. Times are on the coordinator's clock, seconds.

    ``objects`` are the requests to the object storage that it made for the exchange: "get" or "put", key, begin, end,
    bytes. The sums are those of a frame's stats. ``status`` is set by a function after which the run ends.
    """

    stage: str
    step: int
    index: int
    attempt: int
    pid: int
    launched_at_s: float
    began_at_s: float
    ended_at_s: float
    spent_nusd: int
    storage_nusd: int
    error: str = ""
    loss_sum: float = 0.0
    loss_count: float = 0.0
    val_sum: float = 0.0
    val_count: float = 0.0
    compute_s: float = 0.0
    compute_cpu_s: float = 0.0
    has_emerged: bool = True
    status: str = ""
    reason: str = ""
    by: list[Any] = field(default_factory=list)
    objects: list[list[Any]] = field(default_factory=list)

    @property
    def task(self) -> Task:
        """The part of the run's work that was done."""
        return self.step, self.stage, self.index


@dataclass(frozen=True)
class Begun(Message):
    """A stateless function has begun; for the trace, and to find a process that was lost."""

    stage: str
    step: int
    index: int
    attempt: int
    pid: int


KINDS.update({kind.__name__: kind for kind in (Call, Done, Begun)})
