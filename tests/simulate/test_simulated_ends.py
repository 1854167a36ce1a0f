"""How simulated runs end: by the lifetime of functions, by a budget, by commands, by a target."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from simulate.test_simulate import free, steps_s

from mlless_nb import ISP, JobError, Stop
from mlless_nb.bus.messages import Command
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import EXIT_S, SLICE_S
from mlless_nb.simulate import (
    CLOUD,
    TWO_CORES,
    Costs,
    Even,
    Link,
    Machine,
    Pareto,
    PowerCurve,
    SentFraction,
    Workload,
    simulate,
)
from mlless_nb.supervisor.loop import LAST_WORDS_S


def test_the_lifetime_of_functions_ends_a_run_in_good_order() -> None:
    machine = free(costs={"step_s": 1.0}, lifetime_s=100.0)

    run = simulate(Workload(workers=3, stop=Stop(steps=10_000)), machine)

    assert run.status == "stopped"
    assert "lifetime" in run.reason
    assert 90.0 < run.time_s < 100.0  # there is nobody who invokes successors


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
        assert run.cost.total <= cap
        assert run.history.n_steps > 2
        # The end is announced when the least that one function needs is not to be had: its exit and three steps. What
        # the others hold then unspent is at most that, and a slice or a step: (P + 2) functions' exits and four steps.
        # With even steps at least 87 % of these caps is spent; with steps of seconds it promises nothing.
        rates, longest_s = Rates(price_profile(workload.prices), workload.memory_mb), steps_s(run).max()
        held_s = EXIT_S + LAST_WORDS_S + 3 * longest_s + max(SLICE_S, longest_s)
        unspent = held_s * ((workload.workers + 2) * rates.function_usd_s + rates.servers_usd_s)
        assert cap - run.cost.total <= unspent
        if isinstance(machine.stragglers, Even):
            assert unspent < 0.13 * cap
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


@pytest.mark.parametrize("workers", [8, 64])
def test_what_is_not_looked_at_takes_as_long(workers: int) -> None:
    """With a cap functions are woken five times a second while they wait, without one hardly ever."""
    workload = Workload(workers, sync=ISP(0.7), sent=SentFraction(0.5, 0.0), stop=Stop(steps=4), n_held_out=0)
    machine = free(link=Link(1e-3, server_bytes_s=1e8), shards=2)  # steps of a tenth of a second, and of five

    free_to_spend, capped = (simulate(dataclasses.replace(workload, budget=one), machine) for one in (None, 1e6))

    for column in capped.history:
        np.testing.assert_array_equal(free_to_spend.history[column], capped.history[column])
    assert free_to_spend.cost == capped.cost
    assert free_to_spend.time_s == capped.time_s


def test_a_target_on_a_curve() -> None:
    """Loss 1 / (0.1 t + 1): at or below 0.5 after 10 steps; evaluations come every 5."""
    curve = PowerCurve(start=1.0, floor=0.0, speed=0.1, noise=0.0)
    workload = Workload(workers=3, curve=curve, stop=Stop(target=0.5, steps=100), eval_every=5)

    run = simulate(workload, free(costs={"step_s": 0.1}))

    assert run.status == "finished"
    assert "target reached" in run.reason
    assert 10 <= run.history.n_steps <= 12
    np.testing.assert_allclose(run.history["loss"], [1 / (0.1 * t + 1) for t in range(run.history.n_steps)])
