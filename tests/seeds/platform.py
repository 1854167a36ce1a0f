"""What a simulated run stands on: a launcher, the driver's services, the record, and the workers' minibatches."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

from mlless_nb.data.bundle import decode_index
from mlless_nb.data.minibatches import decode_minibatch
from mlless_nb.data.prepare import Manifest
from mlless_nb.driver.backends.exits import Exits
from mlless_nb.driver.launch.data_preparation import JobData
from mlless_nb.exchange.slots import pid_in
from mlless_nb.storage.objects import MemoryObjects

from .clock import current
from .scenario import Problem
from .servers import SimBus, SimObjects

_minibatches: dict[tuple[str, int], Any] = {}


class SimExits(Exits):
    """`Exits` of simulated processes."""

    def __init__(self, world: Any) -> None:
        super().__init__(list)
        self._world = world

    def _watch(self, nonce: str) -> bool:
        return True

    def at(self, slot: int, began_at: float = math.inf) -> float | None:
        """See `Exits`."""
        if self._world.scenario.is_local:
            died_s = {one.pid: one.died_s for one in self._world.processes if one.died_s is not None}
            nonces = self._newest.values()
            self._at = {nonce: died_s[pid_in(nonce)] for nonce in nonces if pid_in(nonce) in died_s}
        return super().at(slot, began_at)


class Launcher:
    """See `LithopsLauncher`."""

    n_cores = 0
    executor_id, folder, can_functions_invoke, cloud = "simulated", "", False, None
    process_groups, temporary_paths, place = (), (), ("simulated", "bucket")

    def __init__(self, world: Any) -> None:
        self._world = world
        self.is_local, self.lifetime_s = world.scenario.is_local, world.scenario.lifetime_s
        self.objects = SimObjects(world.objects, world.network, lambda: False)
        self._has_seen = False
        self._jobs: dict[str, list[Any]] = {}
        self.gone_at: float | None = None
        self.exits = SimExits(world)

    def invoke(self, payloads: list[str]) -> None:
        """See `LithopsLauncher`."""
        self.gone_at = None
        first = len(self._world.processes)
        for payload in payloads:
            self._world.invoke(payload)
        self._jobs[str(len(self._jobs))] = self._world.processes[first:]

    @property
    def newest(self) -> str:
        """See `LithopsLauncher`."""
        return str(len(self._jobs) - 1)

    def has_job_ended(self, key: str) -> bool:
        """See `LithopsLauncher`."""
        return self.functions_of(key) == set()

    def functions_of(self, key: str) -> set[int] | None:
        """See `LithopsLauncher`."""
        return {process.pid for process in self._jobs[key] if process.is_alive} if self.is_local else None

    def has_ended(self) -> bool:
        """See `LithopsLauncher`."""
        is_over = self.is_local and bool(self._world.processes) and not self._world.living
        self.gone_at = self.gone_at or (self._world.clock.now if is_over else None)
        return is_over

    def has_died(self, pid: int) -> bool:
        """See `LithopsLauncher`."""
        if not self.is_local:
            return False
        is_there = any(process.pid == pid for process in self._world.living)
        self._has_seen = self._has_seen or is_there
        return self._has_seen and not is_there

    def kill(self) -> None:
        """See `LithopsLauncher`."""
        clock = self._world.clock
        if self.is_local:
            for process in self._world.living:
                clock.at(clock.now, process.kill)
            clock.sleep(0.0)
            self.gone_at = self.gone_at or clock.now

    def close(self) -> None:
        """See `LithopsLauncher`: waits for local functions, and kills them."""
        clock = self._world.clock
        give_up_s = clock.now + 5.0
        while self.is_local and self._world.living and clock.now < give_up_s:
            clock.sleep(0.1)
        self.kill()

    def place_of(self, key: str) -> str:
        """See `LithopsLauncher`."""
        return key


class Services:
    """See `mlless_nb.driver.servers.services.Services`."""

    redis_urls = urls_for_functions = ("redis://simulated",)
    bus_url = bus_for_functions = "redis://simulated"
    store, frame_key, dues, tally = "redis", "", None, None
    embedded = True

    def __init__(self, world: Any) -> None:
        self.launcher, self.has_broker = Launcher(world), not world.scenario.keeps_messages
        self.log = world.open_log("driver")
        self.bus = SimBus(world.topics, world.network)
        self.told: list[str] = []

    def check_room(self, n_bytes: int) -> None:
        """Room for all."""

    def keep_user(self) -> None:
        """No user."""

    def invoke_functions(self, payloads: list[str], run_folder: str) -> None:
        """The driver is never killed here."""
        self.launcher.invoke(payloads)

    def sweep(self) -> None:
        """Nothing unfinished."""

    def close(self) -> list[str]:
        """See `Services`."""
        self.launcher.close()
        return []


class Tracker:
    """See `mlless_nb.tracking.Tracker`; enters nothing."""

    def __init__(self, *_: Any) -> None:
        pass

    def end(self, *_: Any) -> None:
        pass

    def discard(self) -> None:
        pass


class Record:
    """See `mlless_nb.telemetry.record.Record`; keeps nothing."""

    is_complete = True

    def __init__(self, run_id: str) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class Feed:
    """See `MinibatchFeed`: one request for each bundle, and then the time that the step's computation takes."""

    has_all = False
    step_s: Callable[[], float] = staticmethod(lambda: 0.0)

    def __init__(self, objects: Any, manifest: Manifest) -> None:
        self._objects, self._manifest = objects, manifest
        self._read: dict[int, bytes] = {}

    def expect(self, indices: Any) -> None:
        """See `MinibatchFeed`."""

    def get(self, index: int) -> Any:
        """See `MinibatchFeed`."""
        manifest = self._manifest
        bundle = manifest.bundle_of(index)
        if bundle not in self._read:
            self._read[bundle] = self._fetched(manifest.object_key(bundle))
        current().process.clock.sleep(Feed.step_s())
        key = manifest.key, index
        if key not in _minibatches:
            blob = self._read[bundle]
            part = decode_index(blob, manifest.minibatch_bytes).part(blob, 0, index)
            _minibatches[key] = decode_minibatch(part, manifest.n_ids)
        return _minibatches[key]

    def _fetched(self, key: str) -> bytes:
        for _ in range(8):
            with contextlib.suppress(Exception):
                blob: bytes = self._objects.get(key)
                return blob
            current().process.clock.sleep(0.5)
        raise AssertionError(key)

    def has(self, index: int) -> bool:
        """See `MinibatchFeed`."""
        return self._manifest.bundle_of(index) in self._read

    def prefetch(self, index: int) -> None:
        """See `MinibatchFeed`."""

    def n_gets(self, indices: Any) -> int:
        """See `MinibatchFeed`."""
        return len({self._manifest.bundle_of(index) for index in indices} - self._read.keys())

    def close(self) -> None:
        """See `MinibatchFeed`."""


def packed(problem: Problem) -> dict[str, bytes]:
    """The objects of the job's packed data."""
    return _packed(problem.kind, problem.sync, problem.workers, problem.has_held_out)


@functools.cache
def _packed(kind: str, sync: str, workers: int, has_held_out: bool) -> dict[str, bytes]:
    objects = MemoryObjects()
    data = JobData(Problem(kind, sync, workers, 10, has_held_out=has_held_out).job())
    data.n_puts(objects)
    data.pack(objects, lambda: False)
    return objects.blobs
