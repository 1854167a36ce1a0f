"""The coordinator in virtual time: the rules of its memory twin, the queues of the servers in front of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..exchange import (
    WAIT_POLL_S,
    Aborted,
    Arrival,
    Exchanged,
    Frame,
    FrameKey,
    MemoryCoordinator,
    RoundRequest,
    StepEntry,
)
from ..exchange.step_report import Report
from .events import Process
from .hub import Gathering, Reader, SimulatedHub
from .replicas import Sized
from .shards import Line, Shard

#: Bytes of a command, of an arrival with its report, of a frame's key, and of the shortest reply.
COMMAND_BYTES, ARRIVAL_BYTES, KEY_BYTES, REPLY_BYTES = 100, 600, 40, 20


class SimulatedCoordinator(MemoryCoordinator):
    """See `Coordinator`.

    What a worker's step takes is queued at the servers; the few other requests (leases, money, announcements) are
    answered at once.

    Parameters
    ----------
    hub : SimulatedHub
    process : Process or None
        Who uses it; None: nobody that ever waits.
    nonce : str
    """

    _hub: SimulatedHub

    def __init__(self, hub: SimulatedHub, process: Process | None = None, nonce: str = "") -> None:
        super().__init__(hub, nonce)
        self._process, self._line = process, Line()
        self._latency_s = hub.machine.link.latency_s
        self._n_seen = 0  # wake-up calls before the last look

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
        self._hub.call_off()

    # -- a worker's round

    def _send(self, part: RoundRequest, reads: bool, sought: Sequence[FrameKey] | None = None) -> Reader:
        """Write what a round takes to the servers; the worker's own work for that is done first."""
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
        reader = Reader(process, self._line, part, reads, sought)
        storing_s = costs.command_s * count + costs.in_byte_s * n_bytes
        if home == 0:
            shards[0].request(self._line, costs.arrival_s + storing_s, n_bytes + ARRIVAL_BYTES, self._arrive, reader)
        else:
            # A worker arrives once its own server has answered.
            shards[home].request(self._line, storing_s, n_bytes, self._keep, reader, shards[home])
        return reader

    def _keep(self, reader: Reader, home: Shard) -> None:
        self._hub.gathering(reader.part.round_id).there.add(reader.part.slot)
        home.reply(reader.line, REPLY_BYTES, self._stored, reader)

    def _stored(self, reader: Reader) -> None:
        first, arrival_s = self._hub.shards[0], self._hub.machine.costs.arrival_s
        first.request(reader.line, arrival_s, ARRIVAL_BYTES, self._arrive, reader)

    def _arrive(self, reader: Reader) -> None:
        """At the first server: the arrival counts; whoever is last completes the round."""
        hub, part = self._hub, reader.part
        now, first = self._now, hub.shards[0]
        if hub.claims.get(part.slot) != self._nonce:
            reader.error = Aborted("this worker's slot was given to another invocation")
        elif hub.called_off is not None:
            reader.error = Aborted(hub.called_off[1], hub.called_off[0])
        if reader.error is not None:
            first.reply(reader.line, REPLY_BYTES, reader.wake)
            return
        hub.latest = max(hub.latest, part.step)
        with hub.changed:  # nobody else is there, but the twin's announcements notify
            granted = hub.grant((part.round_id, part.slot), part.wanted)
        gathering = hub.gathering(part.round_id)
        gathering.there.add(part.slot)
        gathering.arrivals.setdefault(part.slot, part.report)
        is_complete = len(gathering.arrivals) >= part.n_due
        has_supervisor = hub.leases.get("supervisor", -1.0) > now
        reader.arrival = Arrival(is_complete, hub.plan, granted, has_supervisor)
        reader.published_at = now + self._latency_s
        if reader.reads and gathering.complete_at is not None:
            self._fetch(reader, gathering, at_server=True)  # it came too late to count
        elif reader.reads:
            gathering.readers.append(reader)
            hub.waiting[reader] = None
        elif reader.sought is None:
            first.reply(reader.line, REPLY_BYTES, reader.wake)
        if is_complete and gathering.complete_at is None:
            self._complete(part, gathering)
        if reader.sought is not None:
            self._search(reader)

    def _complete(self, part: RoundRequest, gathering: Gathering) -> None:
        hub = self._hub
        gathering.complete_at = self._now
        gathering.slots = sorted(gathering.arrivals) if part.quorum else None
        if part.report is not None:
            reports = {slot: gathering.arrivals[slot] or Report() for slot in sorted(gathering.arrivals)}
            hub.steps.append(StepEntry(part.step, self._now, reports))
            hub.shards[0].serve(hub.machine.costs.report_s * len(reports), self._logged)
            hub.drop(part.step - part.kept_steps)
        for reader in gathering.readers:
            self._fetch(reader, gathering, at_server=True)
        gathering.readers = []
        hub.n_calls += 1
        watching, hub.watching = hub.watching, {}
        for reader in watching:
            reader.was_woken = True
            self._search(reader)

    def _logged(self) -> None:
        listener = self._hub.listener
        if listener is not None:
            process, ticket = listener
            self._hub.listener = None
            process.wake(ticket)

    def _fetch(self, reader: Reader, gathering: Gathering, *, at_server: bool) -> None:
        """Ask every server for its frames; at the first one the question lies behind the wait already."""
        hub, part, costs = self._hub, reader.part, self._hub.machine.costs
        hub.waiting.pop(reader, None)
        wanted = self._wanted(part, gathering)
        reader.n_pending = len(wanted) or 1
        if not wanted:
            hub.shards[0].reply(reader.line, REPLY_BYTES, self._got, reader)
        for number, count, n_bytes in wanted:
            shard = hub.shards[number]
            cpu_s = costs.command_s * count + costs.out_byte_s * n_bytes
            hub.n_read += count
            if number == 0 and at_server:
                shard.serve(cpu_s, shard.reply, reader.line, n_bytes, self._got, reader)
            else:
                delay_s = self._latency_s if at_server else 0.0
                asked = COMMAND_BYTES + KEY_BYTES * count
                answer = (shard.reply, reader.line, n_bytes, self._got, reader)
                hub.timeline.after(delay_s, shard.request, reader.line, cpu_s, asked, *answer)

    def _wanted(self, part: RoundRequest, gathering: Gathering) -> list[tuple[int, int, float]]:
        """(server, frames, bytes) that a worker reads of a round."""
        shards, slot = len(self._hub.shards), part.slot
        own_bytes, own_count = gathering.own.get(slot, (0, 0))
        wanted: list[tuple[int, int, float]] = []
        if part.parts is not None and not gathering.is_sized:
            by_shard: dict[int, tuple[int, int]] = {}
            for peer in part.peers:
                count, n_bytes = by_shard.get(peer % shards, (0, 0))
                by_shard[peer % shards] = count + 1, n_bytes + len(gathering.frames[peer][slot])
            return [(number, *sizes) for number, sizes in sorted(by_shard.items())]
        # Of parts that are only counted, everybody is addressed the same share.
        share = 1.0 if part.parts is None else 1.0 / max(len(part.publishers) - 1, 1)
        for number in range(shards):
            is_home = number == slot % shards
            count = gathering.counts[number] - (own_count if is_home else 0)
            if count:
                n_bytes = gathering.n_bytes[number] - (own_bytes if is_home else 0)
                wanted.append((number, round(count * share), n_bytes * share))
        return wanted

    def _got(self, reader: Reader) -> None:
        reader.n_pending -= 1
        if reader.n_pending == 0:
            reader.wake()

    def _await(self, reader: Reader, pay: Callable[[], None]) -> None:
        """Wait until ``reader`` has what it asked for."""
        process, hub, part = reader.process, self._hub, reader.part
        give_up_at = self._now + part.deadline_s
        # Where there is no cap nothing comes of paying while one waits, and nobody looks around for it.
        look_s = part.deadline_s if hub.cap is None else min(WAIT_POLL_S, part.deadline_s)
        while process.pause(None if reader.n_pending else look_s) is None:
            if not reader.n_pending and reader.arrival is not None:  # else it waits for the servers, not for peers
                pay()
                if self._now >= give_up_at:
                    hub.waiting.pop(reader, None)
                    raise Aborted(f"round {part.round_id} did not complete within {part.deadline_s:g} s")
            reader.ticket = process.expect()
        process.switch()
        if reader.error is not None:
            raise reader.error
        if hub.called_off is not None:
            raise Aborted(hub.called_off[1], hub.called_off[0])

    def _frames(self, part: RoundRequest, gathering: Gathering) -> list[Any]:
        assert self._process is not None
        wanted = self._wanted(part, gathering)
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

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> list[int] | None:
        """See `Coordinator`."""
        assert self._process is not None
        gathering = self._hub.gathering(part.round_id)
        if gathering.complete_at is None:
            self._process.clock()
        if gathering.complete_at is None:
            reader = Reader(self._process, self._line, part, reads=True)
            reader.arrival = Arrival(False, None, 0, True)
            gathering.readers.append(reader)
            self._hub.waiting[reader] = None
            self._await(reader, pay)
        return gathering.slots

    def frames(self, part: RoundRequest, slots: list[int] | None = None) -> list[Any]:
        """See `Coordinator`."""
        assert self._process is not None
        gathering = self._hub.gathering(part.round_id)
        reader = Reader(self._process, self._line, part, reads=True)
        self._fetch(reader, gathering, at_server=False)
        self._await(reader, lambda: None)
        return self._frames(part, gathering)

    def exchange(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        """See `Coordinator`; one write, as with one server."""
        gathering = self._hub.gathering(part.round_id)
        reader = self._send(part, reads=True)
        self._await(reader, pay)
        assert reader.arrival is not None
        assert gathering.complete_at is not None
        complete_at = max(gathering.complete_at + self._latency_s, reader.published_at)
        frames = self._frames(part, gathering)
        return Exchanged(reader.arrival, frames, reader.published_at, complete_at, gathering.slots or part.publishers)

    # -- looking for frames of rounds that need not be complete

    def _search(self, reader: Reader) -> None:
        """At the first server: what is there of the frames it keeps goes back, then the other servers are asked."""
        hub, sought = self._hub, reader.sought or ()
        hub.waiting.pop(reader, None)
        reader.n_seen = hub.n_calls
        by_shard: dict[int, list[int]] = {0: []}
        for number, (_, slot) in enumerate(sought):
            by_shard.setdefault(slot % len(hub.shards), []).append(number)
        reader.n_pending = len(by_shard)
        for shard, numbers in by_shard.items():
            asking_s = hub.machine.costs.command_s * len(numbers)
            if shard == 0:
                hub.shards[0].serve(asking_s, self._answer, reader, 0, numbers)
            else:
                asked = COMMAND_BYTES + KEY_BYTES * len(numbers)
                arguments = (reader.line, asking_s, asked, self._answer, reader, shard, numbers)
                hub.timeline.after(self._latency_s, hub.shards[shard].request, *arguments)

    def _answer(self, reader: Reader, shard: int, numbers: list[int]) -> None:
        """At a server that was asked for the frames of these ``numbers``."""
        hub, n_bytes, sought = self._hub, 0, reader.sought or ()
        for number in numbers:
            round_id, slot = sought[number]
            gathering = hub.rounds.get(round_id)
            if gathering is not None and slot in gathering.there:
                reader.found[number] = gathering.frames[slot][None]
                n_bytes += len(reader.found[number])
                hub.n_read += 1
        server = hub.shards[shard]
        answer = (server.reply, reader.line, n_bytes + REPLY_BYTES, self._got, reader)
        server.serve(hub.machine.costs.out_byte_s * n_bytes, *answer)

    def _watch(self, reader: Reader) -> None:
        """At the first server: look once a round is complete that was not at the last look, or after a while."""
        hub = self._hub
        if hub.n_calls > self._n_seen:
            reader.was_woken = True
            self._search(reader)
        else:
            hub.watching[reader] = hub.waiting[reader] = None
            hub.timeline.after(WAIT_POLL_S, self._lapse, reader)

    def _lapse(self, reader: Reader) -> None:
        if reader in self._hub.watching:
            del self._hub.watching[reader]
            self._search(reader)

    def _found(self, reader: Reader) -> list[Frame | None]:
        assert self._process is not None
        self._n_seen = reader.n_seen
        n_bytes = sum(len(frame) for frame in reader.found if frame is not None)
        self._process.spend(self._hub.machine.costs.receive_byte_s * n_bytes)
        return reader.found

    def publish_and_poll(self, part: RoundRequest, sought: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        """See `Coordinator`; one write to the first server."""
        reader = self._send(part, reads=False, sought=sought)
        self._await(reader, lambda: None)
        assert reader.arrival is not None
        return reader.arrival, self._found(reader)

    def wait_for_any(
        self, part: RoundRequest, sought: Sequence[FrameKey], pay: Callable[[], None]
    ) -> list[Frame | None]:
        """See `Coordinator`."""
        process = self._process
        assert process is not None
        give_up_at = self._now + part.deadline_s
        while True:
            process.clock()
            reader = Reader(process, self._line, part, True, sought)
            reader.n_pending = 1  # wakes itself
            asked = COMMAND_BYTES + KEY_BYTES * len(sought)
            self._hub.shards[0].request(self._line, 0.0, asked, self._watch, reader)
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
