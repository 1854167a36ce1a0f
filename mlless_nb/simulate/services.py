"""The control bus, the object storage and the minibatches in virtual time."""

from __future__ import annotations

from typing import Any

from ..channels.base import MAX_BATCH, TOPICS
from ..data.minibatches import Minibatch, decode_minibatch
from ..data.prepare import Manifest
from ..objects import MemoryObjects
from .events import Process, Timeline
from .machine import Machine
from .replicas import Rows
from .workload import Workload


class Topics:
    """What the simulated buses of one job share."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.messages: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
        self.listeners: dict[str, tuple[Process, int]] = {}

    def send(self, topic: str, body: bytes) -> None:
        """Put ``body`` on ``topic`` and wake whoever listens."""
        self.messages[topic].append(body)
        listener = self.listeners.pop(topic, None)
        if listener is not None:
            process, ticket = listener
            self.timeline.at(self.timeline.now, process.wake, ticket)


class SimulatedBus:
    """See `Bus`; messages are there at once."""

    def __init__(self, topics: Topics, process: Process, machine: Machine) -> None:
        self._topics, self._process, self._machine = topics, process, machine
        self._n_read = dict.fromkeys(topics.messages, 0)

    def send(self, topic: str, body: bytes) -> None:
        """See `Bus`."""
        self._process.clock()  # no earlier than what was computed before
        self._topics.send(topic, body)

    def receive(self, topic: str, timeout_s: float) -> list[bytes]:
        """See `Bus`."""
        messages, process = self._topics.messages[topic], self._process
        if topic == "supervisor":  # once in every look around
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

    def close(self, *, delete: bool = False) -> None:
        """See `Bus`."""


class SimulatedObjects:
    """See `ObjectStore`; what it holds is shared, requests are counted for one process and take its time."""

    def __init__(self, shared: MemoryObjects, process: Process, machine: Machine, workload: Workload | None) -> None:
        self.shared, self.process, self.workload = shared, process, workload
        self._storage = machine.storage
        self.gets = 0
        self.puts = 0

    def request_s(self, n_bytes: int) -> float:
        """Seconds of moving ``n_bytes``."""
        return self._storage.latency_s + n_bytes / self._storage.bytes_s

    def get(self, key: str) -> bytes:
        """See `ObjectStore`."""
        self.gets += 1
        blob = self.shared.blobs[key]
        self._take(self.request_s(len(blob)))
        return blob

    def put(self, key: str, blob: bytes) -> None:
        """See `ObjectStore`; a table that only has a size is not kept."""
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
    """See `MinibatchFeed`: one request at a time goes on beside the worker, and what was read is kept."""

    def __init__(
        self, objects: SimulatedObjects, manifest: Manifest, n_rows: int, decoded: dict[str, Minibatch]
    ) -> None:
        self._objects, self._manifest, self._n_rows, self._decoded = objects, manifest, n_rows, decoded
        self._kept: dict[int, Any] = {}
        self._ahead: dict[int, float] = {}  # when it will be there
        self._free_at = 0.0

    def get(self, index: int) -> Any:
        """See `MinibatchFeed`."""
        kept = self._kept.get(index)
        if kept is None:
            process = self._objects.process
            now = process.clock()
            there_at = self._ahead.pop(index, None)
            if there_at is None:
                there_at = now + self._begin(index)
            if there_at > now:
                process.sleep(there_at - now)
            kept = self._kept[index] = self._read(index)
        return kept

    def has(self, index: int) -> bool:
        """See `MinibatchFeed`."""
        return index in self._kept

    def prefetch(self, index: int) -> None:
        """See `MinibatchFeed`."""
        if index not in self._kept and index not in self._ahead:
            now = self._objects.process.clock()
            self._free_at = self._ahead[index] = max(now, self._free_at) + self._begin(index)

    def _begin(self, index: int) -> float:
        """Count a request for minibatch ``index``; its seconds."""
        self._objects.gets += 1
        workload = self._objects.workload
        if workload is not None:
            return self._objects.request_s(workload.minibatch_bytes)
        return self._objects.request_s(len(self._objects.shared.blobs[self._manifest.object_key(index)]))

    def _read(self, index: int) -> Any:
        manifest, key = self._manifest, self._manifest.object_key(index)
        if self._objects.workload is not None:
            return Rows(min(manifest.size, manifest.n - index * manifest.size))
        if key not in self._decoded:
            self._decoded[key] = decode_minibatch(self._objects.shared.blobs[key], self._n_rows)
        return self._decoded[key]

    def close(self) -> None:
        """See `MinibatchFeed`."""
