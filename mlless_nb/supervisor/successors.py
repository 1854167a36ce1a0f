"""Which functions get a successor: those near the end of their lifetime, and duplicates of stragglers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from ..bus import Bus
from ..bus.messages import Aged, Invocation
from ..exchange import SUPERVISOR, Coordinator, StepEntry
from ..job.sync import sync_from_json
from ..money.meter import NUSD
from .lifetimes import Lifetimes
from .policy.speculation import Speculation
from .step_rows import StepRows


class Successors:
    """Asks the driver for the successors of one run's functions.

    Parameters
    ----------
    invocation : Invocation
        The supervisor's.
    log : Coordinator
        If successors do not come in time, the end of the run is announced in its plan.
    bus : Bus

    Attributes
    ----------
    lifetimes : Lifetimes
    """

    def __init__(self, invocation: Invocation, log: Coordinator, bus: Bus) -> None:
        self._job, self._log, self._bus = invocation, log, bus
        known = invocation.lifetime_s, invocation.n_workers, invocation.invoked_s, invocation.lease_s
        self.lifetimes = Lifetimes(*known)
        for slot, begun_s in invocation.begun:
            self.lifetimes.begin(int(slot), begun_s)
        waits = sync_from_json(invocation.sync).waits_for_slowest
        self._speculation = Speculation(invocation.speculation if waits else 0.0)
        self._n_successors = 0

    def begin(self, slot: int, invoked_s: float) -> None:
        """``slot`` has a new function, or one that waits for it, invoked ``invoked_s`` seconds after the run."""
        self.lifetimes.begin(slot, invoked_s)
        self._speculation.forget()

    def note(self, entries: Iterable[StepEntry]) -> None:
        """Take in complete steps: how long each worker worked in them."""
        for entry in entries:
            reports = entry.reports
            if len(reports) == (entry.n_workers or len(reports)):
                # A leader's exchange is work for all: it says nothing about how quick it is.
                counts = not self._job.has_leader
                work_s = {slot: one.compute_s + counts * one.exchange_s for slot, one in reports.items()}
                self._speculation.note(entry.at_s, work_s)

    def watch_ages(self, time_s: float, workers: Collection[int]) -> None:
        """Ask the driver for successors of old functions; end the run in good order if they do not come.

        ``workers`` are those that have started and not ended: others have nothing to hand over.
        """
        at_work = [SUPERVISOR, *sorted(workers)]
        aged = self.lifetimes.due(time_s, at_work)
        if aged:
            self._bus.send("driver", Aged(aged).encode())
        for slot in self.lifetimes.late(time_s, at_work):
            reason = f"The successor of {'the supervisor' if slot == SUPERVISOR else f'worker {slot}'} did not start"
            self._bus.send("driver", Aged([slot], reason, is_late=True).encode())
        if self.lifetimes.is_over(time_s, at_work):
            self._log.announce_stop("stopped", f"the functions' lifetime of {self._job.lifetime_s:g} s is nearly over")

    def speculate(self, rows: StepRows, left_s: float, barred: set[int]) -> None:
        """Ask the driver for a duplicate of a straggler, if there is one that a duplicate pays for.

        Parameters
        ----------
        rows : StepRows
        left_s : float
            Seconds until the run ends at its present pace; infinite if unknown.
        barred : set of int
            Slots that get none.
        """
        slow = self._speculation.ask(self.lifetimes.start_s, left_s, barred)
        if slow is not None:
            reason = f"worker {slow.slot} is {slow.times:.1f} times as slow as the median at step {rows.step}"
            self._bus.send("driver", Aged([slow.slot], reason).encode())

    def told(self, slot: int, reason: str, overlap_nusd: int) -> str:
        """The text of the event that ``slot`` was handed over; two functions had it for ``overlap_nusd``."""
        text = f"{reason[:1].upper()}{reason[1:]}"
        if slot in self._speculation.asked:
            return f"{text} to its duplicate, which cost ${overlap_nusd / NUSD:.6f} until then"
        return f"{text}: a function's lifetime is limited"


def left_s(stop: dict[str, float | None], rows: StepRows, time_s: float, budget_s: float) -> float:
    """Seconds until a run ends at its present pace, as far as stop rules and budget say; else infinite.

    Parameters
    ----------
    stop : dict
        The run's stop rules.
    rows : StepRows
        What the run has done in ``time_s`` seconds.
    budget_s : float
        Seconds that the rest of the budget pays for.
    """
    done = {"steps": rows.step, "epochs": rows.epoch, "time_s": time_s}
    shares = [(limit - done[name]) / done[name] for name in done if (limit := stop.get(name)) and done[name] > 0]
    return max(min([budget_s, *(share * time_s for share in shares)], default=math.inf), 0.0)
