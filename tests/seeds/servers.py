"""The servers of a simulated run: the coordinator, the bus and the object storage, with latencies and faults.

A request reaches the server after a while, is carried out there whole, and its answer arrives after another while.
Between the two the client may be killed or paused; what was sent is carried out all the same. A client that loses its
connection repeats the request, as those of Redis do.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from mlless_nb.bus.base import MAX_BATCH, check_message
from mlless_nb.errors import ServiceError
from mlless_nb.exchange import Arrival, Closing, Frame, FrameKey, MemoryCoordinator, MemoryHub, RoundRequest, StepEntry
from mlless_nb.function.second_start import SECOND
from mlless_nb.storage.objects import MemoryObjects

from .clock import Clock, Condition, Process, SimThread, current

#: The requests that do not wait at the server.
REQUESTS = (
    *("create", "delete", "now_s", "renew", "alive", "at_work", "settled", "bury", "restart", "roll_back"),
    *("identities", "standing", "release", "hand_over", "read_plan", "announce_checkpoint", "announce_leave"),
    *("announce_hand_over", "announce_stop", "abort", "aborted", "money", "reserve_start", "start_grant", "refund"),
    *("set_cap", "claim"),
    *("publish", "publish_and_poll", "frames", "catch_up", "put_model", "get_model", "announce_quorum"),
)


class WrongError(AssertionError):
    """An invariant does not hold."""


class Network:
    """The way to the servers.

    Parameters
    ----------
    clock : Clock
    draws : random.Random
    latency_s : float
        Mean of one way, seconds; one in a hundred takes thirty times as long.
    repeats : float
        Share of requests that are carried out twice, because the connection was lost before the answer.

    Attributes
    ----------
    away_until : float
        The coordinator's server does not answer before, virtual seconds.
    on_request : callable
        Called with the process and the name of each request that is sent; returns "before" or "after" if the process
        dies of it, before or after the server carries it out.
    """

    def __init__(self, clock: Clock, draws: random.Random, latency_s: float, repeats: float) -> None:
        self.clock, self._draws, self._latency_s, self._repeats = clock, draws, latency_s, repeats
        self.away_until = 0.0
        self.on_request: Callable[[Process, str, tuple[Any, ...]], str] = lambda process, name, arguments: ""
        self.on_done: Callable[[Process, str, tuple[Any, ...], Any], None] = lambda *_: None

    def luck(self) -> float:
        """A number from 0 to 1."""
        return self._draws.random()

    def way_s(self) -> float:
        """Seconds of one way."""
        value = self._draws.random()
        return self._latency_s * (0.5 + value if value < 0.99 else 30.0)

    def call(self, name: str, carry_out: Callable[..., Any], *arguments: Any, coordinates: bool = True) -> Any:
        """The answer of a server to a request of the running thread."""
        thread = current()
        process, clock = thread.process, self.clock
        process.check()
        dies = self.on_request(process, name, arguments)
        if dies == "before":
            process.die()
        ticket = thread.expect()
        at_s = clock.now + self.way_s()
        if coordinates:
            at_s = max(at_s, self.away_until)
        clock.at(at_s, self._serve, thread, ticket, name, carry_out, arguments, dies, self._draws.random())
        error, answer = clock.pause()
        if error is not None:
            raise error
        return answer

    def _serve(
        self,
        thread: SimThread,
        ticket: int,
        name: str,
        carry_out: Callable[..., Any],
        arguments: tuple[Any, ...],
        dies: str,
        luck: float,
    ) -> None:
        if self.away_until > self.clock.now and name not in ("get", "put", "list", "remove"):
            self.clock.at(self.away_until, self._serve, thread, ticket, name, carry_out, arguments, dies, luck)
            return
        error: Exception | None = None
        answer = None
        try:
            answer = carry_out(*arguments)
        except WrongError:
            raise
        except Exception as raised:
            error = raised
        self.on_done(thread.process, name, arguments, error if error is not None else answer)
        if dies:
            thread.process.kill()
        elif luck < self._repeats and error is None:
            again = self.clock.now + self.way_s() + 0.02
            self.clock.at(again, self._serve, thread, ticket, name, carry_out, arguments, dies, 1.0)
        else:
            self.clock.at(self.clock.now + self.way_s(), thread.wake, ticket, (error, answer))


class SimCoordinator(MemoryCoordinator):
    """See `Coordinator`: the one in memory, over the network."""

    generation, steps_ahead = "1", 0

    def __init__(self, hub: MemoryHub, network: Network, witness: Witness, nonce: str) -> None:
        super().__init__(hub, nonce)
        self._network, self._witness = network, witness

    def close(self) -> None:
        """Nothing to release."""

    def reserve(self, nusd: int, least_nusd: int | None = None, request_id: str = "") -> int:
        """See `Coordinator`."""
        plain: Any = super().reserve  # under an id, which the client repeats
        granted: int = self._network.call("reserve", plain, nusd, least_nusd, request_id or uuid.uuid4().hex)
        return granted

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> Closing | None:
        """See `Coordinator`."""
        self._go()
        closing = super().wait(part, pay)
        self._go()
        return closing

    def wait_for_any(self, part: RoundRequest, keys: Sequence[FrameKey], pay: Callable[[], None]) -> list[Frame | None]:
        """See `Coordinator`."""
        self._go()
        found = super().wait_for_any(part, keys, pay)
        self._go()
        return found

    def read_steps(self, timeout_s: float) -> list[StepEntry]:
        """See `Coordinator`."""
        self._go()
        entries = super().read_steps(timeout_s)
        self._go()
        return entries

    def _go(self) -> None:
        self._network.clock.sleep(self._network.way_s())


def _over_network(name: str) -> Callable[..., Any]:
    plain = getattr(MemoryCoordinator, name)

    def method(self: SimCoordinator, *arguments: Any, **named: Any) -> Any:
        if not isinstance(_running(), SimThread):
            return plain(self, *arguments, **named)  # a part of another request, at the server

        def carry_out(*given: Any) -> Any:
            answer = plain(self, *given, **named)
            self._witness.look(self, name, given, answer)
            return answer

        return self._network.call(name, carry_out, *arguments)

    return method


def _running() -> Any:
    import greenlet

    return greenlet.getcurrent()


for _name in REQUESTS:
    setattr(SimCoordinator, _name, _over_network(_name))


class Witness:
    """Watches that no two functions of a slot both publish into one round, and that the budget is kept.

    Parameters
    ----------
    hub : MemoryHub
    most_nusd : float
        The most nano-dollars that a function may settle beyond its grant: its deadline waits for an answer. Infinite if
        functions can neither act nor ask for a while.
    """

    def __init__(self, hub: MemoryHub, most_nusd: float) -> None:
        self._hub, self._most_nusd, self._overrun_nusd = hub, most_nusd, 0
        self._publishers: dict[tuple[int, str, int], str] = {}
        #: Parts under which local functions that replace others return their money. While they start, the driver pays
        #: for who has the slot, which may be somebody else.
        self.replacing: set[int] = set()

    def look(self, log: SimCoordinator, name: str, arguments: tuple[Any, ...], answer: Any) -> None:
        """Look at a request that was carried out."""
        hub = self._hub
        if name == "refund" and arguments[0] < 0:
            self._overrun_nusd -= arguments[0]
            part = arguments[2] if arguments[2:] else 0
            has_slot = hub.claims.get(arguments[1]) == log._nonce
            # A function that is started twice has the money for one.
            may_overrun = part >= SECOND or (part in self.replacing and not has_slot)
            if arguments[0] < -self._most_nusd and not may_overrun:
                raise WrongError(f"a function spent {-arguments[0]} nano-dollars beyond its grant")
        if hub.cap is not None and hub.reserved > hub.cap + self._overrun_nusd and name != "create":
            raise WrongError(f"{hub.reserved} nano-dollars are committed, the cap is {hub.cap} ({name})")
        if name in ("publish", "publish_and_poll") and isinstance(answer, (Arrival, tuple)):
            sent: RoundRequest = arguments[0]
            round_of = log._restart.number, sent.round_id, sent.slot
            first = self._publishers.setdefault(round_of, log._nonce)
            if first != log._nonce:
                raise WrongError(f"both {first} and {log._nonce} published round {round_of}")


class Topics:
    """The topics of one job.

    Parameters
    ----------
    keeps : bool
        Whether a reader gets all messages of a topic from its start, as on Redis Streams; else each message is
        delivered once, and again only if its reader died before it acknowledged it, as on RabbitMQ.
    delay_s : float
        Mean of the time that a message is under way, beside the request's.
    """

    def __init__(self, clock: Clock, draws: random.Random, keeps: bool, delay_s: float) -> None:
        self.clock, self.draws, self.keeps, self.delay_s = clock, draws, keeps, delay_s
        self.changed = Condition(clock)
        self.messages: dict[str, list[tuple[bytes, bytes]]] = {"supervisor": [], "driver": []}  # names and bodies
        self._n_sent = 0
        self.n_lost = {"supervisor": 0, "driver": 0}

    def arrive(self, topic: str, body: bytes) -> None:
        """Queue a message."""
        self._n_sent += 1
        self.messages[topic].append((b"%d" % self._n_sent, body))
        self.changed.notify_all()

    def lose(self) -> None:
        """Lose all messages, as a Redis that is emptied."""
        for topic, messages in self.messages.items():
            self.n_lost[topic] += len(messages)
            messages.clear()


class SimBus:
    """See `Bus`, as one process has it."""

    def __init__(self, topics: Topics, network: Network) -> None:
        self._topics, self._network = topics, network
        self._n_read: dict[str, int] = {}
        self._newest_s = 0.0  # when the newest message arrives that this process has sent
        self._closed = False

    def send(self, topic: str, body: bytes) -> None:
        """See `Bus`."""
        check_message(topic, body)
        if self._closed:
            raise ServiceError("the control bus is closed")
        topics, clock = self._topics, self._topics.clock
        process = current().process
        if topics.keeps:
            self._network.call("send", topics.arrive, topic, bytes(body))
            return
        process.check()
        self._newest_s = max(clock.now + topics.draws.expovariate(1.0 / topics.delay_s), self._newest_s)
        clock.at(self._newest_s, self._deliver, process, topic, bytes(body), self._newest_s)

    def _deliver(self, process: Process, topic: str, body: bytes, sent_s: float) -> None:
        """The message arrives, unless the process died before it had sent it."""
        if process.is_alive or self._closed:
            self._topics.arrive(topic, body)

    def receive(self, topic: str, timeout_s: float) -> list[bytes]:
        """See `Bus`."""
        return [body for _, body in self.receive_named(topic, timeout_s)]

    def receive_named(self, topic: str, timeout_s: float) -> list[tuple[bytes, bytes]]:
        """See `Broker`."""
        topics, clock = self._topics, self._topics.clock
        clock.sleep(self._network.way_s())
        messages = topics.messages[topic]
        if topics.keeps:
            n_read = self._n_read.get(topic, 0)
            topics.changed.wait_for(lambda: topics.n_lost[topic] + len(messages) > n_read, timeout_s)
            first = max(n_read - topics.n_lost[topic], 0)
            batch = messages[first : first + MAX_BATCH]
            self._n_read[topic] = topics.n_lost[topic] + first + len(batch)
            return batch
        topics.changed.wait_for(lambda: messages, timeout_s)
        batch = messages[:MAX_BATCH]
        del messages[: len(batch)]
        if batch:
            clock.at(clock.now + self._network.way_s(), self._acknowledge, current().process, topic, batch)
        return batch

    def _acknowledge(self, process: Process, topic: str, batch: list[tuple[bytes, bytes]]) -> None:
        """Deliver what was received again if its reader died before it acknowledged it."""
        if not process.is_alive and not self._closed:
            self._topics.messages[topic][:0] = batch

    def tells_again(self, topic: str) -> bool:
        """See `Bus`."""
        return self._topics.keeps

    def discard(self, topic: str) -> None:
        """See `Bus`. The newest message that was received stays."""
        topics = self._topics
        n_passed = self._n_read.get(topic, 0) - topics.n_lost[topic] - 1
        if topics.keeps and n_passed > 0 and not self._closed:
            del topics.messages[topic][:n_passed]
            topics.n_lost[topic] += n_passed

    def close(self, *, delete: bool = False) -> int:
        """See `Bus`."""
        if not self._closed and not self._topics.keeps:
            clock = self._topics.clock
            if self._newest_s > clock.now and isinstance(_running(), SimThread):
                clock.sleep(self._newest_s - clock.now + 1e-6)
        self._closed = True
        if delete:
            self._topics.lose()
        return 0


class SimObjects:
    """See `ObjectStore`, as one process has it.

    ``fails``: whether a request fails, as on an overloaded storage; each takes up to ``slow_s`` beside the network's.
    """

    folder = None

    def __init__(self, shared: MemoryObjects, network: Network, fails: Callable[[], bool], slow_s: float = 0.0) -> None:
        self._shared, self._network, self._fails, self._slow_s = shared, network, fails, slow_s
        self.gets = self.puts = 0

    def part_connections(self, *_: str) -> None:
        """Nothing: each process has its own, there are no files, and nothing is left of unfinished writes."""

    open_tally = keep_tally = sweep = part_connections

    def _request(self, name: str, carry_out: Callable[..., Any], *arguments: Any) -> Any:
        if not isinstance(_running(), SimThread):
            return carry_out(*arguments)
        if self._fails():
            self._network.clock.sleep(self._network.way_s())
            raise ServiceError("object storage: slow down (503)")
        if self._slow_s:
            self._network.clock.sleep(self._slow_s * self._network.luck())
        return self._network.call(name, carry_out, *arguments, coordinates=False)

    def count(self, *, gets: int = 0, puts: int = 0) -> None:
        """See `MemoryObjects`."""
        self.gets, self.puts = self.gets + gets, self.puts + puts

    def get(self, key: str, first: int = 0, end: int | None = None) -> bytes:
        """See `ObjectStore`."""
        self.gets += 1
        blob: bytes = self._request("get", self._shared.get, key, first, end)
        return blob

    def put(self, key: str, blob: bytes) -> None:
        """See `ObjectStore`."""
        self.puts += 1
        self._request("put", self._shared.put, key, bytes(blob))

    def list(self, prefix: str) -> list[str]:
        """See `ObjectStore`."""
        self.puts += 1
        keys: list[str] = self._request("list", self._shared.list, prefix)
        return keys

    def sizes(self, prefix: str) -> dict[str, int]:
        """See `MemoryObjects`."""
        return {key: len(self._shared.blobs[key]) for key in self.list(prefix)}

    def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`."""
        if keys:
            self._request("remove", self._shared.delete, list(keys))
