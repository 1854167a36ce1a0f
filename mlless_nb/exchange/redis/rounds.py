"""A worker's rounds on Redis: what it publishes, how it waits and what it reads, in as few writes as the servers allow.

A worker that may be ahead of its peers publishes and looks for their frames in one write, too, and goes on with those
that are there. Only when it may not go on does it block, again with the question for the frames behind it.

With one server a round is one write: keep the frames, arrive, block until the round is complete, fetch the peers'
frames. The server carries that out in this order, so whoever is woken finds every frame.

With several, the frames of a slot are kept on its own server and everything else is on the first. A worker arrives once
its own server has answered, so here too whoever is woken finds every frame. (Writing to both at once, and asking again
for a frame that is late, was no quicker with two servers on one machine, and has a case more to get wrong. Where a
round trip takes longer than that, it would save one.)

A round that is complete before all have arrived is two writes or three: whose frames count is known only then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import redis

from ...errors import ServiceError
from ..protocol import WAIT_POLL_S, Aborted, Arrival, Exchanged, Frame, FrameKey, RoundRequest
from .arrivals import Arrivals
from .connection import TRIES, PipelinedConnection
from .frames import Command, Frames, Search

_Result = TypeVar("_Result")


class Rounds:
    """The worker's part of a `Coordinator`: what it does in a round, for one thread.

    Parameters
    ----------
    clients : list of redis.Redis
        One for each server.
    prefix : str
        What every key of the job begins with.
    arrivals : Arrivals
    ttl_s : int
        Seconds that a key outlives its last use.
    """

    def __init__(self, clients: list[redis.Redis], prefix: str, arrivals: Arrivals, ttl_s: int) -> None:
        self._lines = [PipelinedConnection(client) for client in clients]
        self._first = self._lines[0]
        self._prefix, self._arrivals = prefix, arrivals
        self._frames = Frames(self._lines, prefix, ttl_s)
        self._seen = "0"  # the last wake-up call read

    def close(self) -> None:
        """Close the connections. Idempotent."""
        for line in self._lines:
            line.close()

    def publish(self, part: RoundRequest) -> Arrival:
        """See `Coordinator`."""
        return self._safely(lambda: self._publish(part))

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> list[int] | None:
        """See `Coordinator`."""
        return self._safely(lambda: self._wait(part, pay))

    def frames(self, part: RoundRequest, slots: list[int] | None = None) -> list[Frame]:
        """See `Coordinator`."""
        return self._safely(lambda: self._frames.fetch(part, part.read_slots(slots), {}))

    def exchange(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        """See `Coordinator`."""
        exchange = self._exchange_with_the_first if part.quorum else self._exchange
        return self._safely(lambda: exchange(part, pay))

    def publish_and_poll(self, part: RoundRequest, sought: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        """See `Coordinator`."""
        return self._safely(lambda: self._publish_and_poll(part, sought))

    def wait_for_any(
        self, part: RoundRequest, sought: Sequence[FrameKey], pay: Callable[[], None]
    ) -> list[Frame | None]:
        """See `Coordinator`."""
        return self._safely(lambda: self._wait_for_any(part, sought, pay))

    def look(self, part: RoundRequest) -> bool:
        """Whether the round is complete now; renews the lease. `Aborted` where the run was called off."""
        return self._safely(lambda: self._look(part))[0]

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
            self._first.send([("SCRIPT", "LOAD", self._arrivals.script)])
            self._first.read()
        except (redis.ConnectionError, redis.TimeoutError):
            self._drop()  # the next try finds out

    # -- publishing

    def _publish(self, part: RoundRequest) -> Arrival:
        arrival = self._arrive(part, [])
        self._frames.forget(part)
        return arrival

    def _arrive(self, part: RoundRequest, behind: list[Command]) -> Arrival:
        """Keep the frames and arrive; the commands ``behind`` follow in the same write, their replies are not read."""
        storing, home = self._frames.storing(part), self._frames.home(part.slot)
        arriving = self._arrivals.command(part)
        if home is self._first:
            self._first.send([*storing, arriving, *behind])
            self._read_all(home, storing)
        else:
            if storing:
                home.send(storing)
                self._read_all(home, storing)
            self._first.send([arriving, *behind])
        return self._arrivals.learnt(self._first.read(), part)

    @staticmethod
    def _read_all(line: PipelinedConnection, commands: list[Command]) -> list[Any]:
        return [line.read() for _ in commands]

    # -- waiting and reading

    def _exchange(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        peers = part.peers
        if not peers:
            arrival = self._publish(part)
            now = time.monotonic()
            return Exchanged(arrival, [], now, now, part.publishers)
        here = self._frames.at_first(peers)
        asking = [self._frames.asking(part, here)] if here else []
        arrival = self._arrive(part, [self._watching(), *asking])
        published_at = time.monotonic()
        woken = self._woken(self._first.read())
        complete_at = time.monotonic()
        frames = self._first.read(views=True) if here else []
        self._frames.forget(part)
        if part.round_id.encode() not in woken:
            # Too early, or woken by something else: on with the patient way.
            frames = []
            if not arrival.is_complete:
                self._wait(part, pay, woken)
            complete_at = time.monotonic()
        if len(frames) < len(peers) or None in frames:
            frames = self._frames.fetch(part, peers, dict(zip(here, frames, strict=False)))
        return Exchanged(arrival, frames, published_at, complete_at, part.publishers)

    def _exchange_with_the_first(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        arrival = self._publish(part)
        published_at, slots = time.monotonic(), arrival.slots
        if not arrival.is_complete:
            slots = self._wait(part, pay)
        complete_at = time.monotonic()
        frames = self._frames.fetch(part, part.read_slots(slots), {})
        return Exchanged(arrival, frames, published_at, complete_at, part.publishers if slots is None else slots)

    def _watching(self) -> Command:
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

    def _wait(self, part: RoundRequest, pay: Callable[[], None], woken: set[bytes] | None = None) -> list[int] | None:
        give_up_at = time.monotonic() + part.deadline_s
        while True:
            if woken is None:
                self._first.send([self._watching()])
                woken = self._woken(self._first.read())
            is_called = part.round_id.encode() in woken
            if is_called and not part.quorum:
                return None
            if is_called or not woken or b"abort" in woken:
                is_complete, slots = self._look(part)
                if is_complete:
                    return slots
                self._go_on_waiting(part, pay, give_up_at)
            woken = None

    @staticmethod
    def _go_on_waiting(part: RoundRequest, pay: Callable[[], None], give_up_at: float) -> None:
        pay()
        if time.monotonic() > give_up_at:
            raise Aborted(f"round {part.round_id} did not complete within {part.deadline_s:g} s")

    def _look(self, part: RoundRequest) -> tuple[bool, list[int] | None]:
        """Whether the round is complete by the count, the truth when a call was lost, and whose frames count."""
        looking = self._arrivals.looking(part)
        self._first.send(looking)
        return self._arrivals.seen(self._read_all(self._first, looking), part)

    # -- looking for frames of rounds that need not be complete

    def _publish_and_poll(self, part: RoundRequest, sought: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        search = Search(self._frames, self._prefix, sought)
        # Should it have to wait for what it does not find, it need not be woken by what was before it looked.
        newest = ("XREVRANGE", f"{self._prefix}wake", "+", "-", "COUNT", 1)
        arrival = self._arrive(part, [newest, *search.asking(self._first)])
        if entries := self._first.read():
            self._seen = entries[0][0].decode()
        found = search.found(self._first)
        self._frames.forget(part)
        return arrival, found

    def _wait_for_any(
        self, part: RoundRequest, sought: Sequence[FrameKey], pay: Callable[[], None]
    ) -> list[Frame | None]:
        give_up_at = time.monotonic() + part.deadline_s
        search = Search(self._frames, self._prefix, sought)
        while True:
            self._first.send([self._watching(), *search.asking(self._first)])
            woken = self._woken(self._first.read())
            found = search.found(self._first)
            if any(frame is not None for frame in found):
                return found
            if not woken or b"abort" in woken:
                self._look(part)
                self._go_on_waiting(part, pay, give_up_at)
