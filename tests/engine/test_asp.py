"""Asynchronous workers: nobody waits, updates that commute are not lost, a shared model is everybody's at the end."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine.jobs import finish
from engine.threads import PATIENCE_S, Job, Witness, train
from hypothesis import given, settings
from hypothesis import strategies as st

from mlless_nb import ADMM, ASP, BSP, PMF, SGD, JobError, LogisticRegression, ScaleIn, Stop, TrainingJob, datasets
from mlless_nb.job.sync.asp import MOST_AHEAD
from mlless_nb.kernels import decode_frame
from mlless_nb.simulate import TWO_CORES, SlowWorkers, simulate

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2000, 8)).astype(np.float32)
Y = (X @ RNG.normal(size=8) + RNG.normal(0, 0.3, 2000) > 0.2).astype(np.float32)


def job(sync: Any, **changes: Any) -> TrainingJob:
    """Logistic regression on 4 workers."""
    fields: dict[str, Any] = {
        "optimizer": SGD(0.5),
        "workers": 4,
        "minibatch": 50,
        "stop": Stop(steps=120),
        "eval_every": 10,
        "validation": datasets.csr(X[:400], Y[:400]),
        "scale_in": ScaleIn.off(),
        **changes,
    }
    return TrainingJob(LogisticRegression(), data=datasets.csr(X, Y), sync=sync, **fields)


@settings(max_examples=10, deadline=None)
@given(
    slow=st.sets(st.integers(0, 2), max_size=1),
    leaves=st.dictionaries(st.integers(2, 12), st.lists(st.integers(0, 2), min_size=1, max_size=1), max_size=1),
)
def test_no_update_is_lost_and_all_end_at_the_same_step(slow: set[int], leaves: dict[int, Any]) -> None:
    one = Job(PMF(rank=2, l2=0.05), SGD(0.2), ASP(), 3, 25, "mean", leaves, slow=tuple(slow))
    outcome = train(one)
    everything = sum(worker.produced for worker in outcome.workers)
    initial = one.model.init(one.manifests[0].shape, one.manifests[0].mean, 3)
    for worker in outcome.last:
        np.testing.assert_allclose(worker.params.ravel() - initial.ravel(), everything, atol=1e-5)
    assert {end.status for end in outcome.ends} <= {"finished", "left"}
    assert all(end.step == 25 for end in outcome.ends if end.status == "finished")


@pytest.mark.redis
@pytest.mark.parametrize("shared", [False, True])
def test_a_run_trains_and_leaves_nothing(shared: bool) -> None:
    run = finish(job(ASP(shared)))
    assert run.status == "finished", run.reason
    assert run.history["step"][-1] == 120
    losses = run.history["validation_loss"]
    assert losses[np.isfinite(losses)][-1] < 0.5 * np.log(2.0)
    p = run.last_model.predict_proba(X[:400])[:, 1]
    log_loss = -np.mean(np.where(Y[:400] > 0, np.log(p), np.log1p(-p)))
    assert log_loss == pytest.approx(losses[np.isfinite(losses)][-1], rel=1e-4)  # each worker evaluated a part
    assert "Everything is shut down" in run.telemetry.state.events[-1].text


@pytest.mark.redis
@pytest.mark.parametrize("shared", [False, True])
def test_one_worker_takes_the_steps_of_sgd_at_a_rate_that_falls_with_the_epoch(shared: bool) -> None:
    run = finish(job(ASP(shared), workers=1, validation=None, stop=Stop(epochs=3), schedule="constant"))
    plain = finish(job(BSP(), workers=1, validation=None, stop=Stop(epochs=1), schedule="constant"))
    n = len(plain.history["loss"])
    np.testing.assert_array_equal(run.history["loss"][:n], plain.history["loss"])
    # With all rows in a minibatch an epoch is a step, which is easy to redo.
    whole = job(ASP(shared), workers=1, minibatch=2000, validation=None, stop=Stop(epochs=4), schedule="constant")
    alone = finish(replace(whole, model=LogisticRegression(l2=0.0, scale=False)))
    losses, weights, intercept = descent(4)
    np.testing.assert_allclose(alone.history["loss"], losses, rtol=1e-5)
    np.testing.assert_allclose(alone.last_model.params["weights"], weights, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(alone.last_model.params["intercept"], intercept, rtol=1e-4, atol=1e-6)
    assert ASP().rate_factor(0.0) == ASP().rate_factor(0.999) == 1.0
    assert ASP().rate_factor(1.0) == pytest.approx(2**-0.5)
    assert ASP().rate_factor(3.5) == pytest.approx(0.5)


def descent(n_epochs: int) -> tuple[list[float], Any, float]:
    """Gradient descent on all rows at a rate of 0.5 / sqrt(epoch): the loss before each step; weights and intercept."""
    weights, intercept, losses = np.zeros(X.shape[1]), 0.0, []
    for epoch in range(1, n_epochs + 1):
        margins = X.astype(np.float64) @ weights + intercept
        losses.append(float(np.mean(np.logaddexp(0.0, margins) - Y * margins)))
        error = (1.0 / (1.0 + np.exp(-margins)) - Y) / len(Y)
        weights = weights - 0.5 / np.sqrt(epoch) * (error @ X)
        intercept -= 0.5 / np.sqrt(epoch) * error.sum()
    return losses, weights, intercept


def test_a_shared_model_is_that_of_its_last_writer_whose_step_is_a_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Job(PMF(rank=2, l2=0.05), SGD(0.2), ASP(shared=True), 3, 1, "mean", {})
    apart = train(replace(one, sync=BSP()))
    put, get, have_read = Witness.put_model, Witness.get_model, threading.Barrier(3)
    reads, written, writing = dict[int, list[Any]](), list[tuple[Witness, bytes]](), threading.Lock()

    def read(log: Witness) -> Any:
        frame = get(log)
        if not reads.setdefault(id(log), []):
            have_read.wait(PATIENCE_S)  # nobody writes before everybody has read
        reads[id(log)].append(frame)
        return frame

    def write(log: Witness, frame: bytes) -> None:
        with writing:
            written.append((log, frame))
            put(log, frame)

    monkeypatch.setattr(Witness, "get_model", read)
    monkeypatch.setattr(Witness, "put_model", write)
    outcome = train(one)
    assert [frames[0] for frames in reads.values()] == [None] * 3
    initial = one.model.init(one.manifests[0].shape, one.manifests[0].mean, 3).ravel()
    models = {}
    for log, frame in written:
        slot = next(slot for slot, worker in enumerate(outcome.workers) if worker.log is log)
        models[slot] = decode_frame(frame)[1]
        # Under BSP all begin with the same model, and a step is the mean of the workers' updates.
        step = 3 * apart.workers[slot].produced
        np.testing.assert_allclose(models[slot] - initial, step, rtol=1e-4, atol=1e-6)
    assert sorted(models) == [0, 1, 2]
    *lost, last = models
    for worker in outcome.workers:
        np.testing.assert_array_equal(worker.params.ravel(), models[last])
    assert not any(np.array_equal(models[slot], models[last]) for slot in lost)


def test_a_slow_worker_holds_nobody_up_until_it_is_too_far_behind() -> None:
    machine = replace(TWO_CORES, cores=None, stragglers=SlowWorkers({2: 8.0}))
    steps = MOST_AHEAD
    slow, quick = (simulate(job(sync, stop=Stop(steps=steps), validation=None), machine) for sync in (BSP(), ASP()))
    assert slow.status == quick.status == "finished"
    # Here the whole run is shorter than the bound: the others wait for the slow one only at the end.
    assert quick.history["wait_s"][:-2].max() < 0.5 * slow.history["wait_s"][:-2].max()


@pytest.mark.parametrize(
    ("sync", "changes", "message"),
    [
        (ASP(), {"aggregate": "sum"}, "aggregate='sum': must be 'mean' with ASP"),
        (ASP(shared=True), {"codec": "int8"}, "codec='int8': must be 'float32' with ASP, shared model"),
        (ASP(), {"pattern": "scatter-reduce"}, "pattern='scatter-reduce'.*with ASP"),
        (ASP(), {"algorithm": ADMM(1.0)}, "BSP"),
        (ASP(), {"execution": "events"}, r"sync=.*BSP\(\) with execution"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(sync: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError, match=message) as caught:
        job(sync, **changes)
    assert "\n" not in str(caught.value)


def test_a_shared_model_is_not_simulated_and_shared_is_a_flag() -> None:
    with pytest.raises(JobError, match="no shared model is simulated"):
        simulate(job(ASP(shared=True)), TWO_CORES)
    with pytest.raises(JobError, match=r"ASP\.shared='yes'"):
        ASP(shared="yes")  # type: ignore[arg-type]
