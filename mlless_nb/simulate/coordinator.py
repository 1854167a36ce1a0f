"""The coordinator in virtual time: the logic of the in-memory one, with the queues of simulated servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..exchange import (
    WAIT_POLL_S,
    Aborted,
    Arrival,
    Closing,
    Exchanged,
    Frame,
    FrameKey,
    MemoryCoordinator,
    RoundEnded,
    RoundRequest,
    StepEntry,
)
from .events import Process
from .hub import Gathering, Reader, SimulatedHub
from .server_requests import COMMAND_BYTES, KEY_BYTES, ServerRequests
from .shards import FunctionLink
from .stand_ins import Sized


class SimulatedCoordinator(MemoryCoordinator):
    """See `Coordinator`.

    The requests of a worker's step are queued at the servers. The few others (leases, money, announcements) are
    answered at once.

    Parameters
    ----------
    hub : SimulatedHub
    process : Process or None
        The process that uses it; None if it never waits.
    nonce : str
    """

    _hub: SimulatedHub

    def __init__(self, hub: SimulatedHub, process: Process | None = None, nonce: str = "") -> None:
        super().__init__(hub, nonce)
        self._process, self._own_link = process, FunctionLink()
        self._servers = ServerRequests(hub, nonce)
        self._latency_s = hub.machine.link.latency_s
        self._n_seen = 0  # wake-up messages before the last poll

    @property
    def _now(self) -> float:
        return self._hub.timeline.now

    def now_s(self) -> float:
        """See `Coordinator`."""
        return self._now

    def renew(self, role: str, lease_s: float) -> None:
        """See `Coordinator`."""
        self._hub.leases[role] = self._now + lease_s

    def alive(self, roles: list[str]) -> list[bool]:
        """See `Coordinator`."""
        now, leases = self._now, self._hub.leases
        return [leases.get(role, -1.0) > now for role in roles]

    def abort(self, reason: str, n_workers: int, status: str = "failed") -> None:
        """See `Coordinator`."""
        super().abort(reason, n_workers, status)
        self._hub.wake_all()

    # -- a worker's round

    def _send(self, part: RoundRequest, reads: bool, keys: Sequence[FrameKey] | None = None) -> Reader:
        """Send a round's requests to the servers, after the worker's own work for them."""
        hub, process = self._hub, self._process
        assert process is not None
        costs, shards = hub.machine.costs, hub.shards
        home = part.slot % len(shards)
        gathering = hub.gathering(part.round_id)
        gathering.keep(part, home)
        n_bytes, count = gathering.own[part.slot]
        hub.n_kept += count
        process.spend(costs.send_byte_s * n_bytes)
        process.clock()
        reader = Reader(process, self._own_link, part, reads, keys)
        self._servers.write(reader, shards[home], n_bytes, count)
        return reader

    def _await(self, reader: Reader, pay: Callable[[], None]) -> None:
        """Wait until ``reader`` has the answers to its requests."""
        process, hub, part = reader.process, self._hub, reader.part
        give_up_at = self._now + part.deadline_s
        # Without a cap, paying while waiting has no effect, so the worker need not wake up for it.
        look_s = part.deadline_s if hub.cap is None else min(WAIT_POLL_S, part.deadline_s)
        while process.pause(None if reader.n_pending else look_s) is None:
            if not reader.n_pending and reader.arrival is not None:  # else it is waiting for the servers, not for peers
                pay()
                if self._now >= give_up_at:
                    hub.waiting.pop(reader, None)
                    raise Aborted(f"round {part.round_id} did not complete within {part.deadline_s:g} s")
            reader.ticket = process.expect()
        process.switch()
        if reader.error is not None:
            raise reader.error
        if hub.aborted is not None:
            raise Aborted(hub.aborted[1], hub.aborted[0])

    def _frames(self, part: RoundRequest, gathering: Gathering) -> list[Any]:
        assert self._process is not None
        wanted = gathering.read_by(part)
        n_bytes = sum(size for _, _, size in wanted)
        self._process.spend(self._hub.machine.costs.receive_byte_s * n_bytes)
        if gathering.is_sized:
            count = sum(count for _, count, _ in wanted)
            return [Sized(int(n_bytes), gathering.stats, count)] if count else []
        key = part.inbox
        return [gathering.frames[slot][key] for slot in part.read_slots(gathering.slots)]

    def publish(self, part: RoundRequest) -> Arrival:
        """See `Coordinator`."""
        reader = self._send(part, reads=False)
        self._await(reader, lambda: None)
        assert reader.arrival is not None
        return reader.arrival

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> Closing | None:
        """See `Coordinator`."""
        assert self._process is not None
        gathering = self._hub.gathering(part.round_id)
        if gathering.complete_at is None:
            self._process.clock()
        if gathering.complete_at is None:
            reader = Reader(self._process, self._own_link, part, reads=True)
            reader.arrival = Arrival(False, None, 0, True)
            gathering.readers.append(reader)
            self._hub.waiting[reader] = None
            self._await(reader, pay)
        return self._hub.quorum.closings.get(part.step) if part.quorum else None

    def frames(self, part: RoundRequest, slots: list[int] | None = None) -> list[Any]:
        """See `Coordinator`."""
        assert self._process is not None
        gathering = self._hub.gathering(part.round_id)
        reader = Reader(self._process, self._own_link, part, reads=True)
        self._servers.fetch(reader, gathering, at_server=False)
        self._await(reader, lambda: None)
        return self._frames(part, gathering)

    def exchange(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        """See `Coordinator`; one write, as with one server."""
        gathering = self._hub.gathering(part.round_id)
        reader = self._send(part, reads=True)
        try:
            self._await(reader, pay)
        except RoundEnded as error:
            if reader.arrival is not None:
                error.keep_grant(reader.arrival.granted_nusd)
            raise
        assert reader.arrival is not None
        assert gathering.complete_at is not None
        complete_at = max(gathering.complete_at + self._latency_s, reader.published_at)
        frames, closing = self._frames(part, gathering), Closing(part.publishers)
        if part.quorum:
            closing = self._hub.quorum.closings[part.step]
        return Exchanged(reader.arrival, frames, reader.published_at, complete_at, *closing)

    def catch_up(self, part: RoundRequest) -> tuple[Arrival, list[Closing]]:
        """See `Coordinator`."""
        assert self._process is not None
        reader = Reader(self._process, self._own_link, part, reads=False)
        self._hub.shards[0].request(self._own_link, self._hub.machine.costs.command_s, COMMAND_BYTES, reader.wake)
        reader.n_pending = 1
        self._await(reader, lambda: None)
        self._hub.quorum.reach(part)
        self._servers.end_quorum()
        return Arrival(False, self._hub.plan, 0, True), self._hub.quorum.since(part.step)

    # -- polling for frames of rounds that need not be complete

    def _found(self, reader: Reader) -> list[Frame | None]:
        assert self._process is not None
        self._n_seen = reader.n_seen
        n_bytes = sum(len(frame) for frame in reader.found if frame is not None)
        self._process.spend(self._hub.machine.costs.receive_byte_s * n_bytes)
        return reader.found

    def publish_and_poll(self, part: RoundRequest, keys: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        """See `Coordinator`; one write to the first server."""
        reader = self._send(part, reads=False, keys=keys)
        self._await(reader, lambda: None)
        assert reader.arrival is not None
        return reader.arrival, self._found(reader)

    def wait_for_any(self, part: RoundRequest, keys: Sequence[FrameKey], pay: Callable[[], None]) -> list[Frame | None]:
        """See `Coordinator`."""
        process = self._process
        assert process is not None
        give_up_at = self._now + part.deadline_s
        while True:
            process.clock()
            reader = Reader(process, self._own_link, part, True, keys)
            reader.n_pending = 1  # wakes itself
            reader.n_seen = self._n_seen
            asked = COMMAND_BYTES + KEY_BYTES * len(keys)
            self._hub.shards[0].request(self._own_link, 0.0, asked, self._servers.watch, reader)
            self._await(reader, pay)
            found = self._found(reader)
            if any(frame is not None for frame in found):
                return found
            if not reader.was_woken:
                pay()
                if self._now > give_up_at:
                    raise Aborted(f"round {part.round_id} did not complete within {part.deadline_s:g} s")

    # -- supervisor

    def read_steps(self, timeout_s: float) -> list[StepEntry]:
        """See `Coordinator`."""
        hub, process = self._hub, self._process
        assert process is not None
        process.clock()
        if len(hub.steps) <= self._n_read:
            hub.listener = (process, process.expect())
            process.pause(timeout_s)
            hub.listener = None
        entries = hub.steps[self._n_read :]
        self._n_read += len(entries)
        process.spend(hub.machine.costs.read_report_s * sum(len(entry.reports) for entry in entries))
        return entries
