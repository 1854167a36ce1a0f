"""Backup workers: replicas stay equal, late updates are dropped and nothing else is, and stragglers hold nobody up."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine.jobs import PATIENCE_S, digest, finish, ratings, wait_for_step
from engine.test_faults import eventually, function_processes, group_of
from engine.threads import Job, Outcome, train
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import mlless_nb
from mlless_nb import (
    ADMM,
    BSP,
    DBW,
    PMF,
    SGD,
    AdaGrad,
    AdaSync,
    BackupWorkers,
    JobError,
    LogisticRegression,
    ScaleIn,
    Stop,
    TrainingJob,
    TrainingRun,
    datasets,
)
from mlless_nb.job.sync import Sync
from mlless_nb.kernels import decode_frame
from mlless_nb.simulate import TWO_CORES, SlowWorkers, simulate
from mlless_nb.telemetry import record

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2000, 8)).astype(np.float32)
Y = (X @ RNG.normal(size=8) + RNG.normal(0, 0.3, 2000) > 0.2).astype(np.float32)
SYNCS: list[Sync] = [BackupWorkers(2), DBW(), DBW(gain="blind"), AdaSync(2)]


def job(sync: Sync, **changes: Any) -> TrainingJob:
    """Logistic regression on 4 workers."""
    fields: dict[str, Any] = {
        "workers": 4,
        "minibatch": 50,
        "stop": Stop(steps=120),
        "eval_every": 10,
        "validation": datasets.csr(X[:400], Y[:400]),
        "scale_in": ScaleIn.off(),
        **changes,
    }
    return TrainingJob(LogisticRegression(), SGD(0.5), datasets.csr(X, Y), sync=sync, **fields)


@settings(max_examples=12, deadline=None)
@given(
    k=st.integers(1, 4),
    slow=st.sets(st.integers(0, 3), max_size=2),
    leaves=st.dictionaries(st.integers(2, 20), st.lists(st.integers(0, 3), min_size=1, max_size=2), max_size=2),
    momentum=st.sampled_from([0.0, 0.9]),
)
def test_replicas_are_equal_bit_for_bit_whoever_is_late_or_leaves(
    k: int, slow: set[int], leaves: dict[int, list[int]], momentum: float
) -> None:
    model, optimizer = PMF(rank=2, l2=0.05), SGD(0.2, momentum)
    one = Job(model, optimizer, BackupWorkers(k), 4, 30, "mean", leaves, slow=tuple(slow))
    outcome = train(one)
    for worker, end in zip(outcome.workers, outcome.ends, strict=True):
        assert end.status in ("finished", "left"), end
        assert end.status == "left" or end.step == 30
        if worker in outcome.last:
            np.testing.assert_array_equal(worker.params, outcome.last[0].params)
    entries = outcome.hub.steps
    assert [entry.step for entry in entries] == list(range(1, 31))
    for entry in entries:
        has_evaluated = entry.step > 1 and (entry.step - 1) % 3 == 0
        assert len(entry.reports) == (entry.n_workers if has_evaluated else min(k, entry.n_workers))
        assert entry.n_workers == 4 - sum(first <= entry.step for first in outcome.hub.plan.leaves.values())
    assert not outcome.hub.aborted


def test_a_late_update_counts_for_nothing_and_the_others_for_1_over_k() -> None:
    one = Job(PMF(rank=2), SGD(0.2), BackupWorkers(3), 4, 12, "mean", {}, slow=(2,))
    outcome, of_all = train(one), train(replace(one, sync=BSP(), steps=1, slow=()))
    initial = one.model.init(one.manifests[0].shape, one.manifests[0].mean, 3).ravel()
    moved = outcome.last[0].params.ravel() - initial
    published = sum(worker.log.published for worker in outcome.workers)
    assert any(2 not in entry.reports for entry in outcome.hub.steps)
    assert not np.allclose(moved, published, atol=1e-6)  # those of worker 2 are missing
    counted = sum(update(outcome, entry.step, slot) for entry in outcome.hub.steps for slot in entry.reports)
    np.testing.assert_allclose(moved, counted, atol=1e-6)
    # All begin with the same model, and each with the minibatch that it has under BSP, whose mean is over all workers.
    for slot in outcome.hub.steps[0].reports:
        np.testing.assert_allclose(3 * update(outcome, 1, slot), 4 * update(of_all, 1, slot), rtol=1e-4, atol=1e-7)
        assert update(outcome, 1, slot).any()


def update(outcome: Outcome, step: int, slot: int) -> NDArray[np.float64]:
    """What ``slot`` published in ``step``."""
    positions, values = decode_frame(outcome.workers[slot].log.own_frames[step])
    found = np.zeros(outcome.workers[slot].params.size)
    found[positions] = values
    return found


@pytest.mark.redis
@pytest.mark.long
def test_waiting_for_all_is_bsp_bit_for_bit() -> None:
    plain, quorum = (finish(job(sync, eval_every=40)) for sync in (BSP(), BackupWorkers(4)))
    assert digest(plain) == digest(quorum)
    np.testing.assert_array_equal(plain.history["loss"], quorum.history["loss"])


@pytest.mark.redis
@pytest.mark.parametrize("sync", SYNCS, ids=str)
def test_a_run_trains_and_its_model_is_what_all_workers_evaluated(sync: Sync) -> None:
    run = finish(job(sync))
    assert run.status == "finished", run.reason
    assert run.history["step"][-1] == 120
    assert set(run.history["n_workers"]) == {4.0}
    assert run.history["n_updates"].min() >= 1
    losses = run.history["validation_loss"]
    losses = losses[np.isfinite(losses)]
    assert losses[-1] < 0.5 * np.log(2.0)
    p = run.model.predict_proba(X[:400])[:, 1]
    log_loss = -np.mean(np.where(Y[:400] > 0, np.log(p), np.log1p(-p)))
    assert log_loss == pytest.approx(losses.min(), rel=1e-5)
    assert "Everything is shut down" in run.telemetry.state.events[-1].text


@pytest.mark.redis
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at processes through /proc")
def test_dbw_stops_waiting_for_a_real_worker_that_is_slow_and_tells_why() -> None:
    run = mlless_nb.train(job(DBW(gain="blind"), validation=None, stop=Stop(steps=1_000_000)))
    try:
        wait_for_step(run, 1)
        slow = function_processes(group_of(run))[3]
        assert eventually(lambda: hinder(slow) or told_of(run), PATIENCE_S)
        wait_for_step(run, run.telemetry.state.step + 5)
    finally:
        run.stop()
    assert run.wait(PATIENCE_S) == "stopped", run.reason
    assert run.history["n_updates"][0] == 4
    assert run.history["n_updates"].min() < 4
    first = next(one for one in map(json.loads, (record.runs_folder() / run.id / record.EVENTS).open()))
    assert first["kind"] == "quorum"
    assert 1 <= first["numbers"]["quorum"] < 4
    assert first["numbers"]["time_s"] < first["numbers"]["time_of_all_s"]
    assert first["text"] == told_of(run)[0]


def hinder(pid: int) -> None:
    """Let a worker stand still for many of its steps."""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.1)
    os.kill(pid, signal.SIGCONT)


def told_of(run: TrainingRun) -> list[str]:
    """The events of ``run`` that are about the number of updates that a step waits for."""
    return [event.text for event in run.telemetry.state.events if "steps wait for" in event.text]


def test_dbw_leaves_slow_workers_behind_and_tells_why() -> None:
    machine = replace(TWO_CORES, cores=None, stragglers=SlowWorkers({2: 30.0, 3: 30.0}))
    slow, quick = (simulate(job(sync, eval_every=60, stop=Stop(steps=300)), machine) for sync in (BSP(), DBW()))
    assert slow.status == quick.status == "finished"
    assert quick.step_s < 0.3 * slow.step_s
    decisions = [decision for decision in quick.decisions if decision["kind"] == "quorum"]
    assert decisions
    assert {"quorum", "gain", "time_s"} <= decisions[-1]["numbers"].keys()
    assert any("steps wait for" in event.text for event in quick.events)


@pytest.mark.parametrize("slow", [0, 3])
def test_a_straggler_is_never_too_far_behind(slow: int) -> None:
    machine = replace(TWO_CORES, cores=None, stragglers=SlowWorkers({slow: 400.0}))
    run = simulate(job(BackupWorkers(3), validation=None, stop=Stop(steps=200)), machine)
    assert run.status == "finished", run.reason
    assert run.history["step"][-1] == 200


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sync": BackupWorkers(5)}, r"BackupWorkers\.k=5: must be at most 4"),
        ({"sync": AdaSync(9)}, r"AdaSync\.first=9: must be at most 4"),
        ({"codec": "bf16"}, "codec='bf16': must be 'float32' with DBW"),
        ({"aggregate": "sum"}, "aggregate='sum': must be 'mean' with DBW"),
        ({"pattern": "scatter-reduce"}, "pattern='scatter-reduce': must be 'auto' or 'broadcast' with DBW"),
        ({"pattern": "allreduce"}, "pattern='allreduce': must be 'auto' or 'broadcast' with DBW"),
        ({"scale_in": ScaleIn(threshold=0.2)}, r"ScaleIn\.off\(\) with DBW"),
        ({"algorithm": ADMM(1.0)}, "BSP"),
        ({"execution": "map-reduce"}, r"sync=.*BSP\(\) with execution"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError, match=message) as caught:
        job(changes.pop("sync", DBW()), **changes)
    assert "\n" not in str(caught.value)


def test_users_are_not_sharded_and_adaptive_optimisers_are_not_estimated() -> None:
    with pytest.raises(JobError, match="partition='user': must be 'auto' or 'rows'"):
        TrainingJob(PMF(rank=2), SGD(1.0), ratings(), sync=BackupWorkers(2), workers=4, partition="user")
    with pytest.raises(JobError, match=r"DBW\(gain='blind'\) with AdaGrad"):
        TrainingJob(LogisticRegression(), AdaGrad(0.1), datasets.csr(X, Y), sync=DBW(), workers=4)
    TrainingJob(LogisticRegression(), AdaGrad(0.1), datasets.csr(X, Y), sync=DBW(gain="blind"), workers=4)
    for bad in (0, -1, 1.5, True):
        with pytest.raises(JobError, match=r"BackupWorkers\.k"):
            BackupWorkers(bad)  # type: ignore[arg-type]
    with pytest.raises(JobError, match="'estimated' or 'paper' or 'blind'"):
        DBW(gain="seen")
