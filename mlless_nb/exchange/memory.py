"""The coordinator in the memory of one process, for unit tests: same guarantees as `redis`, but keys do not expire."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ..money.request import BudgetRequest
from .frame_count import FrameCount, FrameCounter
from .in_parts import exchange_in_parts
from .memory_hub import MemoryHub
from .plan import Plan
from .protocol import KINDS, MODEL, WAIT_POLL_S, Arrival, Closing, Exchanged, Frame, FrameKey, RoundRequest
from .restarts import Aborted, Fenced, LostData, Restart, Restarted
from .standing import NO_PAST, Past, Standing
from .step_report import LateArrival, Report, StepEntry


class MemoryCoordinator:
    """See `Coordinator`."""

    def __init__(self, hub: MemoryHub, nonce: str = "") -> None:
        self._hub, self._nonce, self._restart = hub, nonce, hub.restart
        self._n_read, self._counter = 0, FrameCounter()

    def create(self, *, cap_nusd: int | None, reserved_nusd: int, past: Past = NO_PAST) -> None:
        """See `Coordinator`."""
        self._hub.create(cap_nusd, reserved_nusd, past)

    def delete(self) -> int:
        """See `Coordinator`."""
        n_keys = len(self._hub.frames) + len(self._hub.arrivals)
        self._hub.lose()
        return n_keys

    def close(self) -> None:
        """Nothing to release."""

    def now_s(self) -> float:
        """See `Coordinator`."""
        return time.monotonic()

    def renew(self, role: str, lease_s: float) -> None:
        """See `Coordinator`."""
        with self._hub.changed:
            self._hub.leases[role] = time.monotonic() + lease_s

    def alive(self, roles: list[str]) -> list[bool]:
        """See `Coordinator`."""
        now = time.monotonic()
        return [self._hub.leases.get(role, -1.0) > now for role in roles]

    def at_work(self, slots: list[int]) -> dict[int, str]:
        """See `Coordinator`."""
        hub = self._hub
        with hub.changed:
            return {slot: hub.claims[slot] for slot in slots if slot in hub.claims and (slot, 0) not in hub.refunded}

    def settled(self, slots: list[int]) -> set[int]:
        """See `Coordinator`."""
        return {slot for slot in slots if (slot, 0) in self._hub.refunded}

    def bury(self, role: str) -> None:
        """See `Coordinator`."""
        with self._hub.changed:
            self._hub.leases.pop(role, None)

    def restart(self) -> Restart:
        """See `Coordinator`."""
        return self._there.restart

    def join(self, restart: Restart) -> None:
        """See `Coordinator`."""
        self._restart = restart

    def roll_back(self, known: Restart, step: int, replaced: list[int], n_workers: int, origin: int = 0) -> Restart:
        """See `Coordinator`."""
        hub = self._there
        with hub.changed:
            if hub.aborted is not None:
                raise Aborted(hub.aborted[1], hub.aborted[0])
            if hub.restart.number == known.number:
                hub.roll_back(step, replaced, origin)
            return hub.restart

    def identities(self) -> list[str]:
        """See `Coordinator`."""
        return [self._hub.identity]

    def standing(self, slots: list[int]) -> Standing:
        """See `Coordinator`."""
        known = self.read_plan(), self.at_work(slots), self.money()[1], self.restart()
        return Standing(*known, self.identities())

    def release(self, slot: int) -> None:
        """See `Coordinator`."""
        with self._hub.changed:
            self._hub.release(slot)

    def hand_over(self, slot: int, step: int) -> None:
        """See `Coordinator`."""
        with self._hub.changed:
            if self._hub.claims.get(slot) == self._nonce:
                self._hub.hand_over(slot, step)

    @property
    def _there(self) -> MemoryHub:
        """The job's data; raises `LostData` if it is gone."""
        if self._hub.is_lost:
            raise LostData("the run's data is gone")
        return self._hub

    def _check(self) -> None:
        """Raise `Aborted` or `Restarted` if the rounds of this worker are over."""
        hub = self._there
        if hub.restart.number != self._restart.number:
            raise Restarted(hub.restart)
        if hub.aborted is not None:
            raise Aborted(hub.aborted[1], hub.aborted[0])

    def read_plan(self) -> Plan:
        """See `Coordinator`."""
        return self._hub.plan

    def announce_checkpoint(self) -> Plan:
        """See `Coordinator`."""
        with self._hub.changed:
            return self._hub.announce_checkpoint()

    def announce_leave(self, slots: list[int], command_id: str = "") -> Plan:
        """See `Coordinator`."""
        with self._hub.changed:
            return self._hub.announce_leave(slots, command_id)

    def announce_hand_over(self, slots: list[int]) -> Plan:
        """See `Coordinator`."""
        with self._hub.changed:
            return self._hub.announce_hand_over(slots)

    def announce_stop(self, status: str, reason: str) -> Plan:
        """See `Coordinator`."""
        hub = self._hub
        with hub.changed:
            if hub.plan.stop_after is None:
                hub.announce(stop_after=hub.latest + 1, stop_status=status, stop_reason=reason)
            return hub.plan

    def abort(self, reason: str, n_workers: int, status: str = "failed") -> None:
        """See `Coordinator`."""
        with self._hub.changed:
            if not self._hub.is_lost:
                self._hub.aborted = self._hub.aborted or (status, reason)
            self._hub.changed.notify_all()

    def aborted(self) -> tuple[str, str] | None:
        """See `Coordinator`."""
        return self._hub.aborted

    def money(self) -> tuple[int | None, int]:
        """See `Coordinator`."""
        hub = self._there
        return hub.cap, hub.reserved

    def reserve(self, nusd: int, least_nusd: int | None = None, request_id: str = "") -> int:
        """See `Coordinator`."""
        wanted = BudgetRequest(nusd, nusd if least_nusd is None else least_nusd)
        return self._there.answer_once(request_id, lambda: self._hub.take(wanted))

    def reserve_start(self, nusd: dict[int, int], request_id: str = "") -> bool:
        """See `Coordinator`."""
        return bool(self._there.answer_once(request_id, lambda: self._hub.take_start(nusd)))

    def start_grant(self, slot: int) -> int:
        """See `Coordinator`."""
        return self._hub.started_late.get(slot, 0)

    def refund(self, nusd: int, slot: int, part: int = 0) -> None:
        """See `Coordinator`."""
        with self._hub.changed:
            if not self._hub.is_lost and (slot, part) not in self._hub.refunded:
                self._hub.refunded.add((slot, part))
                self._hub.reserved -= nusd

    def set_cap(self, cap_nusd: int) -> bool:
        """See `Coordinator`."""
        with self._hub.changed:
            if cap_nusd < self._there.reserved:
                return False
            self._hub.cap = cap_nusd
            return True

    def claim(self, slot: int) -> bool:
        """See `Coordinator`."""
        with self._hub.changed:
            return self._hub.claims.setdefault(slot, self._nonce) == self._nonce

    def frame_count(self) -> FrameCount:
        """See `CountsFrames`."""
        return self._counter.frame_count()

    def publish(self, part: RoundRequest) -> Arrival:
        """See `Coordinator`."""
        hub = self._hub
        with hub.changed:
            self._check()
            if hub.claims.get(part.slot) != self._nonce:
                raise Fenced("this worker's slot was given to another invocation")
            hub.leases[str(part.slot)] = time.monotonic() + part.lease_s
            hub.latest = max(hub.latest, part.step)
            granted = hub.grant((part.round_id, part.slot), part.wanted)
            for receiver, frame in part.outgoing.items():
                hub.frames.setdefault((part.round_id, part.slot, receiver), frame)
            if part.is_awaited:
                self._counter.put(part.outgoing.values())
            hub.forget(part.step - part.kept_steps, part.slot)
            arrivals = hub.arrivals.setdefault(part.round_id, {})
            is_new = part.slot not in arrivals
            arrivals.setdefault(part.slot, part.report)
            closing, read_step = None, 0
            if part.quorum:
                hub.quorum.arrive(part, time.monotonic())
                self._end_quorum()
                closing, read_step = hub.quorum.closings.get(part.step), hub.quorum.read_step(part)
            elif is_new and len(arrivals) == part.n_due:
                if part.report is not None:
                    self._log_step(part, list(arrivals))
                hub.changed.notify_all()
            is_complete = closing is not None if part.quorum else len(arrivals) >= part.n_due
            answer = self._answer(part)
            return answer._replace(is_complete=is_complete, granted_nusd=granted, closing=closing, read_step=read_step)

    def _answer(self, part: RoundRequest) -> Arrival:
        """The answer to a worker whose round is not complete, without a grant."""
        hub = self._hub
        plan = hub.plan if hub.plan.version > part.known_plan else None
        return Arrival(False, plan, 0, hub.leases.get("supervisor", -1.0) > time.monotonic())

    def _log_step(self, part: RoundRequest, slots: list[int], **further: Any) -> None:
        """Add the step of ``part`` to the step log, with the reports of ``slots``; drop what is no longer needed."""
        hub, past = self._hub, part.step - part.kept_steps
        arrivals = hub.arrivals[part.round_id]
        reports = {slot: arrivals[slot] or Report() for slot in slots}
        hub.log_step(StepEntry(part.step, time.monotonic(), reports, **further))
        for kind in KINDS:
            hub.arrivals.pop(f"{past}{kind}", None)

    def _end_quorum(self) -> None:
        """End the open round of a quorum if it can end."""
        hub = self._hub
        ended = hub.quorum.end()
        if ended is not None:
            slots, arrived_s = hub.quorum.closings[ended.step].slots, hub.quorum.arrived_s(ended.step)
            self._log_step(ended, slots, n_workers=len(ended.publishers), arrived_s=arrived_s)
            hub.changed.notify_all()

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> Closing | None:
        """See `Coordinator`."""
        hub = self._hub
        if not part.quorum:
            self._wait_until(lambda: len(hub.arrivals.get(part.round_id, {})) >= part.n_due, part, pay)
            return None
        self._wait_until(lambda: part.step in hub.quorum.closings, part, pay)
        return hub.quorum.closings[part.step]

    def catch_up(self, part: RoundRequest) -> tuple[Arrival, list[Closing]]:
        """See `Coordinator`."""
        hub = self._hub
        with hub.changed:
            self._check()
            hub.quorum.reach(part)
            self._end_quorum()
            return self._answer(part), hub.quorum.since(part.step)

    def put_model(self, frame: bytes) -> None:
        """See `Coordinator`."""
        self._hub.frames[MODEL] = frame
        self._counter.put([frame])

    def get_model(self) -> Frame | None:
        """See `Coordinator`."""
        return self._counter.got([self._hub.frames.get(MODEL)])[0]

    def _wait_until(self, is_there: Callable[[], bool], part: RoundRequest, pay: Callable[[], None]) -> None:
        """Wait until ``is_there()`` is true, at most ``part.deadline_s`` seconds."""
        hub = self._hub
        give_up_at, mine = time.monotonic() + part.deadline_s, self._restart.number
        with hub.changed:
            while not hub.changed.wait_for(
                lambda: hub.is_lost or hub.aborted is not None or hub.restart.number != mine or is_there(),
                min(WAIT_POLL_S, part.deadline_s),
            ):
                pay()
                if time.monotonic() > give_up_at:
                    raise Aborted(f"round {part.round_id} did not complete within {part.deadline_s:g} s")
            self._check()

    def frames(self, part: RoundRequest, slots: list[int] | None = None) -> list[Frame]:
        """See `Coordinator`."""
        with self._hub.changed:
            frames, read = self._hub.frames, part.read_slots(slots)
            found = {slot: frames.get((part.round_id, slot, part.inbox)) for slot in read}
            self._check()
        missing = [slot for slot, frame in found.items() if frame is None]
        if missing:
            raise LostData(f"the update of worker {missing[0]} in round {part.round_id} is gone")
        return self._counter.got([frame for frame in found.values() if frame is not None])

    def exchange(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        """See `Coordinator`."""
        return exchange_in_parts(self, part, pay)

    def publish_and_poll(self, part: RoundRequest, keys: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        """See `Coordinator`."""
        arrival = self.publish(part)
        return arrival, self._counter.got(self._poll(keys))

    def wait_for_any(self, part: RoundRequest, keys: Sequence[FrameKey], pay: Callable[[], None]) -> list[Frame | None]:
        """See `Coordinator`."""
        self._wait_until(lambda: any(found is not None for found in self._poll(keys)), part, pay)
        return self._counter.got(self._poll(keys))

    def _poll(self, keys: Sequence[FrameKey]) -> list[Frame | None]:
        """The frames of ``keys``, None for one that is not published yet."""
        with self._hub.changed:
            return [self._hub.frames.get((round_id, slot, None)) for round_id, slot in keys]

    def read_steps(self, timeout_s: float) -> list[StepEntry]:
        """See `Coordinator`."""
        hub = self._hub
        with hub.changed:
            hub.changed.wait_for(lambda: hub.n_past_steps + len(hub.steps) > self._n_read, timeout_s)
            entries = hub.steps[max(self._n_read - hub.n_past_steps, 0) :]
            self._n_read = hub.n_past_steps + len(hub.steps)
            return entries

    def read_late(self) -> list[LateArrival]:
        """See `Coordinator`."""
        with self._hub.changed:
            late, self._hub.quorum.late = self._hub.quorum.late, []
            return late

    def announce_quorum(self, quorum: int) -> None:
        """See `Coordinator`."""
        with self._hub.changed:
            self._hub.quorum.announced = quorum
