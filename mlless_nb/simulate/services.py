"""The control bus, the object storage and the minibatches in virtual time."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from ..bus.base import MAX_BATCH, TOPICS
from ..data.bundle import decode_index
from ..data.minibatches import Minibatch, decode_minibatch
from ..data.prepare import Manifest
from ..data.read_plan import Run, Runs
from ..storage.objects import MemoryObjects
from .events import Process
from .machine import Machine
from .stand_ins import Rows
from .timeline import Timeline
from .workload import Workload


class Topics:
    """The topics that the simulated buses of one job share."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.messages: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
        self.listeners: dict[str, tuple[Process, int]] = {}

    def send(self, topic: str, body: bytes) -> None:
        """Put ``body`` on ``topic`` and wake its reader."""
        self.messages[topic].append(body)
        listener = self.listeners.pop(topic, None)
        if listener is not None:
            process, ticket = listener
            self.timeline.at(self.timeline.now, process.wake, ticket)


class SimulatedBus:
    """See `Bus`; messages arrive at once."""

    def __init__(self, topics: Topics, process: Process, machine: Machine) -> None:
        self._topics, self._process, self._machine = topics, process, machine
        self._n_read = dict.fromkeys(topics.messages, 0)

    def send(self, topic: str, body: bytes) -> None:
        """See `Bus`."""
        self._process.clock()  # after all work that was added before
        self._topics.send(topic, body)

    def receive(self, topic: str, timeout_s: float) -> list[bytes]:
        """See `Bus`."""
        messages, process = self._topics.messages[topic], self._process
        if topic == "supervisor":  # once in each pass of its loop
            process.spend(self._machine.costs.look_s)
        if timeout_s > 0:
            process.clock()
            if len(messages) <= self._n_read[topic]:
                self._topics.listeners[topic] = (process, process.expect())
                process.pause(timeout_s)
                self._topics.listeners.pop(topic, None)
        first = self._n_read[topic]
        batch = messages[first : first + MAX_BATCH]
        self._n_read[topic] = first + len(batch)
        return batch

    def tells_again(self, topic: str) -> bool:
        """See `Bus`."""
        return True

    def discard(self, topic: str) -> None:
        """See `Bus`."""

    def close(self, *, delete: bool = False) -> int:
        """See `Bus`."""
        return 0


class SimulatedObjects:
    """See `ObjectStore`; its objects are shared, and requests count for one process and take its time."""

    def __init__(self, shared: MemoryObjects, process: Process, machine: Machine, workload: Workload | None) -> None:
        self.shared, self.process, self.workload = shared, process, workload
        self._storage = machine.storage
        self.gets = 0
        self.puts = 0

    def request_s(self, n_bytes: int) -> float:
        """Duration of a request of ``n_bytes``, seconds."""
        return self._storage.latency_s + n_bytes / self._storage.bytes_s

    def get(self, key: str, first: int = 0, end: int | None = None) -> bytes:
        """See `ObjectStore`."""
        self.gets += 1
        blob = self.shared.blobs[key] if end is None else self.shared.blobs[key][first:end]
        self._take(self.request_s(len(blob)))
        return blob

    def put(self, key: str, blob: bytes) -> None:
        """See `ObjectStore`; a table without data is not kept."""
        self.puts += 1
        self._take(self.request_s(len(blob)))
        if self.workload is None:
            self.shared.blobs[key] = bytes(blob)

    def list(self, prefix: str) -> list[str]:
        """See `ObjectStore`."""
        self.puts += 1
        self._take(self.request_s(0))
        return self.shared.list(prefix)

    def delete(self, keys: Any) -> None:
        """See `ObjectStore`."""
        self.shared.delete(keys)

    def _take(self, seconds: float) -> None:
        self.process.clock()
        self.process.sleep(seconds)


class SimulatedFeed:
    """See `MinibatchFeed`: one request at a time runs in parallel with the worker, and what was read is kept."""

    has_all = False

    def __init__(self, objects: SimulatedObjects, manifest: Manifest, decoded: dict[str, Minibatch]) -> None:
        self._objects, self._manifest, self._decoded = objects, manifest, decoded
        self._runs = Runs(manifest)
        self._there_at: dict[Run, float] = {}  # of requested runs
        self._indexed: set[int] = set()
        self._free_at = 0.0

    def expect(self, indices: Iterable[int]) -> None:
        """See `MinibatchFeed`."""
        self._runs.expect(indices, list(self._there_at))

    def get(self, index: int) -> Any:
        """See `MinibatchFeed`."""
        now = self._objects.process.clock()
        there_at = self._begin(self._runs.of(index), now)
        if there_at > now:
            self._objects.process.sleep(there_at - now)
        return self._read(index)

    def has(self, index: int) -> bool:
        """See `MinibatchFeed`."""
        there_at = self._there_at.get(self._runs.of(index))
        return there_at is not None and there_at <= self._objects.process.clock()

    def prefetch(self, index: int) -> None:
        """See `MinibatchFeed`."""
        now, run = self._objects.process.clock(), self._runs.of(index)
        following = self._runs.after(run)
        if self._begin(run, now) <= now and following is not None:
            self._begin(following, now)

    def n_gets(self, indices: Collection[int]) -> int:
        """See `MinibatchFeed`."""
        runs = {self._runs.of(index) for index in indices}
        following = {self._runs.after(run) for run in runs}
        unread = {run for run in runs | following if run is not None and run not in self._there_at}
        return len(unread) + len({run.bundle for run in unread} - self._indexed)

    def _begin(self, run: Run, now: float) -> float:
        """Request ``run`` unless that was done; returns the time when it is read."""
        if run not in self._there_at:
            objects, seconds = self._objects, 0.0
            if run.bundle not in self._indexed:
                self._indexed.add(run.bundle)
                objects.gets += 1
                seconds += objects.request_s(0)
            objects.gets += 1
            seconds += objects.request_s(self._runs.n_bytes(run))
            self._free_at = self._there_at[run] = max(now, self._free_at) + seconds
        return self._there_at[run]

    def _read(self, index: int) -> Any:
        manifest = self._manifest
        if self._objects.workload is not None:
            return Rows(min(manifest.size, manifest.n - index * manifest.size))
        key = f"{manifest.key}/{index}"
        if key not in self._decoded:
            blob = self._objects.shared.blobs[manifest.object_key(manifest.bundle_of(index))]
            part = decode_index(blob, manifest.minibatch_bytes).part(blob, 0, index)
            self._decoded[key] = decode_minibatch(part, manifest.n_ids)
        return self._decoded[key]

    def close(self) -> None:
        """See `MinibatchFeed`."""
