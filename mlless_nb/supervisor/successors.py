"""Which functions get a successor: those near the end of their lifetime, and duplicates of stragglers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from ..bus import Bus
from ..bus.messages import Aged, Invocation, Invoked
from ..exchange import SUPERVISOR, Coordinator, StepEntry
from ..exchange.slots import invoked_s_in, role_of, successor_of
from ..job.sync import sync_from_json
from ..money.meter import NUSD
from .bill import Bill
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
    bill : Bill
        Knows which successors wait.
    late_s : float
        When this supervisor began, seconds after the run.

    Attributes
    ----------
    lifetimes : Lifetimes
    """

    def __init__(self, invocation: Invocation, log: Coordinator, bus: Bus, bill: Bill, late_s: float) -> None:
        self._job, self._log, self._bus, self._bill = invocation, log, bus, bill
        known = invocation.lifetime_s, invocation.n_workers, invocation.invoked_s, invocation.lease_s
        self.lifetimes = Lifetimes(*known)
        if invocation.invoked_s:  # the starts of others may have been told to another supervisor
            self.lifetimes.start_s = late_s - invocation.invoked_s
        for slot, begun_s in invocation.begun:
            self.lifetimes.begin(int(slot), begun_s)
        waits = sync_from_json(invocation.sync).waits_for_slowest
        self._speculation = Speculation(invocation.speculation if waits else 0.0)
        self._missing_since: dict[int, float] = {}  # slots whose waiting successors have no lease, and since when
        self._missed: set[int] = set()  # slots whose waiting successors had no lease at some time
        self._lost: set[int] = set()  # slots whose newest successor was lost while it waited

    def begin(self, slot: int, invoked_s: float) -> None:
        """``slot`` has a new function, invoked ``invoked_s`` seconds after the run."""
        self.lifetimes.begin(slot, invoked_s)
        self._speculation.forget()

    def learn(self, at_work: Mapping[int, str], time_s: float) -> None:
        """Learn, for a supervisor that takes over, how old the invocations ``at_work`` are, and who waits for them.

        ``time_s``: seconds since the invocation of the run.
        """
        for slot, nonce in at_work.items():
            self.lifetimes.learn(slot, invoked_s_in(nonce))
        for slot in self._present([slot for slot in at_work if slot not in self._bill.waiting]):
            self._find(slot, time_s)

    def note_invoked(self, message: Invoked) -> None:
        """The driver has invoked successors, or could not after all."""
        self._bill.count_invoked(message.number)
        for slot in message.slots:
            if message.is_refused:
                self._bill.forget(slot)
                continue
            self._bill.invoke(slot, message.invoked_s, message.granted_s)
            self.lifetimes.invoke(slot, message.invoked_s)

    def wait(self, slot: int, invoked_s: float) -> None:
        """A successor of ``slot`` waits to take over, invoked ``invoked_s`` seconds after the run."""
        self.lifetimes.wait(slot, invoked_s)
        self._missing_since.pop(slot, None)
        for slots in (self._missed, self._lost):
            slots.discard(slot)
        self._speculation.forget()

    def hand_over(self, slot: int, left_s: float) -> None:
        """The function of ``slot`` has handed over, ``left_s`` seconds after the run."""
        self.lifetimes.hand_over(slot, left_s)
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
        late = self.lifetimes.late(time_s, at_work)
        for slot in (present := self._present(late)):
            self._find(slot, time_s)
        for slot in [slot for slot in late if slot not in present]:
            what = "was lost" if slot in self._lost else "did not start"
            reason = f"The successor of {'the supervisor' if slot == SUPERVISOR else f'worker {slot}'} {what}"
            self._bus.send("driver", Aged([slot], reason, is_late=True).encode())
        if self.lifetimes.is_over(time_s, at_work):
            self._log.announce_stop("stopped", f"the functions' lifetime of {self._job.lifetime_s:g} s is nearly over")

    def _present(self, slots: list[int]) -> list[int]:
        """Those of ``slots`` whose successors have started, and wait."""
        are_there = self._log.alive([*map(successor_of, slots)]) if slots else []
        return [slot for slot, is_there in zip(slots, are_there, strict=True) if is_there]

    def _find(self, slot: int, time_s: float) -> None:
        """A successor of ``slot`` waits, as only the supervisor before this one has heard, or none has yet."""
        if slot != SUPERVISOR:
            self._bill.succeed(slot, time_s)
            self.lifetimes.wait(slot, time_s)
            self._missed.add(slot)

    def watch_waiting(self, time_s: float, step: int) -> None:
        """Look after the successors that wait: those that are lost are asked for again by `watch_ages`.

        A function goes on if its successor has no lease after the step where it was to hand over. If that has come back
        since, it hands over later.

        Parameters
        ----------
        time_s : float
            Seconds since the invocation.
        step : int
            The newest complete step.
        """
        waiting = self._bill.waiting
        if not waiting:
            return
        are_alive = self._log.alive([*map(role_of, waiting), *map(successor_of, waiting)])
        for slot, has_function, has_successor in zip(waiting, are_alive, are_alive[len(waiting) :], strict=False):
            if has_successor or not has_function:  # a lost function is replaced, and nobody hands over
                self._missing_since.pop(slot, None)
            elif time_s - self._missing_since.setdefault(slot, time_s) <= self._job.lease_s / 2:
                self._missed.add(slot)  # or it has taken over, and who says so was not heard yet
            else:
                self._bill.lose_successor(slot)
                self.lifetimes.lose(slot)
                self._lost.add(slot)
        back = self._missed.intersection(self._bill.waiting) - self._missing_since.keys()
        if back:
            announced = self._log.read_plan().hand_overs
            passed = [slot for slot in sorted(back) if announced.get(slot, -1) < step]
            if passed:
                self._log.announce_hand_over(passed)
                self._missed.difference_update(passed)

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
