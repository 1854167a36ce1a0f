"""What training means: determinism, protocols, aggregation, the figures a run reports. On real functions and Redis."""

from __future__ import annotations

import numpy as np
import pytest
from engine.jobs import digest, finish, job, ratings, rmse_in_training

from mlless_nb import BSP, ISP, SGD, Adam, LogisticRegression, Stop, datasets
from mlless_nb.data.sampling import ORDER


@pytest.mark.parametrize("workers", [1, 4, 8])
def test_one_seed_gives_one_model(workers: int) -> None:
    first, second = (finish(job(workers=workers, stop=Stop(steps=12))) for _ in range(2))
    assert first.status == second.status == "finished"
    assert digest(first) == digest(second)


def test_isp_with_threshold_0_is_bsp_bit_for_bit() -> None:
    assert digest(finish(job(sync=ISP(0.0)))) == digest(finish(job(sync=BSP())))


def test_isp_sends_less_and_loses_nothing() -> None:
    bsp, isp = finish(job(sync=BSP())), finish(job(sync=ISP(0.7)))
    assert isp.history["sent_bytes"].sum() < 0.9 * bsp.history["sent_bytes"].sum()
    # Of 300 rows 200 are of users, each with one owner, who alone has use for them.
    np.testing.assert_allclose(bsp.history["sent_fraction"], 1 / 3)
    assert (isp.history["sent_fraction"] < 1 / 3).all()
    assert isp.telemetry.state.validation_loss == pytest.approx(bsp.telemetry.state.validation_loss, rel=0.06)
    # After one step all workers have made the updates of BSP; what was held back is published at the end.
    bsp, isp = (finish(job(sync=sync, stop=Stop(steps=1))) for sync in (BSP(), ISP(0.7)))
    assert isp.history["sent_fraction"][0] < bsp.history["sent_fraction"][0]
    for name, array in bsp.last_model.params.items():
        np.testing.assert_allclose(isp.last_model.params[name], array, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_p_workers_of_b_are_one_worker_of_p_times_b(momentum: float) -> None:
    optimizer = SGD(learning_rate=1.0, momentum=momentum, nesterov=momentum > 0)
    data = ratings(3600)  # 9 global minibatches of 400 in an epoch
    fields = {"optimizer": optimizer, "sync": BSP(), "stop": Stop(steps=18), "validation": data}
    four = finish(job(**fields, data=data, workers=4, minibatch=100, partition="rows"))
    # The four have a quarter of the shuffled rows each; the one takes step by step what all four do.
    order = np.random.default_rng([0, ORDER]).permutation(data.n)
    steps, rows = order.reshape(4, 9, 100).transpose(1, 0, 2).ravel(), np.empty(data.n, int)
    rows[order] = steps
    same = datasets.ratings(data.users[rows], data.items[rows], data.ratings[rows], *data.shape)
    one = finish(job(**fields, data=same, workers=1, minibatch=400))
    for name, array in one.model.params.items():
        np.testing.assert_allclose(four.model.params[name], array, rtol=2e-3, atol=2e-5)
    np.testing.assert_allclose(four.history["loss"], one.history["loss"], rtol=1e-4)


def test_sum_adds_what_mean_averages() -> None:
    mean = finish(job(optimizer=SGD(learning_rate=2.0), sync=BSP(), workers=2, stop=Stop(steps=5)))
    total = finish(job(optimizer=SGD(learning_rate=1.0), sync=BSP(), workers=2, stop=Stop(steps=5), aggregate="sum"))
    assert [run.telemetry.state.step for run in (mean, total)] == [5, 5], (mean.reason, total.reason)
    for name, array in mean.model.params.items():
        np.testing.assert_allclose(total.model.params[name], array, rtol=1e-3, atol=1e-5)


def test_the_history_has_a_row_a_step_and_the_model_is_the_one_it_tells_of() -> None:
    data = ratings()
    run = finish(job(data=data, sync=BSP(), stop=Stop(steps=20), eval_every=5))
    history = run.history
    assert history["step"].tolist() == list(range(1, 21))
    assert np.isfinite(history["loss"]).all()
    assert np.flatnonzero(np.isfinite(history["validation_loss"])).tolist() == [4, 9, 14, 19]
    assert np.flatnonzero(history["interaction"] > 0).tolist() == [4, 9, 14]  # the run was over before it was told last
    assert (np.diff(history["time_s"]) > 0).all()
    assert (np.diff(history["spent_usd"]) >= 0).all()
    assert (history["n_workers"] == 4).all()
    assert (history["received_bytes"] == 3 * history["sent_bytes"]).all()
    assert history["epoch"][-1] == pytest.approx(20 * 4 / 20)  # of 3,600 rows a shard of users has five minibatches
    _, held_out = data.split(0.1, 0)
    state = run.telemetry.state
    best, last = (rmse_in_training(model, held_out) for model in (run.model, run.last_model))
    assert state.validation_loss == history["validation_loss"][-1] == pytest.approx(last, rel=1e-5)
    assert state.best_loss == pytest.approx(np.nanmin(history["validation_loss"]), rel=1e-5)
    assert state.best_loss == pytest.approx(best, rel=1e-5)
    at_best = history["step"] == state.best_step
    assert history["validation_loss"][at_best] == pytest.approx(best, rel=1e-5)
    assert history["epoch"][at_best] == state.best_epoch


def test_a_run_that_learns_nothing_says_so_and_knows_what_it_never_saw() -> None:
    rows = ratings()
    data = datasets.ratings(rows.users, rows.items, rows.ratings, n_users=201, n_items=103)
    run = finish(job(data=data, optimizer=SGD(1e-9), stop=Stop(steps=6), minibatch=100, eval_every=2))
    assert run.status == "finished", run.reason
    train, held_out = data.split(0.1, 0)
    state = run.telemetry.state
    assert state.baseline_loss == pytest.approx(np.sqrt(np.mean((held_out.ratings - train.ratings.mean()) ** 2)))
    assert run.best is not None
    assert run.best.loss >= state.baseline_loss
    sentence = f"No better than predicting the mean ({state.baseline_loss:.4g})"
    assert sentence in [event.text for event in state.events]
    assert sentence in run.report()
    assert not {100, 101, 102} & set(run.model.recommend(3, n=103)[0].tolist())
    assert run.model.predict([200], [101])[0] == pytest.approx(train.mean)


def test_logistic_regression_learns_under_isp() -> None:
    clicks = datasets.synthetic_clicks(4000, n_features=300, seed=2)
    run = finish(
        job(
            model=LogisticRegression(), optimizer=Adam(0.05), data=clicks, workers=3, minibatch=200, stop=Stop(epochs=4)
        )
    )
    assert run.status == "finished"
    losses = run.history["loss"]
    assert losses[-6:].mean() < 0.85 * losses[0]  # an epoch is 6 steps; the share of ones alone gives about 0.9
    probabilities = run.model.predict_proba(clicks.X)
    assert probabilities.shape == (4000, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)


def test_training_ends_at_the_target() -> None:
    data = ratings()
    _, held_out = data.split(0.1, 0)
    target = 0.95 * float(held_out.ratings.std())  # the model starts at the mean: at about the deviation
    run = finish(job(data=data, sync=BSP(), stop=Stop(target=target, steps=500), eval_every=2))
    assert run.status == "finished"
    assert "target reached" in run.reason
    assert run.telemetry.state.validation_loss <= target


def test_a_loss_that_explodes_fails_within_a_step_and_says_which_knob() -> None:
    run = finish(job(optimizer=SGD(learning_rate=1e9), sync=BSP(), stop=Stop(steps=50)))
    assert run.status == "failed"
    assert "lower the learning rate" in run.reason
    assert run.telemetry.state.step < 10
    assert all(np.isfinite(array).all() for array in run.model.params.values())


def test_a_cut_of_the_learning_rate_is_told_once() -> None:
    """Labels that have nothing to do with the features: what is learnt is soon all that there is."""
    rng = np.random.default_rng(0)
    data = datasets.csr(rng.normal(size=(600, 10)).astype(np.float32), rng.integers(0, 2, 600))
    run = finish(
        job(
            model=LogisticRegression(l2=0.0),
            optimizer=Adam(0.5),
            data=data,
            workers=3,
            minibatch=20,
            stop=Stop(epochs=100),
            eval_every=5,
        )
    )
    told = [event.text for event in run.telemetry.state.events if "earning rate cut" in event.text]
    assert [text.partition(" at step ")[0] for text in told] == [
        f"Learning rate cut to {rate}" for rate in ("0.15", "0.045", "0.0135")
    ]
