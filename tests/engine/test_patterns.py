"""Other ways to make updates, to write them and to get them around: each gives one model, and a good one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine.jobs import digest, finish, job, ratings, rmse_in_training, wait_for_step

import mlless_nb
from mlless_nb import BSP, FTRL, ISP, PMF, SGD, Adam, LogisticRegression, Stop, TrainingRun, datasets

WAYS: dict[str, dict[str, Any]] = {
    "scatter-reduce": {"pattern": "scatter-reduce"},
    "scatter-reduce of three": {"pattern": "scatter-reduce", "workers": 3},
    "bf16": {"codec": "bf16"},
    "int8 scattered": {"codec": "int8", "pattern": "scatter-reduce"},
    "local steps": {"local_steps": 3},
    "one rating at a time": {"optimizer": SGD(0.02, per_sample=True), "local_steps": 2},
    "by user": {"partition": "user"},
    "by user, scattered": {"partition": "user", "pattern": "scatter-reduce"},
    "all at once": {"partition": "user", "pattern": "scatter-reduce", "codec": "bf16", "local_steps": 2},
    "a leader": {"pattern": "allreduce"},
    "by user, led": {"partition": "user", "pattern": "allreduce", "codec": "bf16", "local_steps": 2},
}


def check_model(run: TrainingRun, status: str = "finished") -> None:
    """The model is the one that the run's best figure tells of, the last model that of the last figure."""
    assert run.status == status, run.reason
    _, held_out = ratings().split(0.1, 0)
    state = run.telemetry.state
    for model, told in ((run.model, state.best_loss), (run.last_model, state.validation_loss)):
        assert told == pytest.approx(rmse_in_training(model, held_out), rel=1e-5)
    assert state.best_loss <= state.validation_loss
    assert state.best_step in run.history["step"]


def each_way(*, short: dict[str, str]) -> list[Any]:
    """Every way under both protocols; all are long but for those of ``short``, under the protocol that it names."""
    return [
        pytest.param(way, sync, id=f"{way}-{sync}", marks=[pytest.mark.long] * (short.get(way) != type(sync).__name__))
        for way in WAYS
        for sync in (BSP(), ISP(0.7))
    ]


@pytest.mark.parametrize(("way", "sync"), each_way(short={"all at once": "ISP", "a leader": "BSP", "by user": "BSP"}))
def test_one_seed_gives_one_model_that_has_learnt(way: str, sync: BSP | ISP) -> None:
    first, second = (finish(job(sync=sync, **WAYS[way])) for _ in range(2))
    check_model(first)
    assert digest(first) == digest(second)
    assert first.history["loss"][-1] < 0.9 * first.history["loss"][0]


@pytest.mark.long
def test_a_leader_gives_the_model_of_scatter_reduce_bit_for_bit() -> None:
    led, scattered = (finish(job(sync=BSP(), pattern=pattern)) for pattern in ("allreduce", "scatter-reduce"))
    assert digest(led) == digest(scattered)
    # The leader's update goes nowhere, and the sum to three peers; a scatter sends three quarters of each update.
    assert led.history["loss"].tolist() == pytest.approx(scattered.history["loss"].tolist(), rel=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_scatter_reduce_gives_the_model_of_broadcast(momentum: float) -> None:
    optimizer = SGD(2.0, momentum=momentum)
    one, other = (
        finish(job(sync=BSP(), optimizer=optimizer, pattern=pattern)) for pattern in ("broadcast", "scatter-reduce")
    )
    for name, array in one.model.params.items():
        np.testing.assert_allclose(other.model.params[name], array, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(other.history["loss"], one.history["loss"], rtol=1e-5)


@pytest.mark.parametrize(
    "way",
    [
        "by user, scattered",
        *(
            pytest.param(way, marks=pytest.mark.long)
            for way in ("scatter-reduce", "local steps", "by user", "a leader")
        ),
    ],
)
def test_isp_with_threshold_0_is_bsp_bit_for_bit_every_way(way: str) -> None:
    assert digest(finish(job(sync=ISP(0.0), **WAYS[way]))) == digest(finish(job(sync=BSP(), **WAYS[way])))


def test_isp_with_threshold_0_is_bsp_bit_for_bit_where_the_pattern_is_chosen() -> None:
    """Exact momentum moves every row: 1.3 MB a step, which "auto" scatters and reduces. ISP(0) has to follow."""
    fields: dict[str, Any] = {
        "data": datasets.synthetic_ratings(12_000, 4_000, 20_000, rank=4, seed=1),
        "model": PMF(rank=20, l2=0.02),
        "optimizer": SGD(2.0, momentum=0.9, nesterov=True, lazy=False),
        "partition": "rows",
        "stop": Stop(steps=4),
    }
    bsp, scattered, isp = (
        finish(job(sync=sync, pattern=pattern, **fields))
        for sync, pattern in ((BSP(), "auto"), (BSP(), "scatter-reduce"), (ISP(0.0), "auto"))
    )
    assert bsp.history["received_bytes"][-1] == scattered.history["received_bytes"][-1]
    assert digest(isp) == digest(bsp)


def test_local_steps_of_one_worker_are_its_steps() -> None:
    optimizer = SGD(1.0, momentum=0.9)
    one = finish(job(sync=BSP(), optimizer=optimizer, workers=1, stop=Stop(steps=12)))
    other = finish(job(sync=BSP(), optimizer=optimizer, workers=1, local_steps=3, stop=Stop(steps=4)))
    for name, array in one.model.params.items():
        np.testing.assert_allclose(other.model.params[name], array, rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_a_lossy_codec_moves_fewer_bytes() -> None:
    float32, bf16, int8 = (
        finish(job(codec=codec)).history["sent_bytes"].sum() for codec in ("float32", "bf16", "int8")
    )
    assert int8 < bf16 < float32


def test_users_with_one_owner_are_not_exchanged() -> None:
    rows, user = (
        finish(job(sync=BSP(), partition=partition)).history["sent_bytes"].sum() for partition in ("rows", "user")
    )
    assert user < 0.6 * rows


@pytest.mark.parametrize(
    "way",
    [
        "all at once",
        *(pytest.param(way, marks=pytest.mark.long) for way in ("scatter-reduce", "by user", "by user, scattered")),
    ],
)
def test_workers_may_leave(way: str) -> None:
    run = mlless_nb.train(job(stop=Stop(steps=100_000), **WAYS[way]))
    wait_for_step(run, 20)
    run.scale_in(1)
    wait_for_step(run, run.telemetry.state.step + 40)
    run.scale_in(2)
    while run.telemetry.state.n_workers > 1 and run.telemetry.state.is_live:
        wait_for_step(run, run.telemetry.state.step + 1)
    run.stop()
    run.wait(60)
    check_model(run, "stopped")
    assert run.history["n_workers"][-1] == 1


@pytest.mark.parametrize("sync", [BSP(), ISP(0.7)], ids=str)
def test_momentum_does_not_run_away_with_the_users_of_who_left(sync: BSP | ISP) -> None:
    run = mlless_nb.train(job(sync=sync, partition="user", stop=Stop(steps=1500)))
    wait_for_step(run, 20)
    run.scale_in(3)
    run.wait(60)
    check_model(run)
    assert run.history["loss"][-1] < 0.9 * run.history["loss"][0]


def test_ftrl_learns_clicks_with_l1() -> None:
    clicks = datasets.synthetic_clicks(4000, n_features=300, seed=2)
    fields: dict[str, Any] = {"model": LogisticRegression(), "data": clicks, "workers": 3, "minibatch": 200}
    run = finish(job(optimizer=FTRL(0.2, l1=0.001), stop=Stop(epochs=4), **fields))
    assert run.telemetry.state.validation_loss < 0.95 * run.history["loss"][0]
    adam = finish(job(optimizer=Adam(0.05), stop=Stop(epochs=4), **fields))
    assert run.telemetry.state.validation_loss == pytest.approx(adam.telemetry.state.validation_loss, rel=0.1)
