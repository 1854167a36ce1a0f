"""What bounded staleness promises: how far workers run ahead, that all of them end, and that nothing is lost."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import redis
from engine.jobs import cost_of_a_start, digest, finish, job, wait_for_step
from engine.threads import PATIENCE_S, Job, Observed, Outcome, check_membership, jobs, train
from hypothesis import given, settings
from hypothesis import strategies as st

import mlless_nb
from mlless_nb import BSP, ISP, PMF, SGD, SSP, JobError, Stop
from mlless_nb.exchange import MemoryCoordinator
from mlless_nb.job.sync import Sync

STALE: st.SearchStrategy[Sync] = st.one_of(
    st.builds(SSP, st.integers(1, 4)),
    st.builds(ISP, st.sampled_from([0.001, 0.7, 1e6]), st.integers(1, 4), st.booleans()),
)
ALL: st.SearchStrategy[Sync] = st.one_of(
    st.just(BSP()),
    st.builds(SSP, st.integers(0, 4)),
    st.builds(ISP, st.sampled_from([0.0, 0.05, 0.7, 1e6]), st.integers(0, 3), st.booleans()),
)


def fit(job: Job) -> Job:
    """``job`` as its protocol allows it."""
    return dataclasses.replace(job, scatter_from=0, by_user=False) if job.sync.staleness else job


def check_accounts(job: Job, outcome: Outcome) -> None:
    """Everything that was produced was published or taken back, and the last replicas hold what was published."""
    everything = sum(worker.produced for worker in outcome.workers)
    taken_back = sum(worker.averaged for worker in outcome.workers)
    for worker in outcome.workers:
        assert not np.any(worker.held_back)
        np.testing.assert_allclose(worker.accounted_for, worker.produced, atol=1e-6, rtol=1e-6)
    initial = job.model.init(job.manifests[0].shape, job.manifests[0].mean, 3)
    for worker in outcome.last:
        np.testing.assert_allclose(worker.params, outcome.last[0].params, atol=1e-5)
        np.testing.assert_allclose(worker.params.ravel() - initial.ravel(), everything - taken_back, atol=1e-5)


def check_staleness(job: Job, outcome: Outcome) -> None:
    """Nobody computes on what is older than the protocol allows."""
    for entry in outcome.hub.steps:
        for report in entry.reports.values():
            assert 0 <= report.staleness <= job.sync.staleness


@settings(max_examples=60, deadline=None)
@given(jobs(ALL), st.sets(st.integers(0, 4), max_size=2))
def test_whatever_the_protocol_nothing_is_lost_and_all_end_together(job: Job, slow: set[int]) -> None:
    job = dataclasses.replace(fit(job), slow=tuple(slow))
    outcome = train(job)
    check_membership(job, outcome)
    check_accounts(job, outcome)
    check_staleness(job, outcome)


@settings(max_examples=15, deadline=None)
@given(jobs(STALE), st.sampled_from(["bf16", "int8"]))
def test_a_lossy_codec_loses_nothing_with_staleness_either(job: Job, codec: str) -> None:
    job = dataclasses.replace(fit(job), codec=codec)
    check_accounts(job, train(job))


@settings(max_examples=15, deadline=None)
@given(jobs(st.just(BSP())))
def test_without_staleness_it_is_bsp_bit_for_bit(job: Job) -> None:
    plain = train(job)
    for sync in (SSP(0), ISP(0.0, staleness=0), ISP(0.0, averages=True)):
        outcome = train(dataclasses.replace(job, sync=sync))
        for one, two in zip(plain.workers, outcome.workers, strict=True):
            np.testing.assert_array_equal(one.params.view(np.uint32), two.params.view(np.uint32))


@pytest.mark.parametrize("sync", [SSP(1), SSP(3), ISP(0.7, staleness=2)], ids=str)
def test_others_run_ahead_of_a_slow_worker_by_the_slack_and_no_further(
    sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Observed, "moment_s", PATIENCE_S)
    steps = 12
    seen: list[int] = []
    plain = MemoryCoordinator.publish

    def publish(log: MemoryCoordinator, part: object) -> object:
        if part.slot == 0 and part.step <= steps - sync.staleness:  # type: ignore[attr-defined]
            seen.append(log._hub.latest - part.step)  # type: ignore[attr-defined]
        if part.slot == 0 and part.step >= steps - sync.staleness:  # type: ignore[attr-defined]
            workers[0].is_slow = False  # there are no further steps to run ahead to
        return plain(log, part)  # type: ignore[arg-type]

    workers: list[Observed] = []
    initialise = Observed.observe_averages

    def observe(worker: Observed) -> None:
        workers.append(worker)
        initialise(worker)

    monkeypatch.setattr(Observed, "observe_averages", observe)
    monkeypatch.setattr(MemoryCoordinator, "publish", publish)
    job = Job(PMF(rank=2), SGD(0.5), sync, 3, steps, "mean", {}, slow=(0,))
    outcome = train(job)
    assert seen == [sync.staleness] * (steps - sync.staleness)
    check_accounts(job, outcome)
    check_staleness(job, outcome)
    behind = [max(report.staleness for report in entry.reports.values()) for entry in outcome.hub.steps]
    assert max(behind) == sync.staleness


@pytest.mark.parametrize("sync", [SSP(2), ISP(0.7, staleness=3)], ids=str)
def test_a_target_reached_ends_all_workers_at_one_step_with_one_reason(sync: Sync) -> None:
    job = Job(PMF(rank=2), SGD(0.5), sync, 4, 400, "mean", {}, slow=(1,), stop=Stop(target=1.5, steps=400))
    outcome = train(job)
    assert len({(end.step, end.status, end.reason) for end in outcome.ends}) == 1  # type: ignore[union-attr]
    end = outcome.ends[0]
    assert end.step < 400
    assert "target reached" in end.reason
    check_accounts(job, outcome)


@pytest.mark.parametrize("n", [40, pytest.param(200, marks=pytest.mark.long)])
def test_scale_ins_at_any_moment_hang_nobody_and_lose_nothing(n: int) -> None:
    """As often as not under ISP: there the same decisions give the same model."""
    random, n_left, n_runs = np.random.default_rng(4), 0, 0
    syncs = [ISP(0.7), ISP(0.7, averages=True), SSP(3), BSP(), ISP(0.7, 2), ISP(0.05, 3, True)]
    while n_left < n:
        sync = syncs[n_runs % len(syncs)]
        n_workers = int(random.integers(3, 9))
        slow = (int(random.integers(n_workers)),)
        job = Job(PMF(rank=2), SGD(0.3), sync, n_workers, int(random.integers(8, 40)), "mean", {}, slow=slow)
        going = [int(slot) for slot in random.permutation(n_workers)[1:]]
        groups = [going[first : first + 2] for first in range(0, len(going), 2)] if n_runs % 2 else [[s] for s in going]

        def announce(log: MemoryCoordinator, groups: list[list[int]] = groups) -> None:
            for slots in groups:
                log.read_steps(0.01)
                log.announce_leave(slots)

        outcome = train(job, announce)
        check_membership(job, outcome)
        check_accounts(job, outcome)
        check_staleness(job, outcome)
        n_left += sum(end.status == "left" for end in outcome.ends if isinstance(end, mlless_nb.bus.messages.Left))
        n_runs += 1
        leaves = outcome.hub.plan.leaves
        if sync.staleness == 0 and min(leaves.values()) > 2:
            moments: dict[int, list[int]] = {}
            for slot, step in leaves.items():
                moments.setdefault(step - 2, []).append(slot)
            again = train(dataclasses.replace(job, leaves=moments))
            assert again.hub.plan.leaves == leaves
            for one, two in zip(outcome.workers, again.workers, strict=True):
                np.testing.assert_array_equal(one.params.view(np.uint32), two.params.view(np.uint32))


# -- averaging in the replica of a worker that leaves


def test_averaging_is_the_mean_of_the_replica_and_the_leaving_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the paper has it, of real replicas: what stays is halfway to the one that leaves, in every parameter."""
    seen: list[tuple[int, int, np.ndarray, np.ndarray]] = []
    plain = Observed.observe_averages

    def observe(worker: Observed) -> None:
        plain(worker)
        average = worker._replica.average

        def observed() -> None:
            before = worker.params.copy()
            average()
            seen.append((worker._slot, worker._step, before, worker.params.copy()))

        worker._replica.average = observed  # type: ignore[method-assign]

    monkeypatch.setattr(Observed, "observe_averages", observe)
    leaves = {3: [4], 5: [1], 8: [2]}
    job = Job(PMF(rank=3, l2=0.02), SGD(0.5, momentum=0.9), ISP(0.7, averages=True), 5, 14, "mean", leaves)
    outcome = train(job)
    assert len(seen) == 4 + 3 + 2
    leaving = {step: slots[0] for step, slots in ((step + 1, slots) for step, slots in leaves.items())}
    for slot, step, before, after in seen:
        # The leaving worker's replica is as it was when it left.
        theirs = outcome.workers[leaving[step]].params
        assert slot != leaving[step]
        assert np.abs(before - theirs).max() > 1e-3
        np.testing.assert_allclose(after, (before + theirs) / 2, atol=1e-6)
    check_accounts(job, outcome)
    assert sum(np.abs(worker.averaged).sum() for worker in outcome.workers) > 0


def test_the_papers_formula_averages_whole_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without publishing first: the leaving worker's parameters include its residual, half of which is lost."""
    seen: list[tuple[int, int, np.ndarray, np.ndarray]] = []
    plain = Observed.observe_averages

    def observe(worker: Observed) -> None:
        plain(worker)
        average = worker._handing_over._average_whole

        def observed(round_id: str, step: int, givers: list[int], takers: list[int]) -> None:
            before = worker.params.copy()
            average(round_id, step, givers, takers)
            if worker._slot in takers:
                seen.append((worker._slot, worker._step, before, worker.params.copy()))

        worker._handing_over._average_whole = observed  # type: ignore[method-assign]

    monkeypatch.setattr(Observed, "observe_averages", observe)
    monkeypatch.setattr(Observed, "_check_conservation", lambda worker: None)  # the formula loses updates
    job = Job(PMF(rank=3, l2=0.02), SGD(0.5, momentum=0.9), ISP(0.7, averages="paper"), 4, 12, "mean", {3: [3], 6: [1]})
    outcome = train(job)
    replicas = {step: outcome.workers[slot].params for step, slot in ((4, 3), (7, 1))}
    averaged: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
    for slot, step, before, after in seen:
        averaged.setdefault((slot, step), (before, after))  # the best replica's turn comes second
    assert sorted(averaged) == [(0, 4), (0, 7), (1, 4), (2, 4), (2, 7)]
    for (_, step), (before, after) in averaged.items():
        assert np.abs(before - replicas[step]).max() > 1e-3
        np.testing.assert_allclose(after, (before + replicas[step]) / 2, atol=1e-6)
    one, two = outcome.last
    np.testing.assert_array_equal(one.params.view(np.uint32), two.params.view(np.uint32))


def test_the_quality_of_all_replicas_is_measured_on_the_same_rows() -> None:
    job = Job(PMF(rank=2), SGD(0.5), ISP(0.7), 3, 16, "mean", {})
    entries = train(job).hub.steps
    qualities = [[entry.reports[slot][4:6] for slot in range(3)] for entry in entries]
    assert qualities[:3] == [[(0.0, 0.0)] * 3] * 3  # the first evaluation is after step 3
    for row in qualities[3:]:
        assert len({count for _, count in row}) == 1
        assert row[0][1] > 0
        assert len(set(row)) == 3  # replicas differ
    assert len({row[0] for row in qualities[3:]}) == 5  # one for each evaluation
    for sync in (BSP(), ISP(0.0)):
        reports = [entry.reports for entry in train(dataclasses.replace(job, sync=sync)).hub.steps]
        assert all(
            (report.quality_sum, report.quality_count) == (0.0, 0.0) for row in reports for report in row.values()
        )
    assert any(
        report.quality_count > 0
        for entry in train(dataclasses.replace(job, sync=SSP(2))).hub.steps
        for report in entry.reports.values()
    )


# -- whole runs


def test_a_run_with_staleness_finishes_and_tells_how_stale_it_was() -> None:
    run = finish(job(sync=SSP(3), stop=Stop(steps=40)))
    assert run.status == "finished", run.reason
    history = run.history
    assert history["step"].tolist() == list(range(1, 41))
    assert ((history["staleness"] >= 0) & (history["staleness"] <= 3)).all()
    assert history["loss"][-1] < history["loss"][0]
    assert run.telemetry.state.validation_loss < history["loss"][0]
    assert all(np.isfinite(array).all() for array in run.model.params.values())


@pytest.mark.parametrize("sync", [pytest.param(SSP(3), marks=pytest.mark.long), ISP(0.7, staleness=2)], ids=str)
def test_workers_leave_a_run_with_staleness_and_nothing_is_left_of_it(sync: Sync, redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    known = set(client.keys("*"))
    run = mlless_nb.train(job(sync=sync, stop=Stop(steps=1_000_000), redis=redis_url))
    wait_for_step(run, 5)
    run.scale_in(worker_id=0)
    seen = 0
    while run.telemetry.state.n_workers > 3:
        seen = run.telemetry.wait_for_change(seen, PATIENCE_S)
    run.scale_in(2)
    while run.telemetry.state.n_workers > 1:
        seen = run.telemetry.wait_for_change(seen, PATIENCE_S)
    wait_for_step(run, run.telemetry.state.step + 5)
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped"
    history = run.history
    assert history["step"].tolist() == list(range(1, history.n_steps + 1))
    # No minibatch is skipped or taken twice.
    np.testing.assert_allclose(np.diff(history["epoch"] * 18, prepend=0), 4, rtol=1e-6)
    assert run.telemetry.state.events[-1].text.endswith("Everything is shut down")
    assert set(client.keys("*")) == known


@pytest.mark.parametrize("n_starts", [4, 7])
@pytest.mark.long
def test_a_cap_holds_with_staleness(n_starts: int) -> None:
    cap = n_starts * cost_of_a_start()
    run = finish(job(sync=SSP(3), stop=Stop(steps=1_000_000), budget=cap))
    assert run.status == "capped", run.reason
    assert run.cost.total <= cap
    assert run.model.predict([0], [0]).shape == (1,)


def test_a_loss_that_explodes_fails_with_staleness_too() -> None:
    run = finish(job(optimizer=SGD(learning_rate=1e9), sync=SSP(2), stop=Stop(steps=200)))
    assert run.status == "failed"
    assert "lower the learning rate" in run.reason
    assert run.telemetry.state.step < 20
    assert all(np.isfinite(array).all() for array in run.model.params.values())


def test_updates_travel_over_two_servers_with_staleness(redis_url: str) -> None:
    base = redis_url.rsplit("/", 1)[0]
    run = finish(job(sync=ISP(0.7, staleness=2), redis=[f"{base}/0", f"{base}/1"]))
    assert run.status == "finished", run.reason
    assert run.history.n_steps == 20


def test_staleness_0_is_bsp_in_a_whole_run_too() -> None:
    bsp = finish(job(sync=BSP()))
    assert digest(finish(job(sync=SSP(0)))) == digest(bsp)
    assert not bsp.history["staleness"].any()


@pytest.mark.parametrize("wrong", [{"pattern": "scatter-reduce"}, {"partition": "user"}], ids=str)
@pytest.mark.parametrize("sync", [SSP(2), ISP(0.7, staleness=1)], ids=str)
def test_patterns_that_need_workers_at_one_step_are_refused(sync: Sync, wrong: dict[str, str]) -> None:
    with pytest.raises(JobError, match=rf"^{next(iter(wrong))}=.*must be .* with {sync}") as caught:
        job(sync=sync, **wrong)
    assert "\n" not in str(caught.value)
    assert job(sync=SSP(0), **wrong).sync == SSP(0)
