"""What the functions of a stateless run report: its bill, its rows of telemetry, and the trace of each function."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from ..bus.messages import Invocation
from ..exchange.frame_count import NO_FRAMES, FrameCount
from ..money import Rates
from ..money.cost import PREPARATION
from ..money.meter import NUSD
from ..telemetry.live import Row
from .judge import Judge
from .messages import Call, Done, Task

#: The component of a run's cost that a stage belongs to.
COMPONENTS = {"update": "workers", "evaluate": "workers"}
OTHERS = "reducers"


@dataclass
class FunctionReports:
    """The reports of one run, each counted once.

    Parameters
    ----------
    job : Invocation
    rates : Rates

    Attributes
    ----------
    lost_nusd : int
        Grants of functions that were lost: they are billed in full, since what they used of it is not known.
    longest_s : dict
        Longest span of a function of each stage, from its invocation, seconds.
    trace : list of dict
        One entry for each function that has ended since `take_trace`.
    """

    job: Invocation
    rates: Rates
    longest_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._costs: defaultdict[str, int] = defaultdict(int)
        self._open: dict[tuple[Task, int], Call] = {}
        self._lost: dict[tuple[Task, int], int] = {}
        self._sums: dict[int, dict[Task, Done]] = {}
        self._held: Row | None = None
        self._frames = NO_FRAMES
        self.trace: list[dict[str, Any]] = []

    # -- functions

    def launch(self, call: Call) -> None:
        """A function was invoked."""
        self._open[call.task, call.attempt] = call

    def lose(self, task: Task) -> None:
        """The functions that were to do ``task`` were lost, as far as is known."""
        for key in [key for key in self._open if key[0] == task]:
            call = self._open.pop(key)
            self._lost[key] = call.granted_nusd
            self.trace.append({**_names(task, call.attempt), "launched_at_s": call.launched_at_s, "error": "lost"})

    def take(self, done: Done) -> bool:
        """Take a report in; False if this attempt was reported before."""
        key = (done.task, done.attempt)
        if key not in self._open and key not in self._lost:
            return False
        self._open.pop(key, None)
        self._lost.pop(key, None)
        self._costs[COMPONENTS.get(done.stage, OTHERS)] += done.spent_nusd - done.storage_nusd
        self._costs["storage"] += done.storage_nusd
        self._frames = FrameCount.total([self._frames, _frames_of(done.objects)])
        span_s = done.ended_at_s - done.launched_at_s
        self.longest_s[done.stage] = max(span_s, self.longest_s.get(done.stage, 0.0))
        self.trace.append(_entry(done))
        if not done.error:
            self._sums.setdefault(done.step, {}).setdefault(done.task, done)
        return True

    def take_trace(self) -> list[dict[str, Any]]:
        """The newest entries of the trace, each once."""
        entries, self.trace = self.trace, []
        return entries

    @property
    def n_open(self) -> int:
        """Functions that have not ended, as far as is known."""
        return len(self._open)

    # -- money

    @property
    def lost_nusd(self) -> int:
        """Nano-dollars granted to functions that were lost."""
        return sum(self._lost.values())

    @property
    def open_nusd(self) -> int:
        """Nano-dollars granted to functions that have not ended."""
        return sum(call.granted_nusd for call in self._open.values())

    def costs_nusd(self, time_s: float, driver_nusd: int) -> dict[str, int]:
        """The bill by component after ``time_s`` seconds; functions that have not ended are billed with their grants.

        ``driver_nusd`` is for the driver's own requests.
        """
        servers = self.rates.servers_by_component(self.rates.servers_nusd(time_s + self.rates.tail_s))
        costs = {"workers": 0, "supervisor": 0, **servers, "storage": 0, **self._costs}
        costs["workers"] += self.lost_nusd + self.open_nusd
        costs["storage"] += driver_nusd
        if self.job.prepared_nusd:
            costs[PREPARATION] = self.job.prepared_nusd
        return costs

    @property
    def store_use(self) -> dict[str, int]:
        """What functions did to the object storage for the exchange, as `mlless_nb.supervisor.bill.Bill.store_use`."""
        frames = self._frames
        return {**frames._asdict(), "nusd": self.rates.requests_nusd(frames.n_gets, frames.n_puts)}

    # -- rows

    def row(self, judge: Judge, time_s: float, spent_nusd: int) -> Row | None:
        """The row of the step before the newest one of ``judge``, None after the first.

        A step's validation loss is known one step later.
        """
        held = self._held
        if held is not None:
            held = held._replace(validation_loss=judge.validation_loss)
        self._held = self._row(judge, time_s, spent_nusd)
        return held

    def last_row(self, validation_loss: float | None) -> Row | None:
        """The row of the last step."""
        held, self._held = self._held, None
        return held._replace(validation_loss=validation_loss) if held is not None else None

    def _row(self, judge: Judge, time_s: float, spent_nusd: int) -> Row:
        done = self._sums.pop(judge.step, {}).values()
        updates = [one for one in done if one.stage == "update"]
        sent, received = _bytes(done, "put"), _bytes(done, "get")
        n_updates = max(len(updates), 1)
        compute_s = math.fsum(one.compute_s for one in updates) / n_updates
        storage_s = math.fsum(end - begin for one in updates for _, _, begin, end, _ in one.objects) / n_updates
        began = min((one.launched_at_s for one in done), default=0.0)
        took_s = max((one.ended_at_s for one in done), default=0.0) - began
        return Row(
            step=judge.step,
            epoch=judge.epoch,
            time_s=time_s,
            loss=judge.loss,
            validation_loss=None,
            n_workers=self.job.n_workers,
            spent_usd=spent_nusd / NUSD,
            servers_usd=self.rates.servers_nusd(time_s) / NUSD,
            sent_bytes=sent,
            received_bytes=received,
            sent_fraction=1.0,
            compute_s=compute_s,
            exchange_s=storage_s,
            wait_s=max(took_s - compute_s - storage_s, 0.0),  # start-up, the other stages, the slowest function
            staleness=0.0,
            interaction=None,
            compute_cpu_s=math.fsum(one.compute_cpu_s for one in updates) / n_updates,
        )


def _bytes(done: Any, what: str) -> int:
    return sum(n_bytes for one in done for kind, _, _, _, n_bytes in one.objects if kind == what)


def _names(task: Task, attempt: int) -> dict[str, Any]:
    step, stage, index = task
    return {"step": step, "stage": stage, "index": index, "attempt": attempt}


def _entry(done: Done) -> dict[str, Any]:
    times = {name: getattr(done, name) for name in ("launched_at_s", "began_at_s", "ended_at_s", "by")}
    return {**_names(done.task, done.attempt), **times, "error": done.error, "objects": done.objects}


def _frames_of(requests: list[list[Any]]) -> FrameCount:
    """How many objects a function has put and got, and their bytes, by `Done.objects`."""
    put, got = ([each[4] for each in requests if each[0] == what] for what in ("put", "get"))
    return FrameCount(len(put), len(got), sum(put), sum(got))
