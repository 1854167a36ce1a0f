"""Rounds that end with their first arrivals: who arrived and which rounds ended, in one object changed on a condition.

Each arrival is a change, so that workers which arrive together wait for each other's writes: this takes a moment in a
folder, and a few requests a worker and step in a cloud.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import NamedTuple

from ...errors import DecodeError
from ...money.request import NO_REQUEST
from ...storage.conditional import Conditional
from ..protocol import Closing, RoundRequest
from ..quorum_rounds import QuorumRounds
from ..restarts import Aborted
from ..step_report import LateArrival, Report
from .state import Cell
from .step_log import StepLog


class QuorumState(QuorumRounds):
    """`QuorumRounds` as an object.

    Attributes
    ----------
    reports : dict
        By step and slot, of the open round and of the newest one that ended.
    ended_by : dict
        Who ended each kept round, and writes it into the step log.
    """

    def __init__(self, newest: int = 0) -> None:
        super().__init__(newest)
        self.reports: dict[int, dict[int, Report]] = {}
        self.ended_by: dict[int, str] = {}

    def encode(self) -> bytes:
        """The state as JSON."""
        part = self._open
        facts = "step", "slot", "publishers", "quorum", "kept_steps", "most_late"
        opened = [getattr(part, name) for name in facts] if part is not None else None
        return json.dumps(
            {
                "announced": self.announced,
                "newest": self._newest,
                "open": opened,
                "closings": [[step, one.slots, one.next_quorum] for step, one in self.closings.items()],
                "ended_by": list(self.ended_by.items()),
                "arrived": [[step, list(times.items())] for step, times in self._arrived.items()],
                "reached": list(self._reached.items()),
                "reports": [
                    [step, [[slot, base64.b64encode(one.encode()).decode()] for slot, one in reports.items()]]
                    for step, reports in self.reports.items()
                ],
            },
            separators=(",", ":"),
        ).encode()

    @staticmethod
    def decode(blob: bytes) -> QuorumState:
        """The state in ``blob``; DecodeError if it is none."""
        state = QuorumState()
        try:
            spec = json.loads(blob)
            state.announced, state._newest = spec["announced"], spec["newest"]
            state.closings = {step: Closing(slots, following) for step, slots, following in spec["closings"]}
            state.ended_by = dict(spec["ended_by"])
            state._arrived = {step: dict(times) for step, times in spec["arrived"]}
            state._reached = dict(spec["reached"])
            state.reports = {
                step: {slot: Report.decode(base64.b64decode(text)) for slot, text in reports}
                for step, reports in spec["reports"]
            }
            if spec["open"]:
                step, slot, publishers, quorum, kept_steps, most_late = spec["open"]
                others = None, kept_steps, quorum, 0, most_late
                state._open = RoundRequest(
                    str(step), step, slot, publishers, [], b"", None, NO_REQUEST, 0, 0.0, 0.0, *others
                )
        except (ValueError, TypeError, KeyError) as error:
            raise DecodeError(f"not the rounds of a job: {type(error).__name__}") from None
        return state

    def take(self, part: RoundRequest, now_s: float, by: str) -> LateArrival | None:
        """Take in an arrival of the invocation ``by``; returns it if it is a new one at a round that has ended."""
        if part.step <= self._newest and part.step not in self.closings:
            raise Aborted(f"worker {part.slot} is so late that round {part.round_id} is no longer kept")
        n_late = len(self.late)
        self.arrive(part, now_s)
        if part.step > self._newest:
            self.reports.setdefault(part.step, {}).setdefault(part.slot, part.report or Report())
        self.end_open(by)
        return self.late[-1] if len(self.late) > n_late else None

    def end_open(self, by: str) -> None:
        """End the open round if it can end."""
        ended = self.end()
        if ended is not None:
            self.ended_by[ended.step] = by
            for kept in (self.ended_by, self.reports):
                for step in [step for step in kept if step < ended.step]:
                    del kept[step]

    def entries_of(self, by: str) -> list[tuple[int, dict[int, Report], tuple[float, ...]]]:
        """The newest round if ``by`` has ended it: its step, the reports that count, and the times of its arrivals."""
        return [
            (step, {slot: self.reports[step][slot] for slot in self.closings[step].slots}, self.arrived_s(step))
            for step, who in self.ended_by.items()
            if who == by
        ]


class Told(NamedTuple):
    """The answer to an arrival: how its round ended, if it did, and the newest step that all have read."""

    closing: Closing | None
    read_step: int


class Quorum:
    """One worker's part in such rounds.

    Parameters
    ----------
    storage : Conditional
    key : str
        Of the object.
    log : StepLog
    nonce : str
        Of this invocation.
    note : callable
        Called with the numbers of reads and writes made.
    """

    def __init__(
        self, storage: Conditional, key: str, log: StepLog, nonce: str, note: Callable[[int, int], None]
    ) -> None:
        self._storage, self._log, self._nonce = storage, log, nonce
        self.cell = Cell(storage, key, QuorumState.decode, note)
        self._logged = 0  # the newest step that this worker has ended and logged

    def announce(self, quorum: int) -> None:
        """Set the quorum of the rounds to come."""

        def change(state: QuorumState) -> None:
            state.announced = quorum

        self.cell.change(change)

    def arrive(self, part: RoundRequest) -> Told:
        """Arrive at the round of ``part``."""
        now_s = self._storage.now_s()

        def change(state: QuorumState) -> tuple[QuorumState, LateArrival | None]:
            return state, state.take(part, now_s, self._nonce)

        state, late = self.cell.change(change)
        self._keep_log(state, len(part.publishers))
        if late is not None:
            self._log.note_late(late)
        return Told(state.closings.get(part.step), state.read_step(part))

    def poll(self, part: RoundRequest) -> Closing | None:
        """How the round of ``part`` has ended, None if it has not."""
        return self.cell.read().closings.get(part.step)

    def catch_up(self, part: RoundRequest) -> list[Closing]:
        """The rounds from that of ``part`` on that have ended; this worker has read all earlier ones."""

        def change(state: QuorumState) -> QuorumState:
            state.reach(part)
            state.end_open(self._nonce)
            return state

        state = self.cell.change(change)
        self._keep_log(state, len(part.publishers))
        try:
            return state.since(part.step)
        except KeyError:
            raise Aborted(f"worker {part.slot} is so late that round {part.round_id} is no longer kept") from None

    def _keep_log(self, state: QuorumState, n_workers: int) -> None:
        """Log a round that this worker has ended."""
        for step, reports, times in state.entries_of(self._nonce):
            if step > self._logged:
                self._logged = step
                self._log.append(step, reports, n_workers, times)
