"""What training promises of updates, with workers as threads in this process: nothing is lost, replicas agree."""

from __future__ import annotations

import dataclasses
import functools
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mlless_nb import BSP, ISP, PMF, SGD, AdaGrad, Adam, LogisticRegression, ScaleIn, Stop, datasets, replica
from mlless_nb.channels import open_bus
from mlless_nb.data.minibatches import Minibatch
from mlless_nb.data.prepare import Manifest, pack
from mlless_nb.exchange import Arrival, MemoryHub, MemoryStepLog, Round, Wanted
from mlless_nb.kernels import decode_frame
from mlless_nb.messages import Failed, Invocation, Left
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import Prepaid
from mlless_nb.objects import MemoryObjects
from mlless_nb.replica import Stats
from mlless_nb.worker import Worker

#: A job takes milliseconds; this is for a machine that is busy with other things.
PATIENCE_S = 60.0

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
    """A small job, and who leaves when: slots announced as the exchange of a step completes."""

    model: PMF | LogisticRegression
    optimizer: Optimizer
    sync: BSP | ISP
    n_workers: int
    steps: int
    aggregate: str
    leaves: dict[int, list[int]]
    local_steps: int = 1
    codec: str = "float32"
    pattern: str = "broadcast"
    by_user: bool = False
    packed_as: Manifest | None = None

    @property
    def manifests(self) -> tuple[Manifest, Manifest | None]:
        """Of the training and the validation minibatches."""
        if self.packed_as is not None:
            return self.packed_as, None
        return packed(self.model.kind, self.n_workers if self.by_user else 1)

    def invocation(self, slot: int) -> Invocation:
        """What the worker of ``slot`` is told."""
        manifest, validation = self.manifests
        return Invocation(
            role="worker",
            slot=slot,
            job_id="job",
            generation="1",
            n_workers=self.n_workers,
            model=self.model.to_json(),
            optimizer=self.optimizer.to_json(),
            sync=self.sync.to_json(),
            stop=dataclasses.asdict(Stop(steps=self.steps)),
            scale_in=ScaleIn.off().to_json(),
            aggregate=self.aggregate,
            local_steps=self.local_steps,
            codec=self.codec,
            pattern=self.pattern,
            seed=3,
            manifest=manifest.to_json(),
            validation=validation.to_json() if validation is not None else None,
            eval_every=3,
            checkpoint_every=4,
            redis_urls=[],
            bus_url="memory://",
            insecure=False,
            prices="ibm-paper",
            memory_mb=2048,
            has_broker=False,
            launched_at_s=0.0,
            granted_nusd=10**12,
            spent_before_nusd=0,
            lifetime_s=600.0,
            lease_s=PATIENCE_S,
            round_timeout_s=PATIENCE_S / 3,
        )


class Witness(MemoryStepLog):
    """A step log that sums what each worker publishes of its own, and announces departures at fixed moments.

    The announcement is made under the hub's lock while a step's exchange is complete and nobody is in the next one, so
    that the same one comes at the same moment in every run.
    """

    def __init__(self, hub: MemoryHub, slot: int, leaves: dict[int, list[int]], n_values: int) -> None:
        super().__init__(hub, f"invocation of {slot}")
        self.shared, self._leaves = hub, leaves
        self.published = np.zeros(n_values)

    def count(self, frame: bytes, first: int) -> None:
        """Add a frame of values from position ``first`` on to what was published."""
        positions, values = decode_frame(frame)
        self.published[positions + np.uint32(first)] += values

    def publish(self, part: Round) -> Arrival:
        """See `MemoryStepLog`."""
        if part.parts is None and not part.round_id.endswith("m"):  # the merged ranges are everybody's
            self.count(part.frame, 0)
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

    def _make(self, minibatches: list[Minibatch], n_active: int, sums: tuple[float, float]) -> Stats:
        self._check_conservation()
        stats = super()._make(minibatches, n_active, sums)
        rows = slice(None) if self._replica._rows is None else self._replica._rows
        self.produced.reshape(self.params.shape)[rows] += self._replica._update
        return stats

    def _scatter_reduce(self, active: list[int], rank: int, began: float) -> tuple[float, float | None]:
        plain = self._replica.encode_parts

        def encode_parts(step: int, stats: Stats, active: list[int]) -> dict[int, bytes]:
            parts = plain(step, stats, active)
            width = self.params.shape[1]
            for frame, (first, _) in zip(parts.values(), self._replica.ranges(len(active)), strict=True):
                self.log.count(frame, first * width)
            return parts

        self._replica.encode_parts = encode_parts  # type: ignore[method-assign]
        try:
            return super()._scatter_reduce(active, rank, began)
        finally:
            del self._replica.encode_parts

    def _check_conservation(self) -> None:
        np.testing.assert_allclose(self.log.published + self.held_back, self.produced, atol=1e-5)

    @property
    def held_back(self) -> Any:
        """What was produced and not published."""
        split = self._replica._split
        return 0.0 if split is None else np.asarray(split.residual).ravel()

    @property
    def params(self) -> NDArray[np.float32]:
        """The worker's parameters."""
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
    driver = MemoryStepLog(hub)
    driver.create(cap_nusd=None, reserved_nusd=0)
    driver.renew("supervisor", PATIENCE_S)
    bus = open_bus("memory://", f"conservation-{id(hub)}")
    rates = Rates(price_profile("ibm-paper"), 2048)
    workers: list[Observed] = []
    for slot in range(job.n_workers):
        shape = job.model.table_shape(job.manifests[0].shape)
        log = Witness(hub, slot, job.leaves, shape[0] * shape[1])
        assert log.claim(slot)
        prepaid = Prepaid(rates, 10**12, lambda: 0.0, lambda: 0)
        worker = Observed(job.invocation(slot), log, bus, OBJECTS, prepaid)
        worker.log, worker.produced = log, np.zeros(shape[0] * shape[1])
        workers.append(worker)
    ends: dict[int, Left | Failed] = {}
    threads = [
        threading.Thread(target=lambda s=slot, w=worker: ends.update({s: w.run()}), daemon=True)
        for slot, worker in enumerate(workers)
    ]
    for thread in threads:
        thread.start()
    if announcer is not None:
        announcer(MemoryStepLog(hub, "supervisor"))
    for thread in threads:
        thread.join(PATIENCE_S)
    bus.close(delete=True)
    assert not any(thread.is_alive() for thread in threads), "a worker hangs"
    for end in ends.values():
        assert isinstance(end, Left), end.reason
        assert end.status in ("finished", "left"), end.reason
    return Outcome(workers, [ends[slot] for slot in range(job.n_workers)], hub)


@st.composite
def jobs(draw: st.DrawFn, syncs: st.SearchStrategy[BSP | ISP]) -> Job:
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
        pattern=draw(st.sampled_from(["broadcast", "scatter-reduce"])),
        by_user=model.kind == "pmf" and n_workers > 1 and draw(st.booleans()),
    )


ISPS = st.sampled_from([0.001, 0.05, 0.7, 3.0, 1e6]).map(ISP)
BSPS = st.sampled_from([BSP(), ISP(0.0)])


def check_membership(job: Job, outcome: Outcome) -> None:
    """Those who leave, leave at the announced step; the rest take every step."""
    assert outcome.last
    for slot, end in enumerate(outcome.ends):
        first_without = outcome.hub.plan.leaves.get(slot, job.steps + 1)
        assert end.step == min(first_without - 1, job.steps)
    assert [entry.step for entry in outcome.hub.steps] == list(range(1, job.steps + 1))
    for entry in outcome.hub.steps:
        assert sorted(entry.reports) == outcome.hub.plan.active(entry.step, job.n_workers)


@settings(max_examples=60, deadline=None)
@given(jobs(ISPS))
def test_isp_loses_nothing_and_replicas_agree_at_the_end(job: Job) -> None:
    outcome = train(job)
    check_membership(job, outcome)
    everything = sum(worker.produced for worker in outcome.workers)
    for worker in outcome.workers:
        assert not np.any(worker.held_back)
        np.testing.assert_allclose(worker.log.published, worker.produced, atol=1e-5)
    initial = job.model.init(job.manifests[0].shape, job.manifests[0].mean, 3)
    for worker in outcome.last:
        np.testing.assert_allclose(worker.params, outcome.last[0].params, atol=1e-5)
        np.testing.assert_allclose(worker.params.ravel() - initial.ravel(), everything, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(jobs(ISPS | BSPS), st.sampled_from(["bf16", "int8"]))
def test_a_lossy_codec_loses_nothing_in_the_end(job: Job, codec: str) -> None:
    outcome = train(dataclasses.replace(job, codec=codec))
    everything = sum(worker.produced for worker in outcome.workers)
    initial = job.model.init(job.manifests[0].shape, job.manifests[0].mean, 3)
    for worker in outcome.last:
        assert not np.any(worker.held_back)
        np.testing.assert_allclose(worker.params.ravel() - initial.ravel(), everything, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(jobs(BSPS))
def test_bsp_keeps_replicas_bit_identical(job: Job) -> None:
    job = dataclasses.replace(job, by_user=False)  # rows with one owner are exchanged as sums of many updates
    outcome = train(job)
    check_membership(job, outcome)
    for worker in outcome.workers:
        np.testing.assert_array_equal(worker.log.published, worker.produced)
    for worker in outcome.last:
        np.testing.assert_array_equal(worker.params.view(np.uint32), outcome.last[0].params.view(np.uint32))


@settings(max_examples=25, deadline=None)
@given(jobs(ISPS | BSPS))
def test_the_same_announcements_give_the_same_model_bit_for_bit(job: Job) -> None:
    first, second = train(job), train(job)
    assert first.hub.plan == second.hub.plan
    for one, two in zip(first.workers, second.workers, strict=True):
        np.testing.assert_array_equal(one.params.view(np.uint32), two.params.view(np.uint32))


@settings(max_examples=15, deadline=None)
@given(jobs(ISPS | BSPS), st.permutations(range(5)))
def test_departures_at_any_moment_hang_nobody(job: Job, order: list[int]) -> None:
    job = dataclasses.replace(job, leaves={}, steps=job.steps + 20)

    def announce(log: MemoryStepLog) -> None:
        for slot in [slot for slot in order if slot < job.n_workers][1:]:
            log.read_steps(PATIENCE_S)  # some steps further, wherever the workers are then
            log.announce_leave([slot])

    outcome = train(job, announce)
    check_membership(job, outcome)
    for worker in outcome.last:
        np.testing.assert_allclose(worker.params, outcome.last[0].params, atol=1e-5)


@pytest.mark.parametrize("sync", [BSP(), ISP(0.7)], ids=str)
def test_a_departure_together_with_the_end_loses_nothing(sync: BSP | ISP) -> None:
    """The announced first step without slot 1 is the one after the last, or before it, or beyond it."""
    for steps in range(1, 6):
        job = Job(PMF(rank=2), SGD(0.5), sync, 3, steps, "mean", {2: [1], 3: [0]})
        outcome = train(job)
        check_membership(job, outcome)
        for worker in outcome.workers:
            np.testing.assert_allclose(worker.log.published, worker.produced, atol=1e-5)
        for worker in outcome.last:
            np.testing.assert_allclose(worker.params, outcome.last[0].params, atol=1e-5)


@pytest.mark.parametrize("sync", [BSP(), ISP(0.0), ISP(0.7)], ids=str)
def test_a_slow_leaver_finds_the_frames_of_its_last_step(sync: BSP | ISP, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who stay do not run ahead and remove what it has yet to read."""
    job = Job(PMF(rank=2), SGD(0.5), sync, 3, 10, "mean", {2: [1]})
    plain = Witness.frames

    def frames(log: Witness, part: Round) -> list[bytes]:
        if part.round_id == "3" and part.slot == 1:
            with log.shared.changed:
                log.shared.changed.wait_for(lambda: log.shared.latest >= 5, 0.2)
        return plain(log, part)

    monkeypatch.setattr(Witness, "frames", frames)
    outcome = train(job)
    assert [end.step for end in outcome.ends] == [10, 3, 10]


def test_money_runs_out_for_all_at_the_same_step() -> None:
    """One worker that asks for more than there is ends the run, in good order, for everybody."""
    job = Job(PMF(rank=2), SGD(0.5), ISP(0.7), 4, 1000, "mean", {})
    hub = MemoryHub()
    MemoryStepLog(hub).renew("supervisor", PATIENCE_S)
    bus = open_bus("memory://", f"conservation-{id(hub)}")
    rates = Rates(price_profile("ibm-paper"), 2048)
    hub.cap, hub.reserved = 10**9, 0
    ends: dict[int, Left | Failed] = {}

    class Thirsty(Prepaid):
        n_asked = 0

        def wanted(self, step_s: float) -> Wanted:
            """A tenth of the cap each step."""
            self.n_asked += 1
            return Wanted(10**8, 10**8) if step_s else Wanted()

    def work(slot: int) -> None:
        log = Witness(hub, slot, {}, 70 * 3)
        assert log.claim(slot)
        prepaid = (Thirsty if slot == 2 else Prepaid)(rates, 10**12, lambda: 0.0, lambda: 0)
        ends[slot] = Worker(job.invocation(slot), log, bus, OBJECTS, prepaid).run()

    threads = [threading.Thread(target=work, args=(slot,), daemon=True) for slot in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    bus.close(delete=True)
    assert len(ends) == 4
    assert {(end.status, end.step) for end in ends.values() if isinstance(end, Left)} == {("capped", ends[2].step)}
    assert hub.reserved == 10**9
    assert 11 <= ends[2].step <= 14


@pytest.mark.parametrize("sync", [BSP(), ISP(0.7)], ids=str)
@pytest.mark.parametrize("pattern", ["broadcast", "scatter-reduce"])
def test_tables_side_by_side_change_no_bit(sync: BSP | ISP, pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = SGD(0.2, momentum=0.9, lazy=True)
    job = Job(PMF(rank=20, l2=0.02), optimizer, sync, 3, 6, "mean", {3: [1]}, pattern=pattern)
    apart = train(job)
    monkeypatch.setattr(replica, "INTERLEAVED_BYTES", 0)
    together = train(job)
    for one, two in zip(apart.last, together.last, strict=True):
        assert one.params.flags.c_contiguous
        assert not two.params.flags.c_contiguous
        np.testing.assert_array_equal(one.params, two.params)


def test_more_workers_than_rows_to_merge_leave_ranges_empty() -> None:
    ratings = datasets.ratings(RATINGS.users, RATINGS.items % 3, RATINGS.ratings)
    owners = ratings.owners(5)
    job = Job(PMF(rank=2), SGD(0.2), BSP(), 5, 4, "mean", {}, pattern="scatter-reduce", by_user=True)
    few = pack(ratings, 24, 0, OBJECTS, owners)
    assert few.shape[1] == 3
    outcome = train(dataclasses.replace(job, packed_as=few))
    for worker in outcome.last:
        np.testing.assert_allclose(worker.params, outcome.last[0].params, atol=1e-5)
