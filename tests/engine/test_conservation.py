"""What training promises of updates, with workers as threads in this process: nothing is lost, replicas agree."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import numpy as np
import pytest
from engine.threads import OBJECTS, PATIENCE_S, RATINGS, Job, Witness, check_membership, jobs, train
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlless_nb import BSP, ISP, PMF, SGD, Adam, datasets
from mlless_nb.bus import open_bus
from mlless_nb.bus.messages import Failed, Left
from mlless_nb.data.prepare import pack
from mlless_nb.exchange import MemoryCoordinator, MemoryHub, RoundRequest
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import Prepaid
from mlless_nb.money.request import BudgetRequest
from mlless_nb.storage.worker_state import assembled
from mlless_nb.worker import table_layout
from mlless_nb.worker.loop import Worker

ISPS = st.sampled_from([0.001, 0.05, 0.7, 3.0, 1e6]).map(ISP)
BSPS = st.sampled_from([BSP(), ISP(0.0)])


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
        np.testing.assert_array_equal(worker.params.view(np.uint32), outcome.last[0].params.view(np.uint32))
        np.testing.assert_allclose(worker.params.ravel() - initial.ravel(), everything, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(jobs(ISPS | BSPS), st.sampled_from(["bf16", "int8"]))
def test_a_lossy_codec_loses_nothing_in_the_end(job: Job, codec: str) -> None:
    outcome = train(dataclasses.replace(job, codec=codec))
    everything = sum(worker.produced for worker in outcome.workers)
    initial = job.model.init(job.manifests[0].shape, job.manifests[0].mean, 3)
    for worker in outcome.last:
        assert not np.any(worker.held_back)
        np.testing.assert_array_equal(worker.params.view(np.uint32), outcome.last[0].params.view(np.uint32))
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


#: Four workers, users sharded; when two have left the others adopt their shards, momentum and all.
ADOPTION = Job(PMF(rank=2), SGD(0.2, momentum=0.9), BSP(), 4, 13, "mean", {2: [3], 5: [2]}, by_user=True)


@settings(max_examples=40, deadline=None)
@given(jobs(BSPS | ISPS), st.booleans())
@example(ADOPTION, True)
@example(dataclasses.replace(ADOPTION, optimizer=Adam(0.02), local_steps=2), True)
@example(dataclasses.replace(ADOPTION, scatter_from=3), True)
def test_a_checkpoint_has_what_everybody_made(job: Job, by_user: bool) -> None:
    job = dataclasses.replace(job, steps=13, by_user=by_user and job.model.kind == "pmf")
    outcome = train(job)
    initial = job.model.init(job.manifests[0].shape, job.manifests[0].mean, 3)
    for step in (4, 8, 12):
        parts = {
            slot: worker.checkpoints[step] for slot, worker in enumerate(outcome.workers) if step in worker.checkpoints
        }
        assert sorted(parts) == parts[min(parts)].active
        made = sum(worker.produced_by.get(step, worker.produced) for worker in outcome.workers)
        np.testing.assert_allclose(assembled(parts).params.ravel() - initial.ravel(), made, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(jobs(ISPS | BSPS))
@example(ADOPTION)
@example(dataclasses.replace(ADOPTION, sync=ISP(0.7), optimizer=SGD(6.0)))
@example(dataclasses.replace(ADOPTION, optimizer=SGD(6.0), scatter_from=3))
def test_the_model_that_is_kept_is_what_everybody_had_made_by_the_best_evaluation(job: Job) -> None:
    outcome = train(job)
    initial = job.model.init(job.manifests[0].shape, job.manifests[0].mean, 3)
    steps = {end.kept_step for end in outcome.ends if isinstance(end, Left) and end.status != "left"}
    assert len(steps) == 1
    step = steps.pop()
    made = sum(worker.evaluated.get(step, worker.produced) for worker in outcome.workers)
    for worker in outcome.last:
        np.testing.assert_allclose(worker.best_params, outcome.last[0].best_params, atol=1e-5)
        if job.sync.threshold_at(1) > 0:
            np.testing.assert_array_equal(worker.best_params, outcome.last[0].best_params)
        np.testing.assert_allclose(worker.best_params.ravel() - initial.ravel(), made, rtol=1e-4, atol=1e-5)


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

    def announce(log: MemoryCoordinator) -> None:
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

    def frames(log: Witness, part: RoundRequest, slots: Any = None) -> list[bytes]:
        if part.round_id == "3" and part.slot == 1:
            with log.shared.changed:
                log.shared.changed.wait_for(lambda: log.shared.latest >= 5, 0.2)
        return plain(log, part, slots)

    monkeypatch.setattr(Witness, "frames", frames)
    outcome = train(job)
    assert [end.step for end in outcome.ends] == [10, 3, 10]


def test_money_runs_out_for_all_at_the_same_step() -> None:
    """One worker that asks for more than there is ends the run, in good order, for everybody."""
    job = Job(PMF(rank=2), SGD(0.5), ISP(0.7), 4, 1000, "mean", {})
    hub = MemoryHub()
    MemoryCoordinator(hub).renew("supervisor", PATIENCE_S)
    bus = open_bus("memory://", f"conservation-{id(hub)}")
    rates = Rates(price_profile("ibm-paper"), 2048)
    hub.cap, hub.reserved = 10**9, 0
    ends: dict[int, Left | Failed] = {}

    class Thirsty(Prepaid):
        n_asked = 0

        def wanted(self, step_s: float, more_s: float = 0.0) -> BudgetRequest:
            """A tenth of the cap each step."""
            self.n_asked += 1
            return BudgetRequest(10**8, 10**8) if step_s else BudgetRequest()

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
@pytest.mark.parametrize("scatter_from", [0, 2, 3])
def test_tables_side_by_side_change_no_bit(sync: BSP | ISP, scatter_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = SGD(0.2, momentum=0.9, lazy=True)
    job = Job(PMF(rank=20, l2=0.02), optimizer, sync, 3, 6, "mean", {3: [1]}, scatter_from=scatter_from)
    apart = train(job)
    monkeypatch.setattr(table_layout, "INTERLEAVED_BYTES", 0)
    together = train(job)
    for one, two in zip(apart.last, together.last, strict=True):
        assert one.best_params.flags.c_contiguous
        assert not two.best_params.flags.c_contiguous
        np.testing.assert_array_equal(one.params, two.params)


def test_more_workers_than_rows_to_merge_leave_ranges_empty() -> None:
    ratings = datasets.ratings(RATINGS.users, RATINGS.items % 3, RATINGS.ratings)
    owners = ratings.owners(5)
    job = Job(PMF(rank=2), SGD(0.2), BSP(), 5, 4, "mean", {}, scatter_from=2, by_user=True)
    few = pack(ratings, 24, 0, OBJECTS, owners)
    assert few.shape[1] == 3
    outcome = train(dataclasses.replace(job, packed_as=few))
    for worker in outcome.last:
        np.testing.assert_allclose(worker.params, outcome.last[0].params, atol=1e-5)
