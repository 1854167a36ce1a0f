"""The state of a simulated job's servers: its rounds, its plan, and the workers that wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..exchange import KINDS, Aborted, Arrival, FrameKey, MemoryHub, Past, Plan, RoundRequest
from ..exchange.step_report import Report
from .events import Process
from .machine import Machine
from .shards import FunctionLink, Shard
from .stand_ins import Sized
from .timeline import Timeline


class SharedPlan(Plan):
    """A plan that caches its active slots, because thousands of workers ask for them in every step."""

    def active(self, step: int, n_workers: int) -> list[int]:
        """See `Plan`; not to be changed."""
        known: dict[int, list[int]] = self.__dict__.setdefault("known", {})
        if not self.leaves:
            step = 0
        found = known.get(step)
        if found is None:
            if len(known) > 8:
                known.clear()
            found = known[step] = super().active(step, n_workers)
        return found


class Reader:
    """A worker that waits for a round, or for the frames of ``keys``, and the answers it has so far."""

    __slots__ = (
        *("arrival", "error", "found", "n_pending", "n_seen", "part", "process", "published_at", "reads"),
        *("own_link", "keys", "ticket", "was_woken"),
    )

    def __init__(
        self,
        process: Process,
        own_link: FunctionLink,
        part: RoundRequest,
        reads: bool,
        keys: Sequence[FrameKey] | None = None,
    ) -> None:
        self.process, self.own_link, self.part, self.reads, self.keys = process, own_link, part, reads, keys
        self.found: list[Any] = [None] * len(keys or ())
        self.n_seen = 0  # wake-up messages before its poll
        self.was_woken = False
        self.ticket = process.expect()
        self.arrival: Arrival | None = None
        self.error: Aborted | None = None
        self.published_at = 0.0
        self.n_pending = 0

    def wake(self) -> None:
        self.process.wake(self.ticket)


class Gathering:
    """The state of a round at the servers."""

    __slots__ = (
        "arrivals",
        "complete_at",
        "counts",
        "frames",
        "is_sized",
        "n_bytes",
        "own",
        "readers",
        "slots",
        "stats",
        "there",
    )

    def __init__(self, n_shards: int) -> None:
        self.arrivals: dict[int, Report | None] = {}
        self.frames: dict[int, dict[int | None, Any]] = {}
        self.readers: list[Reader] = []
        self.complete_at: float | None = None
        self.slots: list[int] | None = None  # slots whose frames count, if not all
        self.is_sized = False
        # Bytes and frames kept, by server.
        self.n_bytes, self.counts = [0] * n_shards, [0] * n_shards
        self.own: dict[int, tuple[int, int]] = {}
        self.there: set[int] = set()  # slots whose frames have arrived at their server
        self.stats = (0.0, 0.0, 0.0, 0.0)

    def count_only(self, slots: list[int]) -> None:
        """Only the frames of ``slots`` are read from now on."""
        self.slots, counted = slots, [0.0, 0.0, 0.0, 0.0]
        self.n_bytes, self.counts = [0] * len(self.n_bytes), [0] * len(self.counts)
        for slot in slots:
            n_bytes, count = self.own[slot]
            self.n_bytes[slot % len(self.n_bytes)] += n_bytes
            self.counts[slot % len(self.counts)] += count
            for frame in self.frames[slot].values():
                if isinstance(frame, Sized):
                    counted = [one + more for one, more in zip(counted, frame.stats, strict=True)]
        first, second, third, fourth = counted
        self.stats = first, second, third, fourth

    def keep(self, part: RoundRequest, shard: int) -> None:
        """Keep the frames that a worker publishes."""
        frames: dict[int | None, Any] = dict(part.outgoing)
        n_bytes = count = 0
        for frame in frames.values():
            n_bytes += len(frame)
            if isinstance(frame, Sized):
                self.is_sized = True
                count += frame.count
                if self.slots is not None:
                    continue  # it is late
                mine, more = self.stats, frame.stats
                self.stats = mine[0] + more[0], mine[1] + more[1], mine[2] + more[2], mine[3] + more[3]
            else:
                count += 1
        self.frames[part.slot], self.own[part.slot] = frames, (n_bytes, count)
        if self.slots is not None:
            return
        self.n_bytes[shard] += n_bytes
        self.counts[shard] += count

    def read_by(self, part: RoundRequest) -> list[tuple[int, int, float]]:
        """(server, frames, bytes) that the worker of ``part`` reads."""
        n_shards, slot = len(self.counts), part.slot
        is_read = self.slots is None or slot in self.slots
        own_bytes, own_count = self.own.get(slot, (0, 0)) if is_read else (0, 0)
        wanted: list[tuple[int, int, float]] = []
        if part.parts is not None and not self.is_sized:
            by_shard: dict[int, tuple[int, int]] = {}
            for peer in part.peers:
                count, n_bytes = by_shard.get(peer % n_shards, (0, 0))
                by_shard[peer % n_shards] = count + 1, n_bytes + len(self.frames[peer][slot])
            return [(number, *sizes) for number, sizes in sorted(by_shard.items())]
        # Parts are only counted, so each peer gets the same share of them.
        share = 1.0 if part.parts is None else 1.0 / max(len(part.publishers) - 1, 1)
        for number in range(n_shards):
            is_home = number == slot % n_shards
            count = self.counts[number] - (own_count if is_home else 0)
            if count:
                n_bytes = self.n_bytes[number] - (own_bytes if is_home else 0)
                wanted.append((number, round(count * share), n_bytes * share))
        return wanted


class SimulatedHub(MemoryHub):
    """The state that the coordinators of one simulated job share: its servers and the data on them."""

    def __init__(self, timeline: Timeline, machine: Machine, shards: list[Shard]) -> None:
        super().__init__()
        self.timeline, self.machine, self.shards = timeline, machine, shards
        self.plan = SharedPlan()
        self.rounds: dict[str, Gathering] = {}
        self.waiting: dict[Reader, None] = {}
        self.watching: dict[Reader, None] = {}  # workers that block until one of their frames is there
        self.n_calls = 0  # wake-up messages: completed rounds
        self.listener: tuple[Process, int] | None = None  # the process that waits for a step's end
        #: Frames kept, and frames read.
        self.n_kept = self.n_read = 0

    def create(self, cap: int | None, reserved: int, past: Past) -> None:
        """See `MemoryHub`."""
        super().create(cap, reserved, past._replace(plan=SharedPlan(**vars(past.plan))))

    def gathering(self, round_id: str) -> Gathering:
        """The round called ``round_id``."""
        found = self.rounds.get(round_id)
        if found is None:
            found = self.rounds[round_id] = Gathering(len(self.shards))
        return found

    def drop(self, step: int) -> None:
        """Delete the rounds of ``step``, and the grants made in them."""
        for kind in KINDS:
            gone = self.rounds.pop(f"{step}{kind}", None)
            for slot in gone.arrivals if gone is not None else ():
                self.grants.pop((f"{step}{kind}", slot), None)

    def wake_all(self) -> None:
        """Wake all waiting processes."""
        for reader in self.waiting:
            self.timeline.at(self.timeline.now, reader.wake)
        self.waiting.clear()
        self.watching.clear()
