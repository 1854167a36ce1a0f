"""Simulated runs: reproducible, in a time of their own, and as the real loops promise."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any, ClassVar

import numpy as np
import pytest

pytest.importorskip("greenlet")

from mlless_nb import BSP, ISP, PMF, SGD, SSP, JobError, ScaleIn, Stop, TrainingJob, datasets
from mlless_nb.bus.messages import Command
from mlless_nb.data.sampling import ORDER
from mlless_nb.job.sync import base as protocols
from mlless_nb.job.sync import register_sync
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
from mlless_nb.validation import specification

#: Everything costs nothing but what a test gives a price.
FREE = Costs(**dict.fromkeys((field.name for field in dataclasses.fields(Costs)), 0.0))


def free(**changes: Any) -> Machine:
    """A machine on which only what ``changes`` names takes time."""
    costs = dataclasses.replace(FREE, **changes.pop("costs", {}))
    return Machine(**{"costs": costs, "start_up": StartUp(0.1), "storage": Storage(0.0, math.inf), **changes})


def steps_s(run: SimulatedRun) -> np.ndarray:
    """The seconds of each step but the first."""
    return np.diff(run.history["time_s"])


def test_every_protocol_that_filters_pays_for_its_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "_registered", dict(protocols._registered))

    @register_sync
    @specification
    @dataclasses.dataclass(frozen=True)
    class Other(ISP):
        kind: ClassVar[str] = "another-filter"

    machine = free(costs={"filter_value_s": 1e-6})
    workload = Workload(workers=2, stop=Stop(steps=5), sync=ISP(0.7))
    isp, other = (simulate(dataclasses.replace(workload, sync=sync(0.7)), machine) for sync in (ISP, Other))
    assert other.step_s == isp.step_s > 0.0


def test_runs_are_reproducible_by_seed() -> None:
    machine = dataclasses.replace(CLOUD, stragglers=ShiftedExponential(0.5), shards=2)
    workload = Workload(workers=6, stop=Stop(steps=40), sync=ISP(0.7), curve=PowerCurve(noise=0.05))

    first, again, other = (simulate(workload, machine, seed) for seed in (1, 1, 2))

    for column in first.history:
        np.testing.assert_array_equal(first.history[column], again.history[column])
    assert dataclasses.replace(first, history=again.history) == again
    assert first.time_s != other.time_s


def test_virtual_time_is_not_wall_time() -> None:
    """A quarter of an hour, with workers that compute for ten seconds a step."""
    run = simulate(Workload(workers=4, stop=Stop(steps=90), n_held_out=0), free(costs={"step_s": 10.0}))

    assert run.time_s == pytest.approx(900.0, rel=0.01)
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


class _Once:
    """Two hiccups: worker 0 takes 3.5 times as long in step 5, worker 1 in step 12."""

    def factor(self, draws: random.Random, slot: int, step: int, time_s: float) -> float:
        return 3.5 if (slot, step) in {(0, 5), (1, 12)} else 1.0


@pytest.mark.parametrize(("sync", "late_s"), [(BSP(), 2.5), (SSP(0), 2.5), (SSP(3), 1.25)])
def test_bounded_staleness_hides_one_straggler_behind_another(sync: Any, late_s: float) -> None:
    """20 steps of 0.5 s; either hiccup costs its worker 1.25 s, which is less than three steps.

    Under BSP each delays everybody. Under SSP(3) the others go on: worker 0 is 1.25 s late from step 5 on, worker 1 is
    so from step 12 on, and nobody waits for either before the end.
    """
    workload = Workload(workers=3, sync=sync, stop=Stop(steps=20), n_held_out=0)

    run = simulate(workload, free(costs={"step_s": 0.5}, stragglers=_Once()))

    taken = run.history["time_s"] - run.history["time_s"][0]
    assert run.status == "finished"
    assert taken[-1] == pytest.approx(19 * 0.5 + late_s)
    if sync == SSP(3):
        np.testing.assert_allclose(taken[4:], [0.5 * t + 1.25 for t in range(4, 20)])
        np.testing.assert_allclose(run.history["wait_s"][:-1], 0.0, atol=1e-5)
        # Two workers do without the update of worker 0 in steps 6 to 12, at first one and in the end three steps old.
        np.testing.assert_allclose(run.history["staleness"][[4, 5, 6, 7, 8]], np.array([0, 2, 4, 6, 6]) / 3)


def test_a_worker_that_is_always_slow_holds_up_the_others_once_they_are_ahead() -> None:
    """Worker 1 takes 1 s a step, the others 0.25 s: they are two steps ahead after a second, and then wait."""
    workload = Workload(workers=3, sync=SSP(2), stop=Stop(steps=12), n_held_out=0)

    run = simulate(workload, free(costs={"step_s": 0.25}, stragglers=SlowWorkers({1: 4.0})))

    np.testing.assert_allclose(steps_s(run), 1.0)
    # Steps 1 and 2 are free; after step 3, at 0.75 s, step 1 of worker 1 is due at 1 s, and after that one a second.
    np.testing.assert_allclose(run.history["wait_s"][:10], 2 / 3 * np.array([0, 0, 0.25] + [0.75] * 7), atol=1e-5)
    assert run.history["staleness"].max() == pytest.approx(2 / 3 * 2)


@pytest.mark.parametrize("shards", [1, 3])
def test_bounded_staleness_of_a_real_replica(shards: int) -> None:
    """Whoever leaves on the way hands over what it held back, and the rest learn."""
    ratings = datasets.synthetic_ratings(60, 40, 2400, rank=3, seed=1)
    job = TrainingJob(
        model=PMF(rank=3),
        optimizer=SGD(4.0, 0.8),
        data=ratings,
        validation=0.1,
        minibatch=135,
        workers=4,
        stop=Stop(steps=48),
        sync=ISP(0.7, staleness=2),
        eval_every=4,
    )
    machine = dataclasses.replace(CLOUD, shards=shards, stragglers=ShiftedExponential(0.8))
    machine = dataclasses.replace(machine, costs=dataclasses.replace(machine.costs, step_s=0.05))

    run = simulate(job, machine, commands=[(2.5, Command("a", "scale_in", slots=[2]))])

    assert run.status == "finished"
    assert [slot for slot, _ in run.departures] == [2]
    assert run.history.n_steps == 48
    assert 0 < run.history["staleness"].max() <= 2
    assert run.history["loss"][-1] < 0.9 * run.history["loss"][0]
    assert run.params is not None
    assert np.isfinite(run.params).all()


def test_what_a_job_leaves_open_is_chosen_as_in_a_run() -> None:
    run = simulate(TrainingJob(PMF(rank=3), data=datasets.synthetic_ratings(60, 40, 2400, rank=3), stop=Stop(steps=20)))
    assert run.status == "finished", run.reason
    assert run.history["loss"][-1] < run.history["loss"][0]


def test_a_stale_replica_has_a_higher_loss() -> None:
    curve = PowerCurve(start=1.0, floor=0.0, speed=0.1, noise=0.0)
    workload = Workload(workers=4, curve=curve, stop=Stop(steps=30), n_held_out=0)
    machine = free(costs={"step_s": 0.1}, stragglers=SlowWorkers({3: 2.0}))

    fresh, stale = (simulate(dataclasses.replace(workload, sync=sync), machine) for sync in (BSP(), SSP(3)))

    assert (stale.history["loss"][3:] > fresh.history["loss"][3:]).all()
    # At most three steps of one peer in four are missing.
    assert (stale.history["loss"] <= [curve.loss(max(t - 0.75, 0.0)) for t in range(30)]).all()


def test_what_bounded_staleness_cannot_do() -> None:
    with pytest.raises(JobError, match="pattern"):
        Workload(workers=4, sync=SSP(3), pattern="scatter-reduce")


def test_no_leader_of_a_workload_is_simulated() -> None:
    with pytest.raises(JobError, match="no leader of a workload"):
        simulate(Workload(workers=4, pattern="allreduce"), free())


def test_the_tuner_is_the_real_one() -> None:
    """Fewer workers move the model nearly as far: some are let go, and the target is reached all the same."""
    curve = PowerCurve(start=2.0, floor=1.0, speed=0.2, noise=0.001, full_workers=12, noise_workers=0.1)
    workload = Workload(workers=12, curve=curve, stop=Stop(target=curve.loss(300), steps=900), n=6250 * 400)
    machine = free(costs={"step_s": 0.02}, stragglers=ShiftedExponential(0.5))

    shrink = ScaleIn(global_minibatch="shrink")
    off, on = (
        simulate(dataclasses.replace(workload, scale_in=one), machine)
        for one in (dataclasses.replace(shrink, enabled=False), shrink)
    )

    assert not off.departures
    assert not off.decisions
    assert on.departures
    kinds = [decision["kind"] for decision in on.decisions]
    assert kinds.count("knee") == 1
    assert kinds.index("knee") < kinds.index("remove")
    assert kinds.count("remove") == len(on.departures)
    assert "target" in on.reason
    assert on.cost.total < off.cost.total


def test_where_steps_are_exchange_fewer_workers_make_the_same_steps_for_less() -> None:
    """The global minibatch stays: the same losses after the same steps, fewer dollars."""
    curve = PowerCurve(start=2.0, floor=1.0, speed=0.2, full_workers=12, noise_workers=5.0, noise=0.0)
    workload = Workload(workers=12, curve=curve, stop=Stop(target=curve.loss(300), steps=900), n=6250 * 400)
    machine = free(costs={"step_s": 0.02, "apply_byte_s": 1e-8})

    off, on = (simulate(dataclasses.replace(workload, scale_in=one), machine) for one in (ScaleIn.off(), ScaleIn()))

    assert on.departures
    assert not off.departures
    assert on.history.n_steps == off.history.n_steps
    np.testing.assert_allclose(on.history["loss"], off.history["loss"], rtol=1e-9)
    assert on.cost.total * on.time_s < 0.95 * off.cost.total * off.time_s


def test_where_steps_are_computing_and_each_worker_has_a_core_all_stay() -> None:
    """Who takes over a shard would take twice as long, and everybody would wait for it."""
    workload = Workload(workers=12, stop=Stop(steps=400), n=6250 * 400, scale_in=ScaleIn(), kernel_s=0.02)

    run = simulate(workload, free())

    assert not run.departures


def test_workers_slow_down_from_a_moment_on() -> None:
    machine = free(costs={"step_s": 1.0}, stragglers=SlowWorkers({0: 5.0}, from_s=10.0))

    run = simulate(Workload(workers=3, stop=Stop(steps=20), n_held_out=0), machine)

    taken = steps_s(run)
    assert set(taken.round(6)) == {1.0, 5.0}
    np.testing.assert_allclose(taken[:8], 1.0)
    np.testing.assert_allclose(taken[11:], 5.0)


@pytest.mark.long
def test_a_step_of_the_slowest_of_many() -> None:
    """The mean of the largest of P draws of 1 - a + a Exp(1) is 1 - a + a H_P."""
    p, a = 10, 0.5
    machine = free(costs={"step_s": 0.05}, stragglers=ShiftedExponential(a))

    run = simulate(Workload(workers=p, stop=Stop(steps=1500), n_held_out=0), machine)

    harmonic = sum(1 / k for k in range(1, p + 1))
    assert steps_s(run).mean() == pytest.approx(0.05 * (1 - a + a * harmonic), rel=0.03)


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


def test_what_is_held_back_is_handed_over_as_two_models_a_worker() -> None:
    """Nothing is published but at the end: then each worker reads its range of everybody's rest, and all ranges."""
    p, sync = 8, ISP(0.7)
    workload = Workload(p, sync=sync, sent=SentFraction(0.0), stop=Stop(steps=2), n_held_out=0)

    run = simulate(workload, free(link=Link(server_bytes_s=1e9)))

    n_rows, width = workload.table_shape
    read = run.traffic.bytes_out - run.history["received_bytes"].sum()
    assert read == pytest.approx(p * 2 * (p - 1) / p * 4 * n_rows * width, rel=0.01)


def test_curves() -> None:
    recorded = RecordedCurve([3.0, 2.0, 1.0])
    noisy = PowerCurve(full_workers=8, noise_workers=4.0)

    assert [recorded.loss(g) for g in (0, 0.5, 1, 2, 9)] == [3.0, 2.5, 2.0, 1.0, 1.0]
    assert noisy.gain(8) == pytest.approx(1.0)
    assert noisy.gain(4) == pytest.approx((1 + 0.5) / 2)
    assert [SentFraction(2.0, 1.0, 1.0).at(t, 2) for t in (1, 2, 4)] == [1.0, 0.5, 0.25]


@pytest.mark.parametrize("pattern", ["broadcast", "scatter-reduce", "allreduce"])
@pytest.mark.parametrize("sync", [BSP(), ISP(0.7)])
def test_training_in_earnest_does_what_one_worker_would(pattern: str, sync: Any) -> None:
    """The real replica in virtual time: workers that share minibatches get where one with all of them gets."""
    ratings = datasets.synthetic_ratings(60, 40, 2160, rank=3, seed=1)
    job = TrainingJob(
        PMF(rank=3),
        SGD(4.0, 0.8),
        ratings,
        validation=ratings,
        minibatch=135,
        workers=4,
        partition="rows",
        stop=Stop(steps=48),
        sync=sync,
        pattern=pattern,
        eval_every=4,
    )
    run, again = simulate(job, TWO_CORES), simulate(job, CLOUD)

    assert run.status == "finished"
    assert run.history["loss"][-1] < 0.9 * run.history["loss"][0]
    assert run.params is not None
    np.testing.assert_array_equal(run.params, again.params)  # time decides nothing
    if sync == BSP():
        # Four have a quarter of the shuffled rows each; the one takes step by step what all four do.
        order = np.random.default_rng([0, ORDER]).permutation(ratings.n)
        rows = np.empty(ratings.n, int)
        rows[order] = order.reshape(4, 4, 135).transpose(1, 0, 2).ravel()
        same = datasets.ratings(ratings.users[rows], ratings.items[rows], ratings.ratings[rows], *ratings.shape)
        alone = dataclasses.replace(job, data=same, workers=1, minibatch=540, pattern="broadcast")
        one = simulate(alone, TWO_CORES)
        assert one.params is not None
        np.testing.assert_allclose(run.params, one.params, rtol=2e-3, atol=2e-4)
        np.testing.assert_allclose(run.history["loss"], one.history["loss"], rtol=1e-3)


@pytest.mark.long
def test_a_thousand_workers() -> None:
    run = simulate(
        Workload(workers=1024, stop=Stop(steps=3), pattern="scatter-reduce", n_held_out=0),
        dataclasses.replace(CLOUD, shards=8),
    )

    assert run.status == "finished"
    assert run.history["n_workers"].tolist() == [1024.0] * 3
