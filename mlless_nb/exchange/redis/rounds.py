"""A worker's rounds on Redis: publishing, waiting and reading in as few writes as the servers allow.

With one server, a round is one write: store the frames, arrive, block until the round is complete, read the peers'
frames. The server carries these commands out in order, so a worker that is woken finds every frame.

With several servers, the frames of a slot are kept on that slot's server and everything else is on the first. A worker
arrives once its own server has answered, so here too a worker that is woken finds every frame. (Writing to both servers
at once, and reading a late frame again, was no faster with two servers on one machine, and is more complex. Over a slow
link it would save one round trip.)

With bounded staleness, a worker publishes and polls for its peers' frames in one write, and continues with those that
are published. Only at the staleness bound does it block, with the poll in the same write.

With a quorum, a round takes two or three writes: the slots whose frames count are known only when it is complete. A
worker that waits looks by arriving once more, which also completes a round that was held up by a worker too far behind.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import redis

from ...errors import ServiceError
from ..frame_count import FrameCounter
from ..in_parts import exchange_in_parts
from ..protocol import (
    MODEL,
    WAIT_POLL_S,
    Arrival,
    Closing,
    Exchanged,
    Frame,
    FrameKey,
    RoundRequest,
    frame_key,
)
from ..restarts import Aborted, Restart, RoundEnded, rounds_prefix
from .arrivals import Arrivals
from .connection import PATIENCE_S, PAUSES_S, PipelinedConnection
from .frames import Command, Frames, Search

_Result = TypeVar("_Result")


class Rounds:
    """The worker's part of a `Coordinator`: the methods of a round, for one thread.

    Parameters
    ----------
    clients : list of redis.Redis
        One for each server.
    prefix : str
        Prefix of every key of the job.
    arrivals : Arrivals
    ttl_s : int
        Seconds until an unused key expires.
    """

    def __init__(self, clients: list[redis.Redis], prefix: str, arrivals: Arrivals, ttl_s: int) -> None:
        self._lines = [PipelinedConnection(client) for client in clients]
        self._first = self._lines[0]
        self._prefix = self._round_prefix = prefix
        self._arrivals, self._ttl_s = arrivals, ttl_s
        self._frames = Frames(self._lines, prefix, ttl_s)
        self._counter = FrameCounter()
        #: See `CountsFrames`; bound, as it is called in every step. Requests that were repeated count once.
        self.frame_count = self._counter.frame_count
        self._seen = "0"  # id of the last wake-up message read

    def join(self, restart: Restart) -> None:
        """See `Coordinator`."""
        self._round_prefix = rounds_prefix(self._prefix, restart)
        self._arrivals.join(restart)
        self._frames.join(self._round_prefix)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        for line in self._lines:
            line.close()

    def _count(self, part: RoundRequest) -> None:
        """Count what ``part`` has published, see `Frames.storing`."""
        if part.is_awaited:
            self._counter.put(part.outgoing.values())

    def publish(self, part: RoundRequest) -> Arrival:
        """See `Coordinator`."""
        arrival = self._safely(lambda: self._publish(part))
        self._count(part)
        return arrival

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> Closing | None:
        """See `Coordinator`."""
        return self._safely(lambda: self._wait(part, pay))

    def frames(self, part: RoundRequest, slots: list[int] | None = None) -> list[Frame]:
        """See `Coordinator`."""
        return self._counter.got(self._safely(lambda: self._frames.fetch(part, part.read_slots(slots), {})))

    def exchange(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        """See `Coordinator`."""
        if part.quorum:
            return exchange_in_parts(self, part, pay)  # whose frames count is known only once it is complete
        done = self._safely(lambda: self._exchange(part, pay))
        put = (part.frame,) if part.parts is None else part.outgoing.values()
        self._counter.exchanged(put if part.is_awaited else (), done.frames)
        return done

    def publish_and_poll(self, part: RoundRequest, keys: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        """See `Coordinator`."""
        arrival, found = self._safely(lambda: self._publish_and_poll(part, keys))
        self._count(part)
        return arrival, self._counter.got(found)

    def wait_for_any(self, part: RoundRequest, keys: Sequence[FrameKey], pay: Callable[[], None]) -> list[Frame | None]:
        """See `Coordinator`."""
        return self._counter.got(self._safely(lambda: self._wait_for_any(part, keys, pay)))

    def catch_up(self, part: RoundRequest) -> tuple[Arrival, list[Closing]]:
        """See `Coordinator`."""
        return self._safely(lambda: self._catch_up(part))

    def _catch_up(self, part: RoundRequest) -> tuple[Arrival, list[Closing]]:
        return self._arrivals.caught_up(self._ask(self._arrivals.catching_up(part)), part)

    def put_model(self, frame: bytes) -> None:
        """See `Coordinator`."""
        self._safely(lambda: self._ask(("SET", frame_key(self._round_prefix, *MODEL), frame, "EX", self._ttl_s)))
        self._counter.put([frame])

    def get_model(self) -> Frame | None:
        """See `Coordinator`."""
        found: Frame | None = self._safely(lambda: self._ask(("GET", frame_key(self._round_prefix, *MODEL))))
        return self._counter.got([found])[0]

    def _ask(self, command: Command) -> Any:
        """The first server's reply to ``command``."""
        self._first.send([command])
        return self._first.read()

    def poll(self, part: RoundRequest) -> bool:
        """Whether the round is complete now; renews the lease. Raises `Aborted` if the run was aborted."""
        return self._safely(lambda: self._poll(part))[0]

    def arrived(self, round_ids: Sequence[str]) -> set[FrameKey]:
        """The slots that have arrived at each of the rounds."""
        return self._safely(lambda: self._arrived(round_ids))

    def _arrived(self, round_ids: Sequence[str]) -> set[FrameKey]:
        asking: list[Command] = [("HKEYS", f"{self._round_prefix}arrivals:{round_id}") for round_id in round_ids]
        self._first.send(asking)
        replies = zip(round_ids, self._read_all(self._first, asking), strict=True)
        return {(round_id, int(slot)) for round_id, slots in replies for slot in slots if slot.isdigit()}

    def _safely(self, action: Callable[[], _Result]) -> _Result:
        """Do ``action``, and repeat it if a connection was lost; all commands are safe to repeat."""
        seen, pauses = self._seen, iter(PAUSES_S)
        give_up_at = math.inf  # from the first failure on
        while True:
            try:
                return action()
            except (redis.ConnectionError, redis.TimeoutError, redis.exceptions.NoScriptError) as error:
                self._drop()
                self._seen = seen  # this round's wake-up may have been read already: read it again
                now = time.monotonic()
                give_up_at = min(give_up_at, now + PATIENCE_S)
                if now >= give_up_at:
                    raise ServiceError(f"Redis is gone: {error}") from None
                if isinstance(error, redis.exceptions.NoScriptError):  # the server was restarted
                    self._load()
                else:
                    time.sleep(next(pauses, PAUSES_S[-1]))
            except BaseException:
                self._drop()  # with the replies that were not read
                raise

    def _drop(self) -> None:
        for line in self._lines:
            line.drop()

    def _load(self) -> None:
        try:
            loading: list[Command] = [("SCRIPT", "LOAD", script) for script in self._arrivals.scripts]
            self._first.send(loading)
            self._read_all(self._first, loading)
        except (redis.ConnectionError, redis.TimeoutError):
            self._drop()  # the next try reports it

    # -- publishing

    def _publish(self, part: RoundRequest) -> Arrival:
        arrival = self._arrive(part, [])
        self._frames.forget(part)
        return arrival

    def _arrive(self, part: RoundRequest, behind: list[Command]) -> Arrival:
        """Store the frames and arrive; the commands ``behind`` are sent in the same write, without reading replies."""
        storing, home = self._frames.storing(part), self._frames.home(part.slot)
        arriving = self._arrivals.command(part)
        if home is self._first:
            self._first.send([*storing, arriving, *behind])
            for _ in storing:
                home.read()
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
        try:
            frames, complete_at = self._read_round(part, pay, here, is_complete=arrival.is_complete)
        except RoundEnded as error:
            error.keep_grant(arrival.granted_nusd)
            raise
        return Exchanged(arrival, frames, published_at, complete_at, part.publishers)

    def _read_round(
        self, part: RoundRequest, pay: Callable[[], None], here: list[int], *, is_complete: bool
    ) -> tuple[list[Frame], float]:
        """The frames of a round that this worker has arrived at, and when it was complete; ``here`` were asked for."""
        peers = part.peers
        woken = self._woken(self._first.read())
        complete_at = time.monotonic()
        frames = self._first.read(views=True) if here else []
        self._frames.forget(part)
        if part.round_id.encode() not in woken:
            # The block timed out, or another round woke this worker: wait in a loop, and read the frames afterwards.
            frames = []
            if not is_complete:
                self._wait(part, pay, woken)
            complete_at = time.monotonic()
        if len(frames) < len(peers) or None in frames:
            frames = self._frames.fetch(part, peers, dict(zip(here, frames, strict=False)))
        return frames, complete_at

    def _watching(self) -> Command:
        """The command that blocks until the next wake-up message."""
        return ("XREAD", "BLOCK", int(WAIT_POLL_S * 1000), "STREAMS", f"{self._prefix}wake", self._seen)

    def _woken(self, reply: Any) -> set[bytes]:
        """The rounds that are complete by a reply to `_watching`, and ``b"abort"`` if the run was aborted."""
        if not reply:
            return set()
        # A list of streams; with RESP 3, a map.
        entries = reply[0][1] if isinstance(reply[0], list) else reply[1]
        self._seen = entries[-1][0].decode()
        return {fields[1] for _, fields in entries}

    def _wait(self, part: RoundRequest, pay: Callable[[], None], woken: set[bytes] | None = None) -> Closing | None:
        give_up_at = time.monotonic() + part.deadline_s
        while True:
            if woken is None:
                self._first.send([self._watching()])
                woken = self._woken(self._first.read())
            is_called = part.round_id.encode() in woken
            if is_called and not part.quorum:
                return None
            if is_called or not woken or b"abort" in woken:
                is_complete, closing = self._poll(part)
                if is_complete:
                    return closing
                self._go_on_waiting(part, pay, give_up_at)
            woken = None

    @staticmethod
    def _go_on_waiting(part: RoundRequest, pay: Callable[[], None], give_up_at: float) -> None:
        pay()
        if time.monotonic() > give_up_at:
            raise Aborted(f"round {part.round_id} did not complete within {part.deadline_s:g} s")

    def _poll(self, part: RoundRequest) -> tuple[bool, Closing | None]:
        """Whether the round is complete by its arrivals (a wake-up may be lost), and how a round of a quorum ended."""
        if part.quorum:
            self._first.send([self._arrivals.command(part)])
            arrival = self._arrivals.learnt(self._first.read(), part)
            return arrival.is_complete, arrival.closing
        polling = self._arrivals.polling(part)
        self._first.send(polling)
        return self._arrivals.seen(self._read_all(self._first, polling), part), None

    # -- polling for frames of rounds that need not be complete

    def _publish_and_poll(self, part: RoundRequest, keys: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        search = Search(self._frames, self._round_prefix, keys)
        # If the worker has to wait afterwards, wake-up messages older than this poll must not wake it.
        newest = ("XREVRANGE", f"{self._prefix}wake", "+", "-", "COUNT", 1)
        arrival = self._arrive(part, [newest, *search.asking(self._first)])
        if entries := self._first.read():
            self._seen = entries[0][0].decode()
        found = search.found(self._first)
        self._frames.forget(part)
        return arrival, found

    def _wait_for_any(
        self, part: RoundRequest, keys: Sequence[FrameKey], pay: Callable[[], None]
    ) -> list[Frame | None]:
        give_up_at = time.monotonic() + part.deadline_s
        search = Search(self._frames, self._round_prefix, keys)
        while True:
            self._first.send([self._watching(), *search.asking(self._first)])
            woken = self._woken(self._first.read())
            found = search.found(self._first)
            if any(frame is not None for frame in found):
                return found
            if not woken or b"abort" in woken:
                self._poll(part)
                self._go_on_waiting(part, pay, give_up_at)
