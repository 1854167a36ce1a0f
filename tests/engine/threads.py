"""Small jobs whose workers are threads of this process: all that they publish, produce and take back is summed."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from mlless_nb import PMF, SGD, AdaGrad, Adam, LogisticRegression, ScaleIn, Stop, datasets
from mlless_nb.bus import open_bus
from mlless_nb.bus.messages import Failed, Invocation, Left
from mlless_nb.data.minibatches import Minibatch
from mlless_nb.data.prepare import Manifest, pack
from mlless_nb.driver.launch.invocations import invocations_of
from mlless_nb.exchange import Arrival, MemoryCoordinator, MemoryHub, RoundRequest
from mlless_nb.exchange.stats import Stats
from mlless_nb.job.algorithm import GradientAveraging
from mlless_nb.job.sync import Sync
from mlless_nb.kernels import decode_frame
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import Prepaid
from mlless_nb.money.start import StartingMoney
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.storage.worker_state import WorkerState
from mlless_nb.worker.loop import Worker

#: A job takes milliseconds; this is for a slow machine that is busy with other things.
PATIENCE_S = 180.0
#: At which nobody runs out of money.
RATES = Rates(price_profile("ibm-paper"), 2048)

OBJECTS = MemoryObjects()
RATINGS, HELD_OUT = datasets.synthetic_ratings(40, 30, 500, rank=3, seed=1).split(0.1, 0)
CLICKS = datasets.synthetic_clicks(300, n_features=60, seed=1)


@functools.cache
def packed(kind: str, n_shards: int) -> tuple[Manifest, Manifest | None]:
    """The training and validation minibatches, in as many shards."""
    if kind == "logistic":
        return pack(CLICKS, 24, 0, OBJECTS), None
    owners = RATINGS.owners(n_shards) if n_shards > 1 else None
    return pack(RATINGS, 24, 0, OBJECTS, owners), pack(HELD_OUT, 24, None, OBJECTS, owners)


Optimizer = SGD | Adam | AdaGrad
OPTIMIZERS: list[Optimizer] = [
    SGD(0.5),
    SGD(0.2, momentum=0.9),
    SGD(0.2, momentum=0.9, nesterov=True),
    SGD(0.2, momentum=0.9, lazy=True),
    Adam(0.02),
    AdaGrad(0.05, decay=0.1),
]


@dataclasses.dataclass(frozen=True)
class Job:
    """A small job, and who leaves when: slots announced as the exchange of a step completes.

    Before each step those of ``slow`` stand still until the others are as far ahead as they may be, or for a moment.
    """

    model: PMF | LogisticRegression
    optimizer: Optimizer
    sync: Sync
    n_workers: int
    steps: int
    aggregate: str
    leaves: dict[int, list[int]]
    local_steps: int = 1
    codec: str = "float32"
    scatter_from: int = 0
    has_leader: bool = False
    by_user: bool = False
    packed_as: Manifest | None = None
    slow: tuple[int, ...] = ()
    stop: Stop | None = None
    start_key: str | None = None

    @property
    def manifests(self) -> tuple[Manifest, Manifest | None]:
        """Of the training and the validation minibatches."""
        if self.packed_as is not None:
            return self.packed_as, None
        return packed(self.model.kind, self.n_workers if self.by_user else 1)

    def invocation(self, slot: int) -> Invocation:
        """What the worker of ``slot`` is told."""
        manifest, validation = self.manifests
        job = SimpleNamespace(
            workers=self.n_workers,
            model=self.model,
            optimizer=self.optimizer,
            sync=self.sync,
            algorithm=GradientAveraging(),
            store="redis",
            stop_rules=self.stop or Stop(steps=self.steps),
            scale_in=ScaleIn.off(),
            aggregate=self.aggregate,
            local_steps=self.local_steps,
            codec=self.codec,
            eval_every=3,
            # At a checkpoint all updates up to it are waited for, so that nobody is ahead.
            checkpoint_every=4 if not self.slow else None,
            prices="ibm-paper",
            memory_mb=2048,
        )
        _, *workers = invocations_of(
            job,
            manifest,
            validation,
            StartingMoney(RATES, self.n_workers, is_local=True),
            job_id="job",
            generation="1",
            scatter_from=self.scatter_from,
            has_leader=self.has_leader,
            seed=3,
            n_cores=0,
            redis_urls=[],
            bus_url="memory://",
            insecure=False,
            has_broker=False,
            launched_at_s=0.0,
            spent_before_nusd=0,
            lifetime_s=600.0,
            lease_s=PATIENCE_S,
            round_timeout_s=PATIENCE_S / 3,
            start_key=self.start_key,
        )
        return workers[slot]


class Witness(MemoryCoordinator):
    """A coordinator that sums what each worker publishes of its own, and announces departures at fixed moments.

    The announcement is made under the hub's lock while a step's exchange is complete and nobody is in the next one, so
    that the same one comes at the same moment in every run.
    """

    def __init__(self, hub: MemoryHub, slot: int, leaves: dict[int, list[int]], n_values: int) -> None:
        super().__init__(hub, f"invocation of {slot}")
        self.shared, self._leaves = hub, leaves
        self.published = np.zeros(n_values)
        self.own_frames: dict[int, bytes] = {}  # of its own updates, by step

    def count(self, frame: bytes, first: int) -> None:
        """Add a frame of values from position ``first`` on to what was published."""
        positions, values = decode_frame(frame)
        self.published[positions + np.uint32(first)] += values

    def publish(self, part: RoundRequest) -> Arrival:
        """See `MemoryCoordinator`."""
        # The merged ranges are everybody's. What is told for a checkpoint, of the best replicas or of the optimiser's
        # state is no update.
        if part.parts is None and part.frame and not part.round_id.endswith(("m", "p", "c", "b", "q", "e", "f", "u")):
            self.count(part.frame, 0)
            self.own_frames[part.step] = part.frame
        with self.shared.changed:
            arrival = super().publish(part)
            if arrival.is_complete and part.report is not None:
                slots = self._leaves.get(part.step, [])
                staying = [slot for slot in part.publishers if slot not in self.shared.plan.leaves]
                going = [slot for slot in slots if slot in staying][: len(staying) - 1]
                if going:
                    self.announce_leave(going)
        return arrival


class Observed(Worker):
    """A worker that sums what it produces, and checks after each step that all of it is published or held back."""

    log: Witness
    produced: NDArray[np.float64]
    averaged: NDArray[np.float64]  # taken back when others left
    checkpoints: dict[int, WorkerState]  # its part of what was stored after a step
    produced_by: dict[int, NDArray[np.float64]]  # what it had produced then
    last_params: NDArray[np.float32] | None = None  # the replica once all was handed over, before the best one's turn
    last_held_back: Any = None
    evaluated: dict[int, NDArray[np.float64]]  # what it had produced by its evaluations
    is_slow = False
    moment_s = 0.01

    def _make(self, minibatches: list[Minibatch], n_active: int) -> Stats:
        self._check_conservation()
        if self.is_slow:
            hub, furthest = self.log.shared, self._step + self._replica.staleness
            give_up_at = time.monotonic() + self.moment_s
            with hub.changed:
                while hub.latest < furthest and time.monotonic() < give_up_at:
                    hub.changed.wait(0.001)
        before, replica = self.params.astype(np.float64), self._replica
        produced, held_back = self.produced.copy(), np.copy(self.held_back)
        stats = super()._make(minibatches, n_active)
        self.produced += (self.params - before).ravel()  # what was added in the pass that made it, and is nowhere else
        if not replica._outgoing.is_added:
            some, update = replica._outgoing.part(replica._outgoing.n_added)
            rows = slice(None) if some is None else some
            np.testing.assert_array_equal(self.params[rows], before[rows])
            self.produced.reshape(self.params.shape)[rows] += update
        if n_active == 1:  # published to nobody, unless it is held back
            self.log.published += self.produced - produced - (self.held_back - held_back)
        return stats

    def observe_checkpoints(self) -> None:
        """Note what is to be stored, and what this worker had produced by then."""
        store, self.checkpoints, self.produced_by = self._checkpoints.store, {}, {}

        def observed(state: WorkerState, passed: int, *, is_needed: bool) -> None:
            store(state, passed, is_needed=is_needed)
            self.produced_by[state.step] = self.produced.copy()
            self.checkpoints[state.step] = WorkerState.decode(state.encode())

        self._checkpoints.store = observed  # type: ignore[method-assign]

    def observe_end(self) -> None:
        """Note how the replica is once all is handed over, and what was produced by each evaluation."""
        end, take, self.evaluated = self._handing_over.end, self._best.take, {}

        def observed(step: int, active: list[int]) -> None:
            end(step, active)
            self.last_held_back, self.last_params = np.copy(self.held_back), self.params.copy()

        def taken(step: int) -> None:
            take(step)
            self.evaluated[step] = self.produced.copy()

        self._handing_over.end, self._best.take = observed, taken  # type: ignore[method-assign]

    def observe_parts(self, name: str) -> None:
        """Count the parts that the replica's method of this name makes, the own one among them."""
        plain = getattr(self._replica, name)

        def observed(*arguments: Any) -> dict[int, bytes]:
            parts: dict[int, bytes] = plain(*arguments)
            if self.last_params is not None:  # the best replica's
                return parts
            width = self.params.shape[1]
            for frame, (first, _) in zip(parts.values(), self._replica.ranges(len(parts)), strict=True):
                self.log.count(frame, first * width)
            return parts

        setattr(self._replica, name, observed)

    def observe_averages(self) -> None:
        """Sum what averaging takes back."""
        average, self.averaged = self._replica.average, np.zeros_like(self.produced)

        def observed() -> None:
            before = self.params.astype(np.float64)
            average()
            self.averaged += (before - self.params).ravel()

        self._replica.average = observed  # type: ignore[method-assign]

    def _check_conservation(self) -> None:
        np.testing.assert_allclose(self.accounted_for, self.produced, atol=1e-5)

    @property
    def accounted_for(self) -> Any:
        """What was published, what is held back, and what was taken back."""
        return self.log.published + self.held_back + self.averaged

    @property
    def held_back(self) -> Any:
        """What was produced and not published; at the end, once all was handed over."""
        if self.last_held_back is not None:
            return self.last_held_back
        residual = self._replica._outgoing.residual
        return 0.0 if residual is None else np.asarray(residual).ravel()

    @property
    def params(self) -> NDArray[np.float32]:
        """The worker's parameters; at the end those of the last model."""
        return self.best_params if self.last_params is None else self.last_params

    @property
    def best_params(self) -> NDArray[np.float32]:
        """The replica's parameters, at the end those of the model that the run returns."""
        return self._replica.params


@dataclasses.dataclass
class Outcome:
    """How a job went, by slot."""

    workers: list[Observed]
    ends: list[Left | Failed]
    hub: MemoryHub

    @property
    def last(self) -> list[Observed]:
        """The workers that were there at the end."""
        return [worker for worker, end in zip(self.workers, self.ends, strict=True) if end.status != "left"]


def train(job: Job, announcer: Any = None) -> Outcome:
    """Run ``job`` with a thread a worker; ``announcer`` is called with a log of its own meanwhile."""
    hub = MemoryHub()
    driver = MemoryCoordinator(hub)
    driver.create(cap_nusd=None, reserved_nusd=0)
    driver.renew("supervisor", PATIENCE_S)
    bus = open_bus("memory://", f"conservation-{id(hub)}")
    workers: list[Observed] = []
    for slot in range(job.n_workers):
        shape = job.model.table_shape(job.manifests[0].shape)
        log = Witness(hub, slot, job.leaves, shape[0] * shape[1])
        assert log.claim(slot)
        prepaid = Prepaid(RATES, 10**12, lambda: 0.0, lambda: 0)
        worker = Observed(job.invocation(slot), log, bus, OBJECTS, prepaid)
        worker.log, worker.produced, worker.is_slow = log, np.zeros(shape[0] * shape[1]), slot in job.slow
        worker.observe_averages()
        worker.observe_checkpoints()
        worker.observe_end()
        worker.observe_parts("encode_parts")
        worker.observe_parts("flush_parts")
        workers.append(worker)
    ends: dict[int, Left | Failed] = {}
    threads = [
        threading.Thread(target=lambda s=slot, w=worker: ends.update({s: w.run()}), daemon=True)
        for slot, worker in enumerate(workers)
    ]
    for thread in threads:
        thread.start()
    if announcer is not None:
        announcer(MemoryCoordinator(hub, "supervisor"))
    for thread in threads:
        thread.join(PATIENCE_S)
    bus.close(delete=True)
    assert not any(thread.is_alive() for thread in threads), "a worker hangs"
    for end in ends.values():
        assert isinstance(end, Left), end.reason
        assert end.status in ("finished", "left"), end.reason
    return Outcome(workers, [ends[slot] for slot in range(job.n_workers)], hub)


@st.composite
def jobs(draw: st.DrawFn, syncs: st.SearchStrategy[Sync]) -> Job:
    """Small jobs; "sum" takes a smaller rate for as many workers."""
    model = draw(st.sampled_from([PMF(rank=2, l2=0.02), PMF(rank=3, biases=False), LogisticRegression(l2=0.01)]))
    n_workers = draw(st.integers(1, 5))
    aggregate = draw(st.sampled_from(["mean", "sum"]))
    optimizer = draw(st.sampled_from(OPTIMIZERS))
    if aggregate == "sum":
        optimizer = dataclasses.replace(optimizer, learning_rate=optimizer.learning_rate / 5)
    steps = draw(st.integers(1, 9))
    moments = st.dictionaries(st.integers(1, steps), st.lists(st.integers(0, n_workers - 1), max_size=3), max_size=3)
    return Job(
        model,
        optimizer,
        draw(syncs),
        n_workers,
        steps,
        aggregate,
        draw(moments),
        local_steps=draw(st.sampled_from([1, 1, 2, 3])),
        scatter_from=draw(st.sampled_from([0, 2, 3, 4])),
        has_leader=draw(st.booleans()),
        by_user=model.kind == "pmf" and n_workers > 1 and draw(st.booleans()),
    )


def check_membership(job: Job, outcome: Outcome) -> None:
    """Those who leave, leave at the announced step; the rest take every step."""
    assert outcome.last
    for slot, end in enumerate(outcome.ends):
        first_without = outcome.hub.plan.leaves.get(slot, job.steps + 1)
        assert end.step == min(first_without - 1, job.steps)
    complete = [entry.step for entry in outcome.hub.steps]
    assert sorted(complete) == list(range(1, job.steps + 1))
    if job.sync.staleness == 0:
        assert complete == sorted(complete)
    for entry in outcome.hub.steps:
        assert sorted(entry.reports) == outcome.hub.plan.active(entry.step, job.n_workers)
