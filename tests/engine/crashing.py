"""Small jobs whose workers are threads that die at chosen moments and are replaced, as the driver would do it."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any

import numpy as np
from engine.threads import OBJECTS, PATIENCE_S, RATES, Job
from hypothesis import strategies as st
from numpy.typing import NDArray

from mlless_nb.bus import open_bus
from mlless_nb.bus.messages import Left
from mlless_nb.exchange import Arrival, MemoryCoordinator, MemoryHub, Restart, RoundRequest
from mlless_nb.money.budget import Prepaid
from mlless_nb.storage.checkpoint import Progress
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.storage.run_objects import last_key, model_key, newest_whole
from mlless_nb.worker.attempts import work


class Died(BaseException):
    """A worker's process is gone."""


@dataclasses.dataclass(frozen=True)
class Crash:
    """The worker of ``slot`` dies at its ``n``-th arrival, before it or after it."""

    slot: int
    n: int
    after: bool


class Mortal(MemoryCoordinator):
    """A coordinator whose process dies at some arrivals."""

    def __init__(self, hub: MemoryHub, nonce: str, dies_at: dict[int, bool]) -> None:
        super().__init__(hub, nonce)
        self._dies_at, self._n = dies_at, 0

    def publish(self, part: RoundRequest) -> Arrival:
        """See `MemoryCoordinator`."""
        self._n += 1
        if self._dies_at.get(self._n) is False:
            raise Died
        arrival = super().publish(part)
        if self._dies_at.get(self._n):
            raise Died
        return arrival


@dataclasses.dataclass
class Rerun:
    """How a job went: the models that it stored, its final messages by slot, and how often it was restarted."""

    model: Progress
    last: Progress | None
    ends: dict[int, Left]
    n_restarts: int

    @property
    def bits(self) -> list[NDArray[np.uint32]]:
        """All that a run that resumes from it would see."""
        tables = [*(one for one in (self.model, self.last) if one is not None)]
        return [table.view(np.uint32) for one in tables for table in (one.params, *one.state)]


def run(job: Job, crashes: list[Crash]) -> Rerun:
    """Run ``job``; whoever dies is replaced, and all go on from the newest checkpoint."""
    hub, objects = MemoryHub(), MemoryObjects()
    assert job.manifests  # packed now
    objects.blobs.update({key: blob for key, blob in OBJECTS.blobs.items() if not key.startswith("runs/")})
    driver = MemoryCoordinator(hub)
    driver.create(cap_nusd=None, reserved_nusd=0)
    driver.renew("supervisor", PATIENCE_S)
    bus = open_bus("memory://", f"crashing-{id(hub)}")
    ends: dict[int, Any] = {}
    dead: list[int] = []
    failures: list[BaseException] = []
    told = threading.Event()

    def live(slot: int, nonce: str, dies_at: dict[int, bool]) -> None:
        log, prepaid = Mortal(hub, nonce, dies_at), Prepaid(RATES, 10**12, lambda: 0.0, lambda: 0)
        try:
            ends[slot] = work(job.invocation(slot), log, bus, objects, prepaid)
        except Died:
            dead.append(slot)
        except BaseException as error:
            failures.append(error)
        told.set()

    def start(slot: int, attempt: int) -> None:
        dies_at = {crash.n: crash.after for crash in crashes if crash.slot == slot} if not attempt else {}
        threading.Thread(target=live, args=(slot, f"{slot}.{attempt}", dies_at), daemon=True).start()

    for slot in range(job.n_workers):
        start(slot, 0)
    restart, restarts, give_up_at = Restart(), list[tuple[int, int]](), time.monotonic() + PATIENCE_S
    while len(ends) < job.n_workers:
        assert told.wait(PATIENCE_S), "a worker hangs"
        told.clear()
        if failures:
            raise failures[0]
        assert time.monotonic() < give_up_at, "the job does not end"
        while dead:
            lost = [dead.pop()]
            origin, step = newest_whole(objects, "job", restarts).checkpoint
            active = hub.plan.active(step + 1, job.n_workers)
            replaced = [slot for slot in active if slot in lost or slot in ends]
            restart = driver.roll_back(restart, step, replaced, job.n_workers, origin)
            restarts.append((restart.number, step))
            for slot in replaced:
                ends.pop(slot, None)
                start(slot, restart.number)
    bus.close(delete=True)
    for end in ends.values():
        assert isinstance(end, Left), end
        assert end.status in ("finished", "left"), end.reason
    blobs = objects.blobs
    last = Progress.decode(blobs[last_key("job")]) if last_key("job") in blobs else None
    return Rerun(Progress.decode(blobs[model_key("job")]), last, ends, restart.number)


@st.composite
def crashes(draw: st.DrawFn, job: Job) -> list[Crash]:
    """Where workers of ``job`` die: each at most once."""
    slots = draw(st.lists(st.integers(0, job.n_workers - 1), min_size=1, max_size=3, unique=True))
    return [Crash(slot, draw(st.integers(1, job.steps + 4)), draw(st.booleans())) for slot in slots]
