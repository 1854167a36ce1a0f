"""Commands that act while training runs: stop, scale-in, budget; and what is left afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from engine.jobs import PATIENCE_S, cost_of_a_start, finish, job, wait_for_step

import mlless_nb
from mlless_nb import BSP, ISP, BudgetError, CommandError, JobError, ScaleIn, Stop
from mlless_nb.driver import driver, runs
from mlless_nb.driver.ending import conclusion, final_bill, teardown
from mlless_nb.driver.launch import data_preparation
from mlless_nb.money import Rates, cost, price_profile

LONG = Stop(steps=100_000)
#: The prices of a job that names none.
RATES = Rates(price_profile("aws-lambda-x86"), 1769)


def test_stop_ends_the_run_with_its_model() -> None:
    run = mlless_nb.train(job(stop=LONG))
    wait_for_step(run, 5)
    asked_at = run.telemetry.state.step
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped"
    assert run.telemetry.state.step >= asked_at
    assert run.model.predict([0], [0]).shape == (1,)
    with pytest.raises(CommandError, match="has ended"):
        run.scale_in(1)


def test_a_stop_that_comes_too_late_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[str] = []
    keep = driver.teardown.keep

    def keep_late(*args: Any) -> None:
        run = mlless_nb.attach("late")
        run.stop()  # everything is closed already, and it does not say yet that it has ended
        late.append(run.status)
        keep(*args)

    monkeypatch.setattr(driver.teardown, "keep", keep_late)
    run = finish(job(name="late"))
    assert run.status == "finished", run.reason
    assert late == ["running"]
    assert not run.telemetry.state.pending


def test_a_stop_while_the_data_is_packed_packs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[Any] = []

    def write(dataset: Any, *args: Any) -> Any:
        packed.append(dataset)
        runs.handles()[-1].stop()
        return real_write(dataset, *args)

    real_write = data_preparation.write
    monkeypatch.setattr(data_preparation, "write", write)
    monkeypatch.setattr(data_preparation, "packed", lambda *_: None)
    assert finish(job()).status == "stopped"
    assert len(packed) == 1


@pytest.mark.parametrize(
    ("sync", "partition", "n_minibatches", "global_minibatch"),
    [
        (ISP(0.7), "user", 20, "keep"),
        *(
            pytest.param(*variant, marks=pytest.mark.long)
            for variant in (
                (BSP(), "rows", 18, "keep"),
                (ISP(0.7), "rows", 18, "shrink"),
                (BSP(), "user", 20, "shrink"),
                (ISP(0.7), "rows", 18, "keep"),
                (BSP(), "user", 20, "keep"),
                (BSP(), "rows", 18, "shrink"),
                (ISP(0.7), "user", 20, "shrink"),
            )
        ),
    ],
    ids=str,
)
def test_scale_in_takes_workers_out_one_by_one(
    sync: BSP | ISP, partition: str, n_minibatches: int, global_minibatch: str
) -> None:
    scale_in = ScaleIn(enabled=False, global_minibatch=global_minibatch)
    run = mlless_nb.train(job(sync=sync, partition=partition, stop=LONG, scale_in=scale_in))
    wait_for_step(run, 5)
    run.scale_in(worker_id=1)
    seen = 0
    while run.telemetry.state.n_workers > 3:
        seen = run.telemetry.wait_for_change(seen, PATIENCE_S)
    run.scale_in(2)
    while run.telemetry.state.n_workers > 1:
        seen = run.telemetry.wait_for_change(seen, PATIENCE_S)
    with pytest.raises(CommandError, match="must stay"):
        run.scale_in(1)
    wait_for_step(run, run.telemetry.state.step + 5)
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped"
    n_workers = run.history["n_workers"]
    assert n_workers[0] == 4
    assert n_workers[-1] == 1
    assert (np.diff(n_workers) <= 0).all()
    # The global minibatch stays, or shrinks with the workers; no minibatch is skipped or taken twice.
    positions = run.history["epoch"] * n_minibatches
    n_taken = np.full_like(n_workers, 4) if global_minibatch == "keep" else n_workers
    np.testing.assert_allclose(np.diff(positions, prepend=0), n_taken, rtol=1e-6)
    assert "Removed worker 1" in " ".join(event.text for event in run.telemetry.state.events)


def test_impossible_commands_are_refused_and_the_run_goes_on() -> None:
    run = mlless_nb.train(job(stop=LONG, budget=1.0))
    wait_for_step(run, 2)
    for command, message in (
        (lambda: run.scale_in(4), "from 1 to 3"),
        (lambda: run.scale_in(0), "from 1 to 3"),
        (lambda: run.scale_in(worker_id=9), "0 to 3"),
        (lambda: setattr(run, "budget", 1e-9), "at least"),
        (lambda: setattr(run, "budget", float("nan")), "finite"),
    ):
        with pytest.raises(ValueError, match=message):
            command()
    wait_for_step(run, run.telemetry.state.step + 3)
    run.budget = 2.0
    seen = 0
    while run.budget != 2.0:
        seen = run.telemetry.wait_for_change(seen, PATIENCE_S)
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped"


def test_a_second_live_run_of_one_name_is_refused_with_its_cost() -> None:
    run = mlless_nb.train(job(stop=LONG, name="twin"))
    try:
        with pytest.raises(CommandError, match=r"'twin' is live \(\$"):
            mlless_nb.train(job(stop=LONG, name="twin"))
    finally:
        run.stop()
    run.wait(PATIENCE_S)
    assert run in mlless_nb.runs()
    assert mlless_nb.attach("twin") is run


@pytest.fixture
def bills(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """By how much each bill was above its cap before it was cut to it, nano-dollars: must be 0 for all."""
    over, cut = list[int](), cost.cut

    def observed(costs: dict[str, int], most: int | None, first: str = "supervisor") -> dict[str, int]:
        over.append(0 if most is None else max(sum(costs.values()) - most, 0))
        return cut(costs, most, first)

    for module in (final_bill, teardown, conclusion):
        monkeypatch.setattr(module, "cut", observed)
    yield over
    assert over
    assert not any(over)


@pytest.mark.long
@pytest.mark.usefixtures("bills")
def test_a_cap_below_the_cost_is_kept_and_the_model_is_there() -> None:
    steps = Stop(steps=8000)
    whole = finish(job(stop=steps)).cost.total
    with pytest.raises(BudgetError) as refused:
        mlless_nb.train(job(stop=steps, budget=1e-9))
    least = float(refused.value.valid.split()[2])  # for a start, of which most is returned
    cap = max(whole / 2, 1.05 * least)
    assert cap < whole
    run = finish(job(stop=steps, budget=cap))
    assert run.status == "capped", run.reason
    assert run.cost.total <= cap
    assert run.telemetry.state.step > 0
    assert np.isfinite(run.model.predict([0], [0])).all()


@pytest.mark.usefixtures("bills")
@pytest.mark.parametrize(("most_starts", "n"), [(5, 2), pytest.param(8, 6, marks=pytest.mark.long)])
def test_no_cap_is_ever_passed(most_starts: int, n: int) -> None:
    for cap in cost_of_a_start() * np.random.default_rng(5).uniform(3, most_starts, size=n):
        run = finish(job(stop=LONG, budget=float(cap)))
        assert run.status == "capped", run.reason
        assert run.cost.total <= cap
        assert run.model.predict([0], [0]).shape == (1,)


def test_a_budget_too_small_for_a_step_says_the_smallest_that_would_do() -> None:
    with pytest.raises(BudgetError, match="at least") as error:
        mlless_nb.train(job(budget=1e-6))
    least = float(error.value.valid.split()[2])
    with pytest.raises(BudgetError, match="at least"):
        mlless_nb.train(job(budget=0.99 * least))
    # It is reckoned for a machine at rest; a busy one, or a slow one, starts functions more slowly, and that costs.
    cap = 3 * max(least, cost_of_a_start())
    run = finish(job(budget=cap, stop=Stop(steps=1)))
    assert run.cost.total <= cap
    assert run.telemetry.state.step >= 1


def test_the_cost_is_the_sum_of_its_components() -> None:
    began_s = time.monotonic()
    run = finish(job(stop=Stop(steps=5)))
    lasted_s, cost = time.monotonic() - began_s, run.cost
    assert cost.total == pytest.approx(cost.workers + cost.supervisor + cost.redis + cost.broker + cost.storage)
    assert cost.workers > cost.supervisor > 0
    # Redis is billed by the second, for as long as the run and the end of its functions last.
    billed_s = cost.redis / RATES.servers_usd_s
    assert run.history["time_s"][-1] <= billed_s <= lasted_s + RATES.tail_s + 1.0
    assert billed_s == pytest.approx(round(billed_s), abs=1e-3)
    assert cost.broker == 0


def test_an_ended_run_is_found_again_from_its_record() -> None:
    run = finish(job(stop=Stop(steps=5), name="kept"))
    runs._ended.remove(run)
    found = mlless_nb.attach(run.id)
    assert (found.status, found.reason, found.name) == (run.status, run.reason, "kept")
    np.testing.assert_array_equal(found.history["loss"], run.history["loss"])
    np.testing.assert_array_equal(found.model.predict([3], [4]), run.model.predict([3], [4]))
    with pytest.raises(CommandError, match="no ended run"):
        mlless_nb.attach("never-was")


@pytest.mark.parametrize("validation", [0.1, None], ids=["held-out rows", "training rows"])
def test_a_target_that_is_met_already_is_refused(validation: float | None) -> None:
    with pytest.raises(JobError, match=r"stop.target=100: must be below \d\.\d+, the RMSE before any training"):
        mlless_nb.train(job(validation=validation, stop=Stop(target=100)))


def test_a_bus_that_functions_cannot_reach_is_refused() -> None:
    with pytest.raises(JobError, match="bus='memory://': must be a server"):
        mlless_nb.train(job(bus="memory://"))
