"""The meter against the bill that follows from the lives of a run's processes, as the system tells them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from budget.observer import servers_usd_s
from budget.trial import Trial

from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import SLICE_S

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
#: How far the meter may be off.
SHARE = 0.01
#: A started second of the servers is billed whole: where both bills end around a whole second they may be one apart.
ONE_SECOND = 1.01
STEADY: dict[str, Any] = {"stop": {"steps": 3000}, "checkpoint_every": 200}


def agrees(trial: Trial) -> dict[str, Any]:
    """What the driver said of a run that has finished, once the meter has been compared.

    A successor that has not started when the run ends is billed for a start, however long it takes to leave. Where
    there is none, both bills that follow from the spans are the same. Requests to the storage are counted to the last
    one, but for that between whose report to the observer and count a function is killed.
    """
    said, most, least = trial.finish(), trial.bill_until_missed, trial.bill_of_needed
    assert said["status"] == "finished", said
    parts = said["parts"]
    servers = parts["redis"] + parts.get("broker", 0.0)
    assert servers == pytest.approx(least.servers, abs=ONE_SECOND * servers_usd_s(trial.servers))
    metered = said["cost"] - servers
    assert (1 - SHARE) * least.without_servers <= metered, (parts, least)
    assert metered <= (1 + SHARE) * most.without_servers, (parts, most)
    n_killed = sum(span.returned_s is None for span in trial.observer.spans())
    put_usd = price_profile("aws-lambda-x86").requests["storage"].usd["put"]
    assert parts["storage"] == pytest.approx(most.storage, abs=n_killed * put_usd + 1e-9)
    return said


def kill_after(trial: Trial, n_puts: int, slot: int) -> None:
    """Kill the function of ``slot`` once the first workers have stored ``n_puts`` objects, i.e. after some steps."""
    assert trial.observer.wait(lambda: sum(one.puts for one in trial.observer.lives if one.slot == 0) >= n_puts)
    assert trial.observer.wait(lambda: trial.kill(slot))


@pytest.mark.long
def test_the_meter_agrees_with_the_spans_of_an_undisturbed_run() -> None:
    with Trial(workers=2, **STEADY) as trial:
        said = agrees(trial)
    assert trial.reserved is not None
    least_usd = SLICE_S * Rates(price_profile("aws-lambda-x86"), trial.memory_mb).function_usd_s
    assert trial.reserved - said["cost"] < least_usd  # all functions have returned what they did not need


@pytest.mark.parametrize(
    "victims",
    [
        pytest.param((1, -1), marks=pytest.mark.long),
        pytest.param((0,), marks=pytest.mark.proof),
        pytest.param((-1,), marks=pytest.mark.proof),
        pytest.param((0, 1, 1, -1, -1), marks=pytest.mark.proof),
    ],
)
def test_the_meter_agrees_with_the_spans_of_a_run_whose_functions_are_killed(victims: tuple[int, ...]) -> None:
    with Trial(workers=2, **STEADY | {"stop": {"steps": 2000 * (2 + len(victims))}}) as trial:
        assert trial.observer.wait(lambda: len(trial.observer.functions()) == 3)
        for number, slot in enumerate(victims):
            kill_after(trial, number + 1, slot)
        agrees(trial)
        assert len(trial.observer.spans()) >= 3 + len(victims)


@pytest.mark.proof
def test_the_meter_agrees_with_the_spans_of_functions_that_hand_over() -> None:
    with Trial(workers=2, stop={"time_s": 60.0}, lifetime_s=25.0) as trial:
        said = agrees(trial)
        assert sum("handed over" in text for text in said["events"]) >= 2
        assert len(trial.observer.spans()) >= 6


@pytest.mark.proof
def test_the_meter_agrees_with_the_spans_of_a_run_over_rabbitmq(rabbitmq_url: str) -> None:
    with Trial(workers=2, bus=rabbitmq_url, **STEADY) as trial:
        assert trial.observer.wait(lambda: len(trial.observer.functions()) == 3)
        kill_after(trial, 1, 1)
        kill_after(trial, 2, -1)
        agrees(trial)
