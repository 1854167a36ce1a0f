"""A worker's rounds on Redis: what it publishes, how it waits and what it reads, in as few writes as the servers allow.

A worker that may be ahead of its peers publishes and looks for their frames in one write, too, and goes on with those
that are there. Only when it may not go on does it block, again with the question for the frames behind it.

With one server a round is one write: keep the frames, arrive, block until the round is complete, fetch the peers'
frames. The server carries that out in this order, so whoever is woken finds every frame.

With several, the frames of a slot are kept on its own server and everything else is on the first. A worker arrives once
its own server has answered, so here too whoever is woken finds every frame. (Writing to both at once, and asking again
for a frame that is late, was no quicker with two servers on one machine, and has a case more to get wrong. Where a
round trip takes longer than that, it would save one.)
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import redis

from ...errors import ServiceError
from ..protocol import WAIT_POLL_S, Aborted, Arrival, Exchanged, Frame, FrameKey, Plan, RoundRequest
from .connection import TRIES, PipelinedConnection

#: Seconds between two renewals of the TTL of the job's own keys, which is a day.
REFRESH_S = 600.0
#: A lease is renewed by an arrival once this share of it has passed, and is that much longer.
LEASE_SHARE = 1 / 8
GONE = "the run's data is gone from Redis (was it restarted or flushed?)"
FENCED = "this worker's slot was given to another invocation"
_Result = TypeVar("_Result")


def frame_key(prefix: str, round_id: str, slot: int, receiver: int | None) -> str:
    """Where the frame of ``slot`` for ``receiver`` (None: for all) is kept."""
    return f"{prefix}frame:{round_id}:{slot}" if receiver is None else f"{prefix}frame:{round_id}:{slot}>{receiver}"


def called_off(text: bytes) -> Aborted:
    """The exception of a run that was called off, from what `abort` left: the status, a space, the reason."""
    status, _, reason = text.decode().partition(" ")
    return Aborted(reason, status)


class Rounds:
    """The worker's part of a `Coordinator`: what it does in a round, for one thread.

    Parameters
    ----------
    clients : list of redis.Redis
        One for each server.
    prefix : str
        What every key of the job begins with.
    generation, nonce : str
        See `RedisCoordinator`.
    arrive : str
        The script that arrives at a round.
    ttl_s : int
        Seconds that a key outlives its last use.
    """

    def __init__(
        self, clients: list[redis.Redis], prefix: str, generation: str, nonce: str, arrive: str, ttl_s: int
    ) -> None:
        self._lines = [PipelinedConnection(client) for client in clients]
        self._first = self._lines[0]
        self._prefix, self._generation, self._nonce = prefix, generation, nonce
        self._script, self._sha = arrive, hashlib.sha1(arrive.encode(), usedforsecurity=False).hexdigest()
        self._ttl = str(ttl_s * 1000)
        # Keys of frames by slot, oldest step first.
        self._kept: defaultdict[int, deque[tuple[int, dict[str, None]]]] = defaultdict(deque)
        self._seen = "0"  # the last wake-up call read
        # When the lease and the TTLs were renewed, by slot; and by the arrival that is on its way.
        self._renewed: dict[int, tuple[float, float]] = {}
        self._renewing = (0.0, 0.0)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        for line in self._lines:
            line.close()

    def publish(self, part: RoundRequest) -> Arrival:
        """See `Coordinator`."""
        return self._safely(lambda: self._publish(part))

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> None:
        """See `Coordinator`."""
        self._safely(lambda: self._wait(part, pay))

    def frames(self, part: RoundRequest) -> list[Frame]:
        """See `Coordinator`."""
        return self._safely(lambda: self._fetch(part, {}))

    def exchange(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        """See `Coordinator`."""
        return self._safely(lambda: self._exchange(part, pay))

    def publish_and_poll(self, part: RoundRequest, sought: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        """See `Coordinator`."""
        return self._safely(lambda: self._publish_and_look(part, sought))

    def wait_for_any(
        self, part: RoundRequest, sought: Sequence[FrameKey], pay: Callable[[], None]
    ) -> list[Frame | None]:
        """See `Coordinator`."""
        return self._safely(lambda: self._wait_for_any(part, sought, pay))

    def _safely(self, action: Callable[[], _Result]) -> _Result:
        """Do ``action`` again when a connection was lost on the way; all that is sent may be repeated."""
        seen = self._seen
        for attempt in range(TRIES):
            try:
                return action()
            except (redis.ConnectionError, redis.TimeoutError) as error:
                self._drop()
                self._seen = seen  # the call for this round may have been read already: so it is read again
                if attempt == TRIES - 1:
                    raise ServiceError(f"Redis is gone: {error}") from None
                time.sleep(0.02 * 2**attempt)
            except redis.exceptions.NoScriptError:  # the server was restarted
                self._drop()
                self._load()
            except BaseException:
                self._drop()  # with the replies that nobody reads any more
                raise
        raise ServiceError("Redis forgets the run's scripts: it is restarted over and over")

    def _drop(self) -> None:
        for line in self._lines:
            line.drop()

    def _load(self) -> None:
        try:
            self._first.send([("SCRIPT", "LOAD", self._script)])
            self._first.read()
        except (redis.ConnectionError, redis.TimeoutError):
            self._drop()  # the next try finds out

    # -- publishing

    def _home(self, slot: int) -> PipelinedConnection:
        return self._lines[slot % len(self._lines)]

    def _publish(self, part: RoundRequest) -> Arrival:
        arrival = self._arrive(part, [])
        self._forget(part)
        return arrival

    def _arrive(self, part: RoundRequest, behind: list[tuple[Any, ...]]) -> Arrival:
        """Keep the frames and arrive; the commands ``behind`` follow in the same write, their replies are not read."""
        storing, home = self._storing(part), self._home(part.slot)
        if home is self._first:
            self._first.send([*storing, self._arriving(part), *behind])
            self._read_all(home, storing)
        else:
            if storing:
                home.send(storing)
                self._read_all(home, storing)
            self._first.send([self._arriving(part), *behind])
        return self._learnt(self._first.read(), part)

    @staticmethod
    def _read_all(line: PipelinedConnection, commands: list[tuple[Any, ...]]) -> None:
        for _ in commands:
            line.read()

    def _storing(self, part: RoundRequest) -> list[tuple[Any, ...]]:
        """Commands that keep the frames, if anybody reads them, and drop those that nobody needs any more."""
        commands: list[tuple[Any, ...]] = []
        kept = self._kept[part.slot]
        if part.is_awaited:
            if not kept or kept[-1][0] != part.step:
                kept.append((part.step, {}))
            keys = kept[-1][1]
            for receiver, frame in part.outgoing.items():
                key = frame_key(self._prefix, part.round_id, part.slot, receiver)
                # Not over again when repeated: a twin of this worker cannot replace what was read already.
                commands.append(("SET", key, frame, "NX", "PX", self._ttl))
                keys[key] = None
        newest = part.step - part.kept_steps
        if kept and kept[0][0] <= newest:
            commands.append(("UNLINK", *(key for step, keys in kept if step <= newest for key in keys)))
        return commands

    def _forget(self, part: RoundRequest) -> None:
        kept, newest = self._kept[part.slot], part.step - part.kept_steps
        while kept and kept[0][0] <= newest:
            kept.popleft()

    def _arriving(self, part: RoundRequest) -> tuple[Any, ...]:
        """The command that arrives at a round."""
        now, prefix = time.monotonic(), self._prefix
        leased_at, refreshed_at = self._renewed.get(part.slot, (-math.inf, -math.inf))
        renews, refreshes = now - leased_at >= part.lease_s * LEASE_SHARE, now - refreshed_at >= REFRESH_S
        self._renewing = (now if renews else leased_at, now if refreshes else refreshed_at)
        kept_steps = (part.kept_steps,) if part.staleness else ()
        return (
            "EVALSHA",
            self._sha,
            8,
            f"{prefix}job",
            f"{prefix}arrivals:{part.round_id}",
            f"{prefix}steps",
            f"{prefix}lease:{part.slot}",
            f"{prefix}claim:{part.slot}",
            f"{prefix}lease:supervisor",
            f"{prefix}wake",
            prefix,
            self._generation,
            self._nonce,
            part.round_id,
            part.step,
            part.slot,
            self._lease_ms(part) if renews else 0,
            self._ttl,
            b"" if part.report is None else part.report.encode(),
            part.wanted.nusd,
            part.wanted.least_nusd,
            part.known_plan,
            len(part.publishers),
            int(part.is_awaited),
            int(refreshes),
            *kept_steps,
        )

    @staticmethod
    def _lease_ms(part: RoundRequest) -> int:
        return int(part.lease_s * (1 + LEASE_SHARE) * 1000)

    def _learnt(self, reply: Any, part: RoundRequest) -> Arrival:
        """What the script says; only now is what was sent known to be done."""
        code, told, granted, text = (1, reply, 0, b"") if isinstance(reply, int) else reply
        if code == -3:
            raise called_off(text)
        if code != 1:
            raise Aborted(FENCED if code == -2 else GONE)
        self._renewed[part.slot] = self._renewing
        n_arrived, has_supervisor = divmod(told, 2)
        plan = Plan.decode(text) if text else None
        return Arrival(n_arrived >= len(part.publishers), plan, granted, bool(has_supervisor))

    # -- waiting and reading

    def _exchange(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        peers = part.peers
        if not peers:
            arrival = self._publish(part)
            now = time.monotonic()
            return Exchanged(arrival, [], now, now)
        here = peers if len(self._lines) == 1 else [slot for slot in peers if self._home(slot) is self._first]
        asking = [self._asking(part, here)] if here else []
        arrival = self._arrive(part, [self._watching(), *asking])
        published_at = time.monotonic()
        woken = self._woken(self._first.read())
        complete_at = time.monotonic()
        frames = self._first.read(views=True) if here else []
        self._forget(part)
        if part.round_id.encode() not in woken:
            # Too early, or woken by something else: on with the patient way.
            frames = []
            if not arrival.is_complete:
                self._wait(part, pay, woken)
            complete_at = time.monotonic()
        if len(frames) < len(peers) or None in frames:
            frames = self._fetch(part, dict(zip(here, frames, strict=False)))
        return Exchanged(arrival, frames, published_at, complete_at)

    def _watching(self) -> tuple[Any, ...]:
        """The command that blocks until somebody is woken."""
        return ("XREAD", "BLOCK", int(WAIT_POLL_S * 1000), "STREAMS", f"{self._prefix}wake", self._seen)

    def _woken(self, reply: Any) -> set[bytes]:
        """The rounds that are complete by an answer to `_watching`, and ``b"abort"`` when the run was called off."""
        if not reply:
            return set()
        # A list of streams; where the connection speaks RESP 3, a map.
        entries = reply[0][1] if isinstance(reply[0], list) else reply[1]
        self._seen = entries[-1][0].decode()
        return {fields[1] for _, fields in entries}

    def _wait(self, part: RoundRequest, pay: Callable[[], None], woken: set[bytes] | None = None) -> None:
        give_up_at = time.monotonic() + part.deadline_s
        while True:
            if woken is None:
                self._first.send([self._watching()])
                woken = self._woken(self._first.read())
            if part.round_id.encode() in woken:
                return
            if not woken or b"abort" in woken:
                if self._look(part):
                    return
                self._go_on_waiting(part, pay, give_up_at)
            woken = None

    @staticmethod
    def _go_on_waiting(part: RoundRequest, pay: Callable[[], None], give_up_at: float) -> None:
        pay()
        if time.monotonic() > give_up_at:
            raise Aborted(f"round {part.round_id} did not complete within {part.deadline_s:g} s")

    def _look(self, part: RoundRequest) -> bool:
        """Whether the round is complete by the count, the truth when a call was read and lost; renews the lease.

        Raises
        ------
        Aborted
            The run was called off, or its data is gone.
        """
        prefix = self._prefix
        self._first.send(
            [
                ("HMGET", f"{prefix}job", "generation", "abort"),
                ("HLEN", f"{prefix}arrivals:{part.round_id}"),
                ("SET", f"{prefix}lease:{part.slot}", self._nonce, "PX", self._lease_ms(part)),
            ]
        )
        generation, aborted = self._first.read()
        n_arrived = self._first.read()
        self._first.read()
        if generation is None:
            raise Aborted(GONE)
        if aborted is not None:
            raise called_off(aborted)
        return int(n_arrived) >= len(part.publishers)

    # -- looking for frames of rounds that need not be complete

    def _publish_and_look(self, part: RoundRequest, sought: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        by_line = self._by_line(sought)
        # Should it have to wait for what it does not find, it need not be woken by what was before it looked.
        newest = ("XREVRANGE", f"{self._prefix}wake", "+", "-", "COUNT", 1)
        arrival = self._arrive(part, [newest, *self._looking(sought, by_line[self._first])])
        if entries := self._first.read():
            self._seen = entries[0][0].decode()
        found = self._found(sought, by_line)
        self._forget(part)
        return arrival, found

    def _wait_for_any(
        self, part: RoundRequest, sought: Sequence[FrameKey], pay: Callable[[], None]
    ) -> list[Frame | None]:
        give_up_at = time.monotonic() + part.deadline_s
        by_line = self._by_line(sought)
        while True:
            self._first.send([self._watching(), *self._looking(sought, by_line[self._first])])
            woken = self._woken(self._first.read())
            found = self._found(sought, by_line)
            if any(frame is not None for frame in found):
                return found
            if not woken or b"abort" in woken:
                self._look(part)
                self._go_on_waiting(part, pay, give_up_at)

    def _by_line(self, sought: Sequence[FrameKey]) -> dict[PipelinedConnection, list[int]]:
        """Which of ``sought``, by number, are kept where."""
        by_line: dict[PipelinedConnection, list[int]] = {line: [] for line in self._lines}
        for number, (_, slot) in enumerate(sought):
            by_line[self._home(slot)].append(number)
        return by_line

    def _looking(self, sought: Sequence[FrameKey], numbers: list[int]) -> list[tuple[Any, ...]]:
        """The command, if there is to be one, that asks for the frames of these ``numbers``."""
        keys = [frame_key(self._prefix, *sought[number], None) for number in numbers]
        return [("MGET", *keys)] if keys else []

    def _found(self, sought: Sequence[FrameKey], by_line: dict[PipelinedConnection, list[int]]) -> list[Frame | None]:
        """What is there of ``sought``; the first line was asked already, the others are asked now."""
        for line, numbers in by_line.items():
            if numbers and line is not self._first:
                line.send(self._looking(sought, numbers))
        found: list[Frame | None] = [None] * len(sought)
        for line, numbers in by_line.items():
            if numbers:
                for number, frame in zip(numbers, line.read(views=True), strict=True):
                    found[number] = frame
        return found

    def _asking(self, part: RoundRequest, slots: list[int]) -> tuple[Any, ...]:
        return ("MGET", *(frame_key(self._prefix, part.round_id, slot, part.inbox) for slot in slots))

    def _fetch(self, part: RoundRequest, found: dict[int, Frame | None]) -> list[Frame]:
        """The peers' frames in slot order; those that ``found`` does not know are asked for, of all servers at once."""
        asked: dict[PipelinedConnection, list[int]] = {}
        for slot in part.peers:
            if slot not in found:
                asked.setdefault(self._home(slot), []).append(slot)
        for line, slots in asked.items():
            line.send([self._asking(part, slots)])
        for line, slots in asked.items():
            found.update(zip(slots, line.read(views=True), strict=True))
        lost = [slot for slot in part.peers if found[slot] is None]
        if lost:
            raise Aborted(f"the update of worker {lost[0]} in round {part.round_id} is gone from Redis")
        return [frame for slot in part.peers if (frame := found[slot]) is not None]
