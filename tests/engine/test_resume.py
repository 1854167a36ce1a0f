"""Going on from an ended run: what comes is what would have come, and nothing that was trained or found is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine.jobs import PATIENCE_S, cost_of_a_start, digest, finish, job, ratings, wait_for_step

import mlless_nb
from mlless_nb import (
    BSP,
    FTRL,
    ISP,
    PMF,
    SGD,
    AdaGrad,
    Adam,
    CommandError,
    JobError,
    LogisticRegression,
    ScaleIn,
    Stop,
    TrainingRun,
    datasets,
)
from mlless_nb.driver import runs
from mlless_nb.telemetry import record

#: 3,600 rows in minibatches of 360: an epoch is ten steps.
ALONE = {"workers": 1, "minibatch": 360, "sync": BSP(), "schedule": "constant"}
MOMENTUM = SGD(learning_rate=2.0, momentum=0.9, nesterov=True)


def go_on(run: TrainingRun | str, **changes: Any) -> TrainingRun:
    """Train the job of ``changes`` to its end, on from ``run``."""
    resumed = mlless_nb.train(job(**changes), resume=run)
    resumed.wait(PATIENCE_S)
    assert not resumed.telemetry.state.is_live, resumed.telemetry.state
    return resumed


def told(run: TrainingRun) -> str:
    """All that was told of ``run``."""
    return "\n".join(event.text for event in run.telemetry.state.events)


def losses(*runs: TrainingRun) -> np.ndarray:
    """The losses of ``runs``, one after the other."""
    return np.concatenate([run.history["loss"] for run in runs])


@pytest.fixture(scope="module")
def first() -> TrainingRun:
    """A run of ten steps of four workers."""
    return finish(job(name="first", stop=Stop(steps=10)))


@pytest.mark.parametrize(
    "optimizer",
    [
        MOMENTUM,
        FTRL(1.0),
        *(
            pytest.param(rule, marks=pytest.mark.long)
            for rule in (SGD(0.5, decay=0.5), Adam(0.02, decay=0.1), AdaGrad(0.1))
        ),
    ],
    ids=lambda optimizer: optimizer.kind,
)
def test_two_runs_are_one_bit_for_bit(optimizer: Any) -> None:
    whole = finish(job(**ALONE, optimizer=optimizer))
    half = finish(job(**ALONE, optimizer=optimizer, stop=Stop(steps=10)))
    rest = go_on(half, **ALONE, optimizer=optimizer, stop=Stop(steps=10))
    assert (rest.status, rest.resumed_from) == ("finished", half.name), rest.reason
    np.testing.assert_array_equal(losses(half, rest), losses(whole))
    assert rest.history["step"].tolist() == list(range(1, 11))
    for name, array in whole.last_model.params.items():
        np.testing.assert_array_equal(rest.last_model.params[name], array)


@pytest.mark.long
def test_without_the_state_it_is_another_descent_and_that_is_told() -> None:
    half = finish(job(**ALONE, optimizer=Adam(0.1), stop=Stop(steps=10)))
    rest = go_on(half, **ALONE, optimizer=Adam(0.1), stop=Stop(steps=10))
    anew = go_on(half, **ALONE, optimizer=AdaGrad(0.1), stop=Stop(steps=10))
    assert "The optimiser begins without state: it was Adam 0.1 before" in told(anew)
    assert losses(anew)[0] == losses(rest)[0]
    assert np.abs(losses(anew) - losses(rest)).max() > 1e-3


@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.long)])
def test_two_runs_are_one_with_owners_and_with_other_workers(workers: int) -> None:
    """Each of four shards has one minibatch: a step takes all ratings, however many workers there are."""
    four = {"optimizer": MOMENTUM, "sync": BSP(), "partition": "user", "schedule": "constant", "minibatch": 1000}
    whole = finish(job(**four))
    half = finish(job(**four, stop=Stop(steps=10)))
    rest = go_on(half, **four | {"workers": workers, "minibatch": 4000 // workers}, stop=Stop(steps=10))
    np.testing.assert_allclose(losses(half, rest), losses(whole), atol=1e-6)


@pytest.mark.long
def test_local_steps_and_who_left_are_gone_on_from() -> None:
    fields = {"optimizer": Adam(0.02), "partition": "rows", "local_steps": 2, "minibatch": 100}
    run = mlless_nb.train(job(**fields, stop=Stop(steps=4000)))
    wait_for_step(run, 20)
    run.scale_in(3)
    run.wait(0.1)
    run.stop()
    run.wait(PATIENCE_S)
    rest = go_on(run, **fields, stop=Stop(steps=10))
    assert rest.status == "finished", rest.reason
    assert "begins without" not in told(rest)
    assert losses(rest)[0] < losses(run)[-20:].mean() + 0.05


@pytest.mark.long
def test_clicks_in_other_units_are_gone_on_from() -> None:
    clicks = datasets.synthetic_clicks(2000, n_features=300, seed=1)
    fields = {"model": LogisticRegression(), "optimizer": AdaGrad(0.3), "data": clicks, "workers": 2}
    run = finish(job(**fields))
    rest = go_on(run, **fields, stop=Stop(steps=5))
    assert rest.status == "finished", rest.reason
    assert losses(rest).mean() < losses(run)[:5].mean() - 0.01
    half = datasets.csr(clicks.X * 0.5, clicks.y)
    rest = go_on(run, **fields | {"data": half}, stop=Stop(steps=5))
    assert losses(rest).mean() < losses(run)[:5].mean() - 0.01


def test_ratings_in_other_units_are_gone_on_from(first: TrainingRun) -> None:
    data = ratings()
    some = datasets.ratings(data.users[:3000], data.items[:3000], data.ratings[:3000] + 0.1, *data.shape)
    rest = go_on(first, data=some, stop=Stop(steps=5))
    assert "its model is converted" in told(rest)
    assert "The optimiser begins without state" in told(rest)
    assert losses(rest)[0] < losses(first)[-1] + 0.02


@pytest.mark.long
def test_more_money_for_a_capped_run_found_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    capped = finish(job(name="capped", stop=Stop(steps=10**6), budget=5 * cost_of_a_start()))
    assert capped.status == "capped"
    monkeypatch.setattr(runs, "_ended", [])  # as in another notebook
    found = mlless_nb.attach("capped")
    assert found.job is None
    with pytest.raises(
        CommandError, match=r"mlless_nb.train\(job, resume=run\) or %%mlless --resume \w+ resumes from it"
    ):
        found.resume()
    for run in (found, capped.id):
        rest = go_on(run, stop=Stop(steps=20), name="more")
        assert rest.status == "finished", rest.reason
        assert rest.resumed_from == "capped"
        assert "from capped" in rest.report()
        assert losses(rest)[0] < losses(capped)[:20].mean()
        assert rest.best.loss <= capped.best.loss
        assert mlless_nb.attach("more").resumed_from == "capped"


def test_a_run_resumes_itself_with_changes(first: TrainingRun) -> None:
    rest = first.resume(optimizer=SGD(1.0, momentum=0.9, nesterov=True), stop=Stop(epochs=3), scale_in=ScaleIn())
    assert rest.wait(PATIENCE_S) == "finished", rest.reason
    assert rest.history["epoch"][-1] >= 3.0
    assert rest.cost.total < 1.0
    again = rest.resume(name="again")
    assert again.wait(PATIENCE_S) == "finished", again.reason
    assert losses(again)[0] < losses(first)[0]
    with pytest.raises(JobError, match=r"epochs=3: must be a field of a job: model, optimizer"):
        first.resume(epochs=3)


def test_the_best_model_of_before_is_returned_unless_it_is_beaten(first: TrainingRun) -> None:
    worse = go_on(first, optimizer=Adam(0.5), stop=Stop(steps=15), eval_every=5, name="worse")
    assert (worse.best.loss, worse.best.step) == (first.best.loss, 0)
    assert digest(worse) == digest(first)
    assert ", of first" in worse.report()
    assert worse.history.best.loss > first.best.loss
    last = worse.last_model.params["item_bias"]
    assert not np.array_equal(last, first.model.params["item_bias"])
    again = go_on(worse, stop=Stop(steps=2), eval_every=1)  # and it stays known
    assert again.best.loss <= first.best.loss
    better = go_on(first, stop=Stop(steps=30), eval_every=5)
    assert better.best.loss < first.best.loss
    assert better.best.step > 0
    assert digest(better) != digest(first)


def test_other_held_out_rows_are_not_compared(first: TrainingRun) -> None:
    rest = go_on(first, seed=7, stop=Stop(steps=10))
    assert "Other rows are held out than in 'first'" in told(rest)
    assert rest.best.step > 0
    blind = go_on(first, validation=None, stop=Stop(steps=5))
    assert blind.best is None
    assert "held out" not in told(blind)


def test_a_failed_run_is_gone_on_from_without_state() -> None:
    exploding = finish(job(optimizer=SGD(1e5, momentum=0.9), stop=Stop(steps=500), name="exploded"))
    assert exploding.status == "failed"
    rest = go_on(exploding, optimizer=SGD(1.0, momentum=0.9), stop=Stop(steps=10))
    assert rest.status == "finished", rest.reason
    assert "The optimiser begins without state: that of 'exploded' (failed) was not kept" in told(rest)


def test_a_run_that_explodes_costs_nothing_of_the_one_before(first: TrainingRun) -> None:
    exploding = go_on(first, optimizer=SGD(500.0), stop=Stop(steps=50), name="exploded")
    assert exploding.status == "failed"
    assert "no better model was found than that of 'first', which is returned" in exploding.reason
    assert digest(exploding) == digest(first)
    rest = go_on(exploding, stop=Stop(steps=5), eval_every=1)
    assert losses(rest)[0] < losses(first)[-1] + 0.02
    assert rest.best.loss <= first.best.loss


def test_the_target_is_judged_by_the_model_that_it_goes_on_from(first: TrainingRun) -> None:
    with pytest.raises(JobError, match=r"stop.target=5.0: must be below 0\.\d+, the RMSE of the model that it resumes"):
        mlless_nb.train(job(stop=Stop(target=5.0)), resume=first)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"model": PMF(rank=3)}, r"model.rank=3: must be 4, as in run 'first'"),
        ({"model": PMF(rank=4, biases=False)}, r"model.biases=False: must be True, as in run 'first'"),
        (
            {"model": LogisticRegression(), "data": datasets.synthetic_clicks(3000, n_features=60, seed=1)},
            r"model=LogisticRegression\(.*\): must be PMF\(...\), which run 'first' trained",
        ),
        (
            {"data": datasets.synthetic_ratings(200, 99, 4000, rank=4, seed=1)},
            r"data=.*: must be of shape \(200, 100\)",
        ),
    ],
)
def test_a_job_that_does_not_fit_is_refused(first: TrainingRun, changes: Any, error: str) -> None:
    with pytest.raises(JobError, match=error) as caught:
        mlless_nb.train(job(**changes), resume="first")
    assert "\n" not in str(caught.value)


def test_runs_that_cannot_be_gone_on_from_are_refused(first: TrainingRun) -> None:
    with pytest.raises(CommandError, match="no ended run is called 'nobody'; ended runs on this machine: "):
        mlless_nb.train(job(), resume="nobody")
    with pytest.raises(JobError, match="resume=3: must be a run, or the name or the id of one"):
        mlless_nb.train(job(), resume=3)  # type: ignore[arg-type]
    live = mlless_nb.train(job(name="live", stop=Stop(steps=100_000)))
    try:
        for run in (live, "live"):
            with pytest.raises(CommandError, match=r"run 'live' is live: it can be resumed once it has ended"):
                mlless_nb.train(job(name="other"), resume=run)
    finally:
        live.stop()
        live.wait(PATIENCE_S)


def test_a_record_that_is_damaged_costs_the_state_and_not_the_model(first: TrainingRun) -> None:
    run = finish(job(name="damaged", stop=Stop(steps=10), sync=ISP(0.7)))
    path = record.find(run.id)[2] / record.PROGRESS
    blob = bytearray(path.read_bytes())
    blob[len(blob) // 2] ^= 1
    path.write_bytes(blob)
    rest = go_on("damaged", stop=Stop(steps=5))
    assert rest.status == "finished", rest.reason
    assert "The optimiser begins without state: that of 'damaged' (finished) was not kept" in told(rest)
    assert losses(rest)[0] < losses(run)[0]
