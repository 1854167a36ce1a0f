"""Simulated runs: reproducible, in a time of their own, and as the real loops promise."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import numpy as np
import pytest

pytest.importorskip("greenlet")

from mlless_nb import BSP, ISP, PMF, SGD, JobError, Stop, TrainingJob, datasets
from mlless_nb.messages import Command
from mlless_nb.simulate import (
    CLOUD,
    TWO_CORES,
    Costs,
    Link,
    Machine,
    Pareto,
    PowerCurve,
    RecordedCurve,
    SentFraction,
    ShiftedExponential,
    SimulatedRun,
    SlowWorkers,
    StartUp,
    Storage,
    Trace,
    Workload,
    simulate,
)

#: Everything costs nothing but what a test gives a price.
FREE = Costs(**dict.fromkeys((field.name for field in dataclasses.fields(Costs)), 0.0))


def free(**changes: Any) -> Machine:
    """A machine on which only what ``changes`` names takes time."""
    costs = dataclasses.replace(FREE, **changes.pop("costs", {}))
    return Machine(**{"costs": costs, "start_up": StartUp(0.1), "storage": Storage(0.0, math.inf), **changes})


def steps_s(run: SimulatedRun) -> np.ndarray:
    """The seconds of each step but the first."""
    return np.diff(run.history["time_s"])


def test_runs_are_reproducible_by_seed() -> None:
    machine = dataclasses.replace(CLOUD, stragglers=ShiftedExponential(0.5), shards=2)
    workload = Workload(workers=6, stop=Stop(steps=40), sync=ISP(0.7), curve=PowerCurve(noise=0.05))

    first, again, other = (simulate(workload, machine, seed) for seed in (1, 1, 2))

    for column in first.history:
        np.testing.assert_array_equal(first.history[column], again.history[column])
    assert dataclasses.replace(first, history=again.history) == again
    assert first.time_s != other.time_s


def test_virtual_time_is_not_wall_time() -> None:
    """An hour of steps, with workers that compute for ten seconds each."""
    began = time.monotonic()
    run = simulate(Workload(workers=4, stop=Stop(steps=360), n_held_out=0), free(costs={"step_s": 10.0}))

    assert run.time_s == pytest.approx(3600.0, rel=0.01)
    assert time.monotonic() - began < 600.0  # a tenth of that passes only on a machine that stands still
    assert run.status == "finished"


@pytest.mark.parametrize("pattern", ["broadcast", "scatter-reduce"])
@pytest.mark.parametrize("shards", [1, 3])
def test_messages_are_conserved(pattern: str, shards: int) -> None:
    """What is published is read by everyone it is for: all peers, or one and then all peers."""
    p, steps = 6, 10
    workload = Workload(workers=p, stop=Stop(steps=steps), pattern=pattern, n_held_out=0)

    run = simulate(workload, dataclasses.replace(CLOUD, shards=shards))

    scattered = p * (p - 1) if pattern == "scatter-reduce" else 0
    assert run.traffic.n_kept == steps * (scattered + p)
    assert run.traffic.n_read == pytest.approx(steps * (scattered + p * (p - 1)))
    received = run.history["received_bytes"].sum()
    assert run.traffic.bytes_out == pytest.approx(received, rel=0.01)


def test_bsp_waits_for_a_straggler() -> None:
    """One of four takes three times as long: so does every step, and the others wait for two thirds of it."""
    workload = Workload(workers=4, stop=Stop(steps=20), n_held_out=0)
    even = simulate(workload, free(costs={"step_s": 0.5}))
    slow = simulate(workload, free(costs={"step_s": 0.5}, stragglers=SlowWorkers({2: 3.0})))

    np.testing.assert_allclose(steps_s(even), 0.5)
    np.testing.assert_allclose(steps_s(slow), 1.5)
    np.testing.assert_allclose(slow.history["wait_s"][:-1], 3 * 1.0 / 4, atol=1e-5)
    np.testing.assert_allclose(slow.history["compute_s"][:-1], (3 * 0.5 + 1.5) / 4, atol=1e-5)


def test_workers_slow_down_from_a_moment_on() -> None:
    machine = free(costs={"step_s": 1.0}, stragglers=SlowWorkers({0: 5.0}, from_s=10.0))

    run = simulate(Workload(workers=3, stop=Stop(steps=20), n_held_out=0), machine)

    taken = steps_s(run)
    assert set(taken.round(6)) == {1.0, 5.0}
    np.testing.assert_allclose(taken[:8], 1.0)
    np.testing.assert_allclose(taken[11:], 5.0)


def test_a_step_of_the_slowest_of_many() -> None:
    """The mean of the largest of P draws of 1 - a + a Exp(1) is 1 - a + a H_P."""
    p, a = 10, 0.5
    machine = free(costs={"step_s": 1.0}, stragglers=ShiftedExponential(a))

    run = simulate(Workload(workers=p, stop=Stop(steps=1500), n_held_out=0), machine)

    harmonic = sum(1 / k for k in range(1, p + 1))
    assert steps_s(run).mean() == pytest.approx(1 - a + a * harmonic, rel=0.03)


def test_other_distributions() -> None:
    for stragglers in (Pareto(2.5), Trace((1.0, 1.5, 4.0))):
        run = simulate(
            Workload(workers=4, stop=Stop(steps=60), n_held_out=0),
            free(costs={"step_s": 1.0}, stragglers=stragglers),
        )
        assert run.status == "finished"
        assert steps_s(run).min() >= 1.0
        assert steps_s(run).max() > 2.0


def test_frames_queue_at_the_server() -> None:
    """Redis takes 10 ms for each frame, kept or read: 4 are kept and 12 read in a step, one after the other."""
    workload = Workload(workers=4, stop=Stop(steps=10), n_held_out=0)

    one = simulate(workload, free(costs={"command_s": 0.01}))
    two = simulate(workload, free(costs={"command_s": 0.01}, shards=2))

    # The next step begins for those who were served first while the others are still being served.
    np.testing.assert_allclose(steps_s(one), 0.16, atol=1e-6)
    np.testing.assert_allclose(steps_s(two).mean(), 0.08, rtol=0.1)


def test_a_slow_line_is_what_a_broadcast_dies_of() -> None:
    """Every byte of P updates goes out P - 1 times; of scattered ones about twice, and the sums P - 1 times."""
    workload = Workload(workers=16, stop=Stop(steps=6), n_held_out=0)
    machine = free(link=Link(server_bytes_s=125e6))

    broadcast = simulate(workload, machine)
    scattered = simulate(dataclasses.replace(workload, pattern="scatter-reduce"), machine)

    assert broadcast.step_s == pytest.approx(16 * 15 * workload.update_bytes() / 125e6, rel=0.1)
    assert scattered.step_s < 0.4 * broadcast.step_s


def test_the_lifetime_of_functions_ends_a_run_in_good_order() -> None:
    machine = free(costs={"step_s": 1.0}, lifetime_s=100.0)

    run = simulate(Workload(workers=3, stop=Stop(steps=10_000)), machine)

    assert run.status == "stopped"
    assert "lifetime" in run.reason
    assert 80.0 < run.time_s < 90.0


def test_functions_that_outlive_it_are_killed() -> None:
    """Steps so long that nobody hears of the stop in time."""
    machine = free(costs={"step_s": 60.0}, lifetime_s=100.0)

    run = simulate(Workload(workers=3, stop=Stop(steps=10_000)), machine)

    assert run.status == "stopped"
    assert "lifetime" in run.reason
    assert run.time_s < 130.0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "machine",
    [
        dataclasses.replace(TWO_CORES, costs=Costs(step_s=0.02)),
        dataclasses.replace(CLOUD, costs=Costs(step_s=0.05), stragglers=Pareto(1.5)),
    ],
)
def test_a_cap_is_never_passed(machine: Machine, seed: int) -> None:
    for cap in (0.0025, 0.004):
        workload = Workload(workers=4, budget=cap, stop=Stop(), sync=ISP(0.7))

        run = simulate(workload, machine, seed)

        assert run.status == "capped", run.reason
        assert 0 < run.cost.total <= cap
        assert (run.history["spent_usd"] <= cap).all()


def test_a_budget_that_does_not_pay_for_the_start_is_refused() -> None:
    with pytest.raises(JobError, match="budget"):
        simulate(Workload(workers=100, budget=1e-5), CLOUD)


def test_people_may_scale_in() -> None:
    commands = [(5.0, Command("a", "scale_in", count=2)), (10.0, Command("b", "stop"))]

    run = simulate(Workload(workers=5, stop=Stop(steps=10_000)), free(costs={"step_s": 0.5}), commands=commands)

    assert run.status == "stopped"
    assert [slot for slot, _ in run.departures] == [3, 4]
    assert set(run.history["n_workers"]) == {5.0, 3.0}


def test_a_target_on_a_curve() -> None:
    """Loss 1 / (0.1 t + 1): at or below 0.5 after 10 steps; evaluations come every 5."""
    curve = PowerCurve(start=1.0, floor=0.0, speed=0.1, noise=0.0)
    workload = Workload(workers=3, curve=curve, stop=Stop(target=0.5, steps=100), eval_every=5)

    run = simulate(workload, free(costs={"step_s": 0.1}))

    assert run.status == "finished"
    assert "target reached" in run.reason
    assert 10 <= run.history.n_steps <= 12
    np.testing.assert_allclose(run.history["loss"], [1 / (0.1 * t + 1) for t in range(run.history.n_steps)])


def test_curves() -> None:
    recorded = RecordedCurve([3.0, 2.0, 1.0])
    noisy = PowerCurve(full_workers=8, noise_workers=4.0)

    assert [recorded.loss(g) for g in (0, 0.5, 1, 2, 9)] == [3.0, 2.5, 2.0, 1.0, 1.0]
    assert noisy.gain(8) == pytest.approx(1.0)
    assert noisy.gain(4) == pytest.approx((1 + 0.5) / 2)
    assert [SentFraction(2.0, 1.0, 1.0).at(t, 2) for t in (1, 2, 4)] == [1.0, 0.5, 0.25]


@pytest.mark.parametrize("pattern", ["broadcast", "scatter-reduce"])
@pytest.mark.parametrize("sync", [BSP(), ISP(0.7)])
def test_training_in_earnest_does_what_one_worker_would(pattern: str, sync: Any) -> None:
    """The real replica in virtual time: workers that share minibatches get where one with all of them gets."""
    ratings = datasets.synthetic_ratings(60, 40, 2400, rank=3, seed=1)
    common = {"model": PMF(rank=3), "optimizer": SGD(4.0, 0.8), "data": ratings, "validation": 0.1, "minibatch": 135}

    job = TrainingJob(**common, workers=4, stop=Stop(steps=48), sync=sync, pattern=pattern, eval_every=4)
    run, again = simulate(job, TWO_CORES), simulate(job, CLOUD)

    assert run.status == "finished"
    assert run.history["loss"][-1] < 0.9 * run.history["loss"][0]
    assert run.params is not None
    np.testing.assert_array_equal(run.params, again.params)  # time decides nothing
    if sync == BSP():
        alone = simulate(dataclasses.replace(job, workers=1, minibatch=540, pattern="broadcast"), TWO_CORES)
        assert run.history["loss"][-1] == pytest.approx(alone.history["loss"][-1], rel=0.05)


def test_a_thousand_workers() -> None:
    run = simulate(
        Workload(workers=1024, stop=Stop(steps=3), pattern="scatter-reduce", n_held_out=0),
        dataclasses.replace(CLOUD, shards=8),
    )

    assert run.status == "finished"
    assert run.history["n_workers"].tolist() == [1024.0] * 3
