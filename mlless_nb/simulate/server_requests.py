"""A worker's requests at the simulated servers: arrivals, reads of frames, and their replies."""

from __future__ import annotations

from typing import Any

from ..exchange import WAIT_POLL_S, Aborted, Arrival, RoundRequest, StepEntry
from ..exchange.step_report import Report
from .hub import Gathering, Reader, SimulatedHub
from .shards import Shard

#: Sizes of a command, an arrival with its report, a frame's key, and the shortest reply, bytes.
COMMAND_BYTES, ARRIVAL_BYTES, KEY_BYTES, REPLY_BYTES = 100, 600, 40, 20


class ServerRequests:
    """The requests of one invocation, which the servers carry out in virtual time.

    Parameters
    ----------
    hub : SimulatedHub
    nonce : str
        Identifies the invocation: a duplicate of it is refused.
    """

    def __init__(self, hub: SimulatedHub, nonce: str) -> None:
        self._hub, self._nonce = hub, nonce
        self._latency_s = hub.machine.link.latency_s

    @property
    def _now(self) -> float:
        return self._hub.timeline.now

    def write(self, reader: Reader, home: Shard, n_bytes: int, count: int) -> None:
        """Store ``count`` frames of a round at the worker's own server, then let the worker arrive."""
        costs, first = self._hub.machine.costs, self._hub.shards[0]
        storing_s = costs.command_s * count + costs.in_byte_s * n_bytes
        if home is first:
            first.request(reader.own_link, costs.arrival_s + storing_s, n_bytes + ARRIVAL_BYTES, self._arrive, reader)
        else:
            # A worker arrives once its own server has answered.
            home.request(reader.own_link, storing_s, n_bytes, self._keep, reader, home)

    def _keep(self, reader: Reader, home: Shard) -> None:
        self._hub.gathering(reader.part.round_id).there.add(reader.part.slot)
        home.reply(reader.own_link, REPLY_BYTES, self._stored, reader)

    def _stored(self, reader: Reader) -> None:
        first, arrival_s = self._hub.shards[0], self._hub.machine.costs.arrival_s
        first.request(reader.own_link, arrival_s, ARRIVAL_BYTES, self._arrive, reader)

    def _arrive(self, reader: Reader) -> None:
        """At the first server: count the arrival; the last one completes the round."""
        hub, part = self._hub, reader.part
        now, first = self._now, hub.shards[0]
        if hub.claims.get(part.slot) != self._nonce:
            reader.error = Aborted("this worker's slot was given to another invocation")
        elif hub.aborted is not None:
            reader.error = Aborted(hub.aborted[1], hub.aborted[0])
        if reader.error is not None:
            first.reply(reader.own_link, REPLY_BYTES, reader.wake)
            return
        hub.latest = max(hub.latest, part.step)
        with hub.changed:  # there is one thread, but announcements notify this condition
            granted = hub.grant((part.round_id, part.slot), part.wanted)
        gathering = hub.gathering(part.round_id)
        gathering.there.add(part.slot)
        gathering.arrivals.setdefault(part.slot, part.report)
        is_complete = len(gathering.arrivals) >= part.n_due
        if part.quorum:
            hub.quorum.arrive(part, now)
            self.end_quorum()
            is_complete = part.step in hub.quorum.closings
        has_supervisor = hub.leases.get("supervisor", -1.0) > now
        reader.arrival = Arrival(is_complete, hub.plan, granted, has_supervisor)
        reader.published_at = now + self._latency_s
        if reader.reads and gathering.complete_at is not None:
            self.fetch(reader, gathering, at_server=True)  # it came too late to count
        elif reader.reads:
            gathering.readers.append(reader)
            hub.waiting[reader] = None
        elif reader.keys is None:
            first.reply(reader.own_link, REPLY_BYTES, reader.wake)
        if is_complete and gathering.complete_at is None and not part.quorum:
            self._complete(part, gathering)
        if reader.keys is not None:
            self.look_for(reader)

    def end_quorum(self) -> None:
        """End the open round of a quorum if it can end."""
        quorum = self._hub.quorum
        ended = quorum.end()
        if ended is not None:
            gathering = self._hub.gathering(ended.round_id)
            gathering.count_only(quorum.closings[ended.step].slots)
            self._complete(ended, gathering, n_workers=len(ended.publishers), arrived_s=quorum.arrived_s(ended.step))

    def _complete(self, part: RoundRequest, gathering: Gathering, **further: Any) -> None:
        hub = self._hub
        gathering.complete_at = self._now
        if part.report is not None:
            counted = sorted(gathering.arrivals) if gathering.slots is None else gathering.slots
            reports = {slot: gathering.arrivals[slot] or Report() for slot in counted}
            hub.steps.append(StepEntry(part.step, self._now, reports, **further))
            hub.shards[0].serve(hub.machine.costs.report_s * len(reports), self._logged)
            hub.drop(part.step - part.kept_steps)
        for reader in gathering.readers:
            self.fetch(reader, gathering, at_server=True)
        gathering.readers = []
        hub.n_calls += 1
        watching, hub.watching = hub.watching, {}
        for reader in watching:
            reader.was_woken = True
            self.look_for(reader)

    def _logged(self) -> None:
        listener = self._hub.listener
        if listener is not None:
            process, ticket = listener
            self._hub.listener = None
            process.wake(ticket)

    def fetch(self, reader: Reader, gathering: Gathering, *, at_server: bool) -> None:
        """Read the frames from every server; at the first server, the command is already queued behind the wait."""
        hub, part, costs = self._hub, reader.part, self._hub.machine.costs
        hub.waiting.pop(reader, None)
        wanted = gathering.read_by(part)
        reader.n_pending = len(wanted) or 1
        if not wanted:
            hub.shards[0].reply(reader.own_link, REPLY_BYTES, self._got, reader)
        for number, count, n_bytes in wanted:
            shard = hub.shards[number]
            cpu_s = costs.command_s * count + costs.out_byte_s * n_bytes
            hub.n_read += count
            if number == 0 and at_server:
                shard.serve(cpu_s, shard.reply, reader.own_link, n_bytes, self._got, reader)
            else:
                delay_s = self._latency_s if at_server else 0.0
                asked = COMMAND_BYTES + KEY_BYTES * count
                answer = (shard.reply, reader.own_link, n_bytes, self._got, reader)
                hub.timeline.after(delay_s, shard.request, reader.own_link, cpu_s, asked, *answer)

    def _got(self, reader: Reader) -> None:
        reader.n_pending -= 1
        if reader.n_pending == 0:
            reader.wake()

    def look_for(self, reader: Reader) -> None:
        """At the first server: reply with those of its frames that are there, then ask the other servers."""
        hub, keys = self._hub, reader.keys or ()
        hub.waiting.pop(reader, None)
        reader.n_seen = hub.n_calls
        by_shard: dict[int, list[int]] = {0: []}
        for number, (_, slot) in enumerate(keys):
            by_shard.setdefault(slot % len(hub.shards), []).append(number)
        reader.n_pending = len(by_shard)
        for shard, numbers in by_shard.items():
            asking_s = hub.machine.costs.command_s * len(numbers)
            if shard == 0:
                hub.shards[0].serve(asking_s, self._answer, reader, 0, numbers)
            else:
                asked = COMMAND_BYTES + KEY_BYTES * len(numbers)
                arguments = (reader.own_link, asking_s, asked, self._answer, reader, shard, numbers)
                hub.timeline.after(self._latency_s, hub.shards[shard].request, *arguments)

    def _answer(self, reader: Reader, shard: int, numbers: list[int]) -> None:
        """At a server: reply with the frames of these ``numbers``."""
        hub, n_bytes, keys = self._hub, 0, reader.keys or ()
        for number in numbers:
            round_id, slot = keys[number]
            gathering = hub.rounds.get(round_id)
            if gathering is not None and slot in gathering.there:
                reader.found[number] = gathering.frames[slot][None]
                n_bytes += len(reader.found[number])
                hub.n_read += 1
        server = hub.shards[shard]
        answer = (server.reply, reader.own_link, n_bytes + REPLY_BYTES, self._got, reader)
        server.serve(hub.machine.costs.out_byte_s * n_bytes, *answer)

    def watch(self, reader: Reader) -> None:
        """At the first server: poll again once another round is complete, or after a timeout."""
        hub = self._hub
        if hub.n_calls > reader.n_seen:
            reader.was_woken = True
            self.look_for(reader)
        else:
            hub.watching[reader] = hub.waiting[reader] = None
            hub.timeline.after(WAIT_POLL_S, self._lapse, reader)

    def _lapse(self, reader: Reader) -> None:
        if reader in self._hub.watching:
            del self._hub.watching[reader]
            self.look_for(reader)
