"""The tuner where the global minibatch stays: it goes by time and dollars alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from supervisor.policy.curves import PRICES, hyperbola

from mlless_nb import ScaleIn
from mlless_nb.exchange.step_report import Report
from mlless_nb.supervisor.policy.cost_scale_in import LEAST_TIMED, CostScaleIn
from mlless_nb.supervisor.policy.decision import Decision
from mlless_nb.supervisor.policy.loss_history import History
from mlless_nb.supervisor.policy.policy import Policy, make_tuner
from mlless_nb.supervisor.policy.scale_in import ScaleInTuner
from mlless_nb.supervisor.policy.step_times import KeptStepTimes
from mlless_nb.telemetry.live import COLUMNS


class Machine:
    """Steps of P workers that compute ``cpu_s`` for a shard and exchange ``exchange_s`` a peer, on some cores."""

    def __init__(self, n_all: int, n_cores: int, cpu_s: float, exchange_s: float) -> None:
        self.n_all, self.n_cores, self.cpu_s, self.exchange_s = n_all, n_cores, cpu_s, exchange_s

    def step_s(self, n_workers: int) -> float:
        """The truth that the tuner is to find."""
        cores = self.n_cores or n_workers
        computing = self.cpu_s * max(math.ceil(self.n_all / n_workers), self.n_all / cores)
        crowding = n_workers / min(cores, n_workers)
        return computing + self.exchange_s * (n_workers - 1) * crowding + 1e-4

    def run(
        self, stop: dict[str, float], n_steps: int = 600, cap_usd: float | None = None, noise: float = 0.0
    ) -> tuple[list[int], list[Decision]]:
        """Workers at each step, and all decisions."""
        history, rng = History(), np.random.default_rng(0)
        tuner = CostScaleIn(ScaleIn().to_json(), self.n_all, stop, PRICES, history, self.n_cores)
        tuner.cap_usd = cap_usd
        left, time_s, spent, workers, decisions = self.n_all, 1.0, PRICES.usd_s(self.n_all), [], []
        for step in range(1, n_steps + 1):
            step_s = self.step_s(left) * (1 + noise * abs(rng.normal()))
            time_s, spent = time_s + step_s, spent + step_s * PRICES.usd_s(left)
            known = dict.fromkeys(COLUMNS, 0.0) | {"step": step, "epoch": step / 20, "time_s": time_s}
            known |= {"loss": hyperbola(step), "n_workers": left, "spent_usd": spent}
            known["validation_loss"] = hyperbola(step) if step % 10 == 0 else math.nan
            known["compute_cpu_s"] = self.cpu_s * self.n_all / left
            history.append([known[name] for name in COLUMNS])
            workers.append(left)
            made = tuner.decide()
            decisions += made
            left -= sum(decision.kind == "remove" for decision in made)
        return workers, decisions


def test_where_workers_share_two_cores_most_of_them_go_at_once() -> None:
    machine = Machine(8, 2, 1e-3, 2e-4)
    workers, decisions = machine.run({"steps": 600})
    assert workers[LEAST_TIMED] == 8
    assert workers[60] <= 2
    best = min(range(1, 9), key=lambda p: machine.step_s(p) ** 2 * PRICES.usd_s(p))
    product = [machine.step_s(p) ** 2 * PRICES.usd_s(p) for p in (workers[-1], best)]
    assert product[0] <= 1.1 * product[1]
    removed = [decision for decision in decisions if decision.kind == "remove"]
    assert len(removed) == 8 - workers[-1]
    assert removed[0].about(3).text == "Removed worker 3 (8 -> 7)"
    assert "instead of" in removed[-1].about(4).text
    numbers = {name: value for name, value in removed[0].numbers.items() if value is not None}
    n_best = int(numbers["n_best"])
    assert (numbers["n_workers"], n_best) == (8.0, workers[60])
    assert numbers["step_s"] == pytest.approx(machine.step_s(8), rel=0.1)
    assert numbers["then_step_s"] == pytest.approx(machine.step_s(n_best), rel=0.15)
    assert numbers["step_usd"] == pytest.approx(numbers["step_s"] * PRICES.usd_s(8))
    assert numbers["then_step_usd"] == pytest.approx(numbers["then_step_s"] * PRICES.usd_s(n_best))
    assert numbers["rest_steps"] == 600 - removed[0].step
    time_s, usd, left = removed[0].time_s, removed[0].time_s * PRICES.usd_s(8), numbers["rest_steps"]
    now, then = (
        (time_s + left * numbers[f"{when}step_s"]) * (usd + left * numbers[f"{when}step_usd"]) for when in ("", "then_")
    )
    assert numbers["saving"] == pytest.approx(1 - then / now, rel=1e-6)


def test_where_each_worker_has_a_core_and_steps_are_computing_all_stay() -> None:
    workers, decisions = Machine(8, 0, 0.02, 1e-5).run({"steps": 600})
    assert workers[-1] == 8
    assert {decision.kind for decision in decisions} == {"keep"}


def test_where_each_worker_has_a_core_and_steps_are_exchange_some_go() -> None:
    machine = Machine(24, 0, 1e-3, 1e-3)
    workers, _ = machine.run({"steps": 2000}, 2000)
    assert workers[-1] < 24
    product = [machine.step_s(p) ** 2 * PRICES.usd_s(p) for p in (workers[-1], 24)]
    assert product[0] < 0.9 * product[1]


def test_a_budget_alone_buys_the_most_steps() -> None:
    """Time is nobody's concern then: a step is to be cheap."""
    machine = Machine(8, 0, 2e-3, 5e-4)
    by_money, decisions = machine.run({}, cap_usd=0.05)
    by_both, _ = machine.run({"steps": 600})
    cost = [machine.step_s(workers[-1]) * PRICES.usd_s(workers[-1]) for workers in (by_money, by_both)]
    assert cost[0] <= cost[1] * 1.001
    assert "outcome" not in {decision.kind for decision in decisions}  # slower but cheaper is what was meant
    cheapest = min(machine.step_s(p) * PRICES.usd_s(p) for p in range(1, 9))
    assert cost[0] <= 1.1 * cheapest


def test_a_removal_that_did_not_pay_is_the_last() -> None:
    class Worse(Machine):
        def step_s(self, n_workers: int) -> float:
            return super().step_s(n_workers) * (1 if n_workers == self.n_all else 6)

    workers, decisions = Worse(8, 2, 1e-3, 2e-4).run({"steps": 600})
    outcome = next(decision for decision in decisions if decision.kind == "outcome")
    assert "no better use" in outcome.text
    assert not [one for one in decisions if one.kind == "remove" and one.step > outcome.step]
    assert workers[-1] >= 1


def test_a_run_about_to_end_is_left_alone() -> None:
    workers, _ = Machine(8, 2, 1e-3, 2e-4).run({"steps": 60}, 60)
    assert workers[-1] == 8


@settings(deadline=None, max_examples=40)
@given(
    n_all=st.integers(2, 32),
    n_cores=st.sampled_from([0, 1, 2, 4, 64]),
    cpu_s=st.floats(1e-5, 1e-1),
    exchange_s=st.floats(1e-6, 1e-2),
    stop=st.sampled_from([{}, {"steps": 400}, {"target": 0.52}, {"epochs": 15.0}, {"time_s": 30.0}]),
)
def test_no_machine_is_tuned_to_the_worse(
    n_all: int, n_cores: int, cpu_s: float, exchange_s: float, stop: dict[str, float]
) -> None:
    machine = Machine(n_all, n_cores, cpu_s, exchange_s)
    workers, _ = machine.run(stop, 300, noise=0.02)
    assert workers[-1] >= 1
    product = [machine.step_s(p) ** 2 * PRICES.usd_s(p) for p in (workers[-1], n_all)]
    assert product[0] <= 1.05 * product[1]


def test_step_times_with_fewer_workers_are_told_from_what_they_are_made_of() -> None:
    history, times = History(), KeptStepTimes(8, 2)
    assert math.isnan(times.at(4))
    for step in range(1, 40):
        known = dict.fromkeys(COLUMNS, 0.0) | {"step": step, "time_s": 0.01 * step, "n_workers": 8, "loss": 1.0}
        known["compute_cpu_s"] = 1e-3
        history.append([known[name] for name in COLUMNS])
    times.measure(history, 0)
    assert times.at(8) == pytest.approx(0.01)
    assert times.at(4) == pytest.approx(4e-3 + 6e-3 * 3 / 7)  # two cores compute eight shards whoever has them
    assert times.at(1) == pytest.approx(8e-3 + 6e-3 * 0.25)


def test_the_tuner_is_the_one_that_the_job_asks_for() -> None:
    for scale_in, kind in ((ScaleIn(), CostScaleIn), (ScaleIn(global_minibatch="shrink"), ScaleInTuner)):
        assert isinstance(make_tuner(scale_in.to_json(), 4, {}, PRICES, History()), kind)


def test_each_removal_names_another_worker() -> None:
    advice = Policy(ScaleIn().to_json(), 8, {"steps": 400}, PRICES, n_cores=2)
    reports, found = {slot: Report(compute_s=0.1 * slot) for slot in range(8)}, []
    for step in range(1, 60):
        known = dict.fromkeys(COLUMNS, 0.0) | {"step": step, "time_s": 0.01 * step, "n_workers": 8, "loss": 1 / step}
        known |= {"compute_cpu_s": 1e-3, "spent_usd": 1e-5 * step, "epoch": step / 10, "validation_loss": math.nan}
        advice.append([known[name] for name in COLUMNS])
        found += advice.decide(reports, set())
    removed = [worker for decision, worker in found if decision.kind == "remove"]
    assert len(removed) == len(set(removed)) >= 6
    assert removed[0] == 7
