"""Which steps a worker's stored state is of."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import redis
from engine.threads import OBJECTS, PATIENCE_S, RATES, Job, train

from mlless_nb import BSP, PMF, SGD, BackupWorkers, RunError, ServiceError
from mlless_nb.bus import Bus, open_bus
from mlless_nb.data.minibatches import Minibatch
from mlless_nb.exchange import Arrival, MemoryCoordinator, MemoryHub, RoundRequest
from mlless_nb.exchange.plan import Plan
from mlless_nb.exchange.policies import quorum
from mlless_nb.exchange.stats import Stats
from mlless_nb.money.budget import Prepaid
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.storage.run_objects import Checkpoint, newest, newest_whole, parts_of
from mlless_nb.storage.worker_state import WorkerState
from mlless_nb.worker import checkpoints
from mlless_nb.worker.checkpoints import Checkpoints
from mlless_nb.worker.loop import Worker
from mlless_nb.worker.reintegration import Reintegration

JOB = Job(PMF(rank=2), SGD(0.2, momentum=0.9), BSP(), 2, 9, "mean", {})
FACTS = {"n_steps": 0, "n_updates": 0, "rate_factor": 1.0, "weight": 1.0, "state": []}


class Slow(MemoryObjects):
    """A storage whose writes take until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.let_go = threading.Semaphore(0), threading.Semaphore(0)

    def put(self, key: str, blob: bytes) -> None:
        """See `ObjectStore`."""
        self.entered.release()
        assert self.let_go.acquire(timeout=30)
        super().put(key, blob)


def test_a_worker_whose_writes_are_slow_leaves_no_checkpoint_out() -> None:
    """It left out every second one, its peers others, and none was whole: a restart went back to the first step."""
    objects = Slow()
    membership: Any = SimpleNamespace(plan=None, settle_steps=lambda: None)
    one = Checkpoints(JOB.invocation(0), objects, membership, lambda: True)

    def store() -> None:
        for step in (10, 20, 30):
            one.store(WorkerState(step, 0, [0, 1], FACTS, {"params": np.zeros((4, 2), np.float32)}), step)
        one.close()

    storing = threading.Thread(target=store, daemon=True)
    storing.start()
    for _ in range(3):
        assert objects.entered.acquire(timeout=30)
        storing.join(0.05)  # one that leaves the next ones out has ended by then
        objects.let_go.release()
    storing.join(30)
    assert parts_of(objects.list("runs/job/")) == {Checkpoint(0, step): {0} for step in (10, 20, 30)}


def test_a_write_that_hangs_costs_checkpoints_and_not_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers give a round up after two minutes; a storage may take longer to say that it has failed."""
    monkeypatch.setattr(checkpoints, "PATIENCE_S", 0.01)
    objects = Slow()
    membership: Any = SimpleNamespace(plan=None, settle_steps=lambda: None)
    one = Checkpoints(JOB.invocation(0), objects, membership, lambda: True)
    for step in (10, 20):
        one.store(WorkerState(step, 0, [0, 1], FACTS, {"params": np.zeros((4, 2), np.float32)}), step)
    objects.let_go.release()
    one.close()
    assert list(parts_of(objects.list("runs/job/"))) == [Checkpoint(0, 10)]


def test_a_checkpoint_that_comes_soon_after_another_does_not_let_the_others_go_further_ahead() -> None:
    """A hand-over's was taken for one after a whole checkpoint, while the last worker had stored neither."""
    membership: Any = SimpleNamespace(plan=Plan(), settle_steps=lambda: None)
    invocation = dataclasses.replace(JOB.invocation(0), checkpoint_every=40)
    one = Checkpoints(invocation, MemoryObjects(), membership, lambda: True, is_lockstep=False, in_background=False)

    def store(step: int, *, is_needed: bool = False) -> None:
        one.store(WorkerState(step, 0, [0, 1], FACTS, {}), 0, is_needed=is_needed)

    store(32)
    assert [one.most_behind(step) for step in (40, 41, 45)] == [40, 41 - 36, 45 - 36]
    store(33, is_needed=True)
    assert [one.most_behind(step) for step in (40, 41)] == [40, 41 - 34]
    store(64)
    assert [one.most_behind(step) for step in (73, 74)] == [73, 74 - 68]


class Refusing(MemoryObjects):
    """A storage that refuses so many writes."""

    def __init__(self, n_refused: float) -> None:
        super().__init__()
        self.n_refused, self.n_tried = n_refused, 0

    def put(self, key: str, blob: bytes) -> None:
        """See `ObjectStore`."""
        self.n_tried += 1
        if self.n_tried <= self.n_refused:
            raise ServiceError("please reduce your request rate")
        super().put(key, blob)


@pytest.mark.parametrize(
    ("n_refused", "n_paid", "tries", "is_stored"),
    [(8, 8, 9, True), (8, 5, 6, False), (1e9, 8, 9, False), (0, 0, 1, True)],
)
def test_a_part_that_is_refused_is_stored_later_as_long_as_that_is_paid_for(
    n_refused: float, n_paid: int, tries: int, is_stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was given up after three tries at once, so that a restart went back to the checkpoint before."""
    monkeypatch.setattr(checkpoints, "PAUSES_S", (0.001,))
    objects, asked = Refusing(n_refused), itertools.count()
    membership: Any = SimpleNamespace(plan=None, settle_steps=lambda: None)
    one = Checkpoints(JOB.invocation(0), objects, membership, lambda: next(asked) <= n_paid)
    one.store(WorkerState(10, 0, [0, 1], FACTS, {"params": np.zeros((4, 2), np.float32)}), 10)
    one.await_part(99)
    one.close()
    assert (objects.n_tried, bool(parts_of([*objects.blobs]))) == (tries, is_stored)


def test_a_run_that_ends_does_not_wait_for_a_storage_that_refuses() -> None:
    objects = Refusing(math.inf)
    membership: Any = SimpleNamespace(plan=None, settle_steps=lambda: None)
    one = Checkpoints(JOB.invocation(0), objects, membership, lambda: True)
    one.store(WorkerState(10, 0, [0, 1], FACTS, {"params": np.zeros((4, 2), np.float32)}), 10)
    one.close()
    assert objects.n_tried >= checkpoints.TRIES
    assert not objects.blobs


@pytest.mark.parametrize("interval", [1, 2, 3, 4, 5, 9, 10, 100])
def test_no_step_is_taken_that_would_be_lost_with_more_than_an_interval(interval: int) -> None:
    """A restart went back 1.5 intervals: to the checkpoint before the one that was being stored."""
    taken, lost = 0, list[int]()

    class Late(MemoryObjects):
        def put(self, key: str, blob: bytes) -> None:
            time.sleep(0.02)  # the worker comes as far as it may
            lost.append(taken - max((part.step for part in parts_of([*self.blobs])), default=0))
            super().put(key, blob)

    membership: Any = SimpleNamespace(plan=Plan(), settle_steps=lambda: None)
    invocation = dataclasses.replace(JOB.invocation(0), checkpoint_every=interval)
    one = Checkpoints(invocation, Late(), membership, lambda: True)
    for step in range(1, 4 * interval + 1):
        one.await_part(step)
        taken = step
        if one.is_due(step):
            one.store(WorkerState(step, 0, [0], FACTS, {"params": np.zeros((4, 2), np.float32)}), step)
    one.close()
    assert checkpoints.spacing(interval) <= max(lost) <= interval
    assert len(lost) >= 4


class Listed(MemoryObjects):
    """A storage that is listed while others write; it counts the parts of the worker that is ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.n_parts: list[int] = []

    def put(self, key: str, blob: bytes) -> None:
        """See `ObjectStore`."""
        super().put(key, blob)
        self.n_parts.append(sum(0 in slots for slots in parts_of([*self.blobs]).values()))

    def list(self, prefix: str) -> list[str]:
        """See `ObjectStore`."""
        return sorted(key for key in [*self.blobs] if key.startswith(prefix))


def begun(job: Job, objects: MemoryObjects) -> tuple[MemoryHub, Bus]:
    """Hub and bus of a run of ``job``, with its packed rows in ``objects``; its supervisor seems to be there."""
    hub = MemoryHub()
    assert job.manifests[0].n_minibatches  # packs the rows
    objects.blobs.update({key: blob for key, blob in OBJECTS.blobs.items() if not key.startswith("runs/")})
    driver = MemoryCoordinator(hub)
    driver.create(cap_nusd=None, reserved_nusd=0)
    driver.renew("supervisor", PATIENCE_S)
    return hub, open_bus("memory://", f"begun-{id(hub)}")


class Behind(Worker):
    """A worker that is as many steps behind as it may be.

    It notes its step, the newest whole checkpoint and the newest complete step then.
    """

    seen: list[tuple[int, int, int]]

    def _make(self, minibatches: list[Minibatch], n_active: int) -> Stats:
        hub, give_up_at = self._log._hub, time.monotonic() + PATIENCE_S  # type: ignore[attr-defined]
        interval, step = self._job.checkpoint_every, self._step
        every = checkpoints.spacing(interval)
        newest = (step - 1) // every * every
        # The peer knows that this worker has stored its part once it is some steps further.
        is_known = step >= newest + max((interval - every) // 2, 1)
        furthest = newest + interval - (0 if is_known or not newest else every)
        with hub.changed:
            while hub.latest < min(furthest, step + quorum.MOST_BEHIND, BEHIND.steps):
                hub.changed.wait(0.001)
                assert time.monotonic() < give_up_at
        time.sleep(0.01)  # the peer comes as far as it may
        self.seen.append((step, newest_whole(self._objects, "job").checkpoint.step, hub.quorum._newest))
        return super()._make(minibatches, n_active)


BEHIND = Job(PMF(rank=2), SGD(0.2), BackupWorkers(1), 2, 150, "mean", {})


@pytest.mark.parametrize("interval", [3, 5, 20, 100])
def test_a_worker_that_is_behind_has_stored_its_part_before_more_than_an_interval_would_be_lost(interval: int) -> None:
    """A restart went back the steps that it was behind, too; before that to the first step."""
    objects = Listed()
    hub, bus = begun(BEHIND, objects)
    seen = list[tuple[int, int, int]]()

    def work(slot: int) -> None:
        log: Any = MemoryCoordinator(hub, f"invocation of {slot}")
        assert log.claim(slot)
        invocation = dataclasses.replace(BEHIND.invocation(slot), checkpoint_every=interval, eval_every=1000)
        prepaid = Prepaid(RATES, 10**12, lambda: 0.0, lambda: 0)
        made = (Worker, Behind)[slot](invocation, log, bus, objects, prepaid, in_background=False)
        if isinstance(made, Behind):
            made.seen, made._objects = seen, objects
        made.run()

    working = [threading.Thread(target=work, args=(slot,), daemon=True) for slot in (0, 1)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join(PATIENCE_S)
    bus.close(delete=True)
    assert hub.latest == BEHIND.steps
    assert len(seen) >= 3
    every = checkpoints.spacing(interval)
    assert [whole for _, whole, _ in seen] == [(step - 1) // every * every for step, *_ in seen]
    furthest = [newest - whole for _, whole, newest in seen]
    assert max(furthest) <= interval
    assert min(interval, quorum.MOST_BEHIND) - 1 <= max(furthest)
    assert max(objects.n_parts) <= checkpoints.KEPT + 2


LEAVING = Job(PMF(rank=2), SGD(0.2), BSP(), 3, 20, "mean", {})


class Leaves(Worker):
    """A worker that is removed while it makes the update of step 9."""

    def _make(self, minibatches: list[Minibatch], n_active: int) -> Stats:
        if self._step == 9:
            self._log.announce_leave([2])  # type: ignore[attr-defined]
        return super()._make(minibatches, n_active)


def test_a_worker_that_leaves_has_stored_its_part_before_it_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its peers take steps as soon as it has, and took 16 with an interval of 10 while its part was being stored."""
    begun_parts, stored = list[str](), list[str]()
    unstored = list[set[str]]()  # when it hands over

    class LateParts(Listed):
        def put(self, key: str, blob: bytes) -> None:
            is_its_part = key.endswith("/2")
            begun_parts.extend([key] * is_its_part)
            time.sleep(0.3 * is_its_part)
            super().put(key, blob)
            stored.extend([key] * is_its_part)

    hand_over = Reintegration.leave

    def handing_over(self: Reintegration, step: int, leaving: list[int], *rest: Any) -> None:
        if self._slot in leaving:
            unstored.append({*begun_parts} - {*stored})
        hand_over(self, step, leaving, *rest)

    monkeypatch.setattr(Reintegration, "leave", handing_over)
    objects = LateParts()
    hub, bus = begun(LEAVING, objects)

    def work(slot: int) -> None:
        log: Any = MemoryCoordinator(hub, f"invocation of {slot}")
        assert log.claim(slot)
        invocation = dataclasses.replace(LEAVING.invocation(slot), checkpoint_every=10, eval_every=1000)
        prepaid = Prepaid(RATES, 10**12, lambda: 0.0, lambda: 0)
        (Worker, Worker, Leaves)[slot](invocation, log, bus, objects, prepaid).run()

    working = [threading.Thread(target=work, args=(slot,), daemon=True) for slot in range(3)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join(PATIENCE_S)
    bus.close(delete=True)
    assert hub.latest == LEAVING.steps
    assert begun_parts
    assert unstored == [set()]


class Ending(MemoryCoordinator):
    """Calls ``ends`` when it publishes the update of step 7."""

    def __init__(self, hub: MemoryHub, nonce: str, ends: Callable[[Ending], None]) -> None:
        super().__init__(hub, nonce)
        self.ends, self.is_gone = ends, False

    def publish(self, part: RoundRequest) -> Arrival:
        """See `Coordinator`."""
        if part.step == 7:
            self.ends(self)
        return super().publish(part)

    def reserve(self, nusd: int, least_nusd: int | None = None, request_id: str = "") -> int:
        """See `Coordinator`."""
        if self.is_gone:
            raise redis.ConnectionError
        return super().reserve(nusd, least_nusd, request_id)

    def abort(self, reason: str, n_workers: int, status: str = "failed") -> None:
        """See `Coordinator`."""
        if self.is_gone:
            raise redis.ConnectionError
        super().abort(reason, n_workers, status)


def is_last(log: Ending) -> bool:
    """Whether this is the second worker; the first one has applied step 6 by then."""
    give_up_at = time.monotonic() + PATIENCE_S
    with log._hub.changed:
        while log._nonce.endswith("1") and 0 not in log._hub.arrivals.get("7", {}):
            log._hub.changed.wait(0.001)
            assert time.monotonic() < give_up_at
    return log._nonce.endswith("1")


def is_aborted(log: Ending) -> None:
    if is_last(log):
        log.abort("enough", 2)


def lacks_data(log: Ending) -> None:
    if is_last(log):
        raise RunError("packed data is damaged")


def loses_its_servers(log: Ending) -> None:
    log.is_gone = True
    raise ServiceError("Redis is gone")


@pytest.mark.parametrize(
    ("ends", "has_cap", "reasons"),
    [(is_aborted, True, ["enough"] * 2), (lacks_data, True, ["damaged"] * 2), (loses_its_servers, False, [])],
)
def test_what_is_kept_of_a_run_that_ends_early_is_the_state_after_the_last_step_that_was_applied(
    ends: Callable[[Ending], None], has_cap: bool, reasons: list[str]
) -> None:
    """It had the number of the step that was not done, or after an error there was only the newest checkpoint."""
    objects = MemoryObjects()
    hub, bus = begun(JOB, objects)
    left: list[Any] = []

    def work(slot: int) -> None:
        log: Any = Ending(hub, f"invocation of {slot}", ends)
        assert log.claim(slot)
        prepaid = Prepaid(RATES, 10**12 * has_cap, lambda: 0.0, lambda: 0)
        prepaid.learn(10**13 if has_cap else None, 0)
        with contextlib.suppress(redis.ConnectionError):
            left.append(Worker(JOB.invocation(slot), log, bus, objects, prepaid).run())

    working = [threading.Thread(target=work, args=(slot,), daemon=True) for slot in (0, 1)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join(PATIENCE_S)
    bus.close(delete=True)
    assert [reason for one, reason in zip(left, reasons, strict=True) if reason in one.reason] == reasons
    found = newest(objects, "job")
    assert found is not None
    assert (found.progress.step, found.progress.n_steps, found.progress.n_updates) == (6, 6, 6)
    six = train(dataclasses.replace(JOB, steps=6)).last[0]
    np.testing.assert_array_equal(found.progress.params, six.params)
