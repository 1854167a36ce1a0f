"""Advice for a job: what is measured, what is said, and that nothing is started."""

from __future__ import annotations

import dataclasses
import re
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlless_nb
from mlless_nb import ISP, PMF, SGD, JobError, LogisticRegression, Stop, TrainingJob, datasets
from mlless_nb.adviser import Advice, Option, descent, foresight, probe
from mlless_nb.adviser.advice import compare
from mlless_nb.adviser.estimate import count
from mlless_nb.adviser.sizes import Sizes
from mlless_nb.widgets import advice_chart

RATINGS = datasets.synthetic_ratings(200, 150, 20_000, rank=3, seed=0)
JOB = TrainingJob(
    model=PMF(rank=4),
    optimizer=SGD(learning_rate=4.0, momentum=0.9, nesterov=True),
    data=RATINGS,
    workers=2,
    minibatch=500,
    stop=Stop(epochs=3),
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure briefly; the figures are not judged here."""
    monkeypatch.setattr(probe, "STEPS_S", 0.01)


def test_every_place_is_compared_and_nothing_is_started() -> None:
    before = mlless_nb.runs()
    advice = mlless_nb.advise(JOB)
    assert mlless_nb.runs() == before
    places = {option.place for option in advice.options}
    assert {"this machine", "Redis", "object storage", "a frame server", "c5.large", "t2.medium"} <= places
    assert {option.workers for option in advice.options if option.place == "Redis"} == {1, 2, 4, 8, 16, 32}
    assert all(option.usd > 0 and option.time_s > 0 for option in advice.options)
    assert advice.sizes.epochs == 3
    assert advice.sizes.n_minibatches == 36
    assert advice.sizes.update_bytes > 4 * 4 * 150
    for said in (advice.sentence, repr(advice)):
        assert "a t2.medium alone" in said
    assert "3 epochs (the stop rule)" in repr(advice)
    shown = advice._repr_html_()
    assert "$" in advice.sentence
    assert shown.startswith('<div class="mathjax_ignore tex2jax_ignore">'), "dollars would be read as formulas"
    assert shown.endswith("</div>")


def test_what_a_budget_buys_costs_no_more_in_the_advice() -> None:
    ahead, advice = foresight.thorough(dataclasses.replace(JOB, stop=Stop(), budget=0.02))
    (own,) = [option for option in advice.options if option.place == "this machine" and option.workers == JOB.workers]
    assert own.usd == pytest.approx(0.02, rel=0.03)
    assert all(option.usd <= 1.05 * 0.02 for option in advice.possible)
    assert "above the budget" in repr(advice)
    assert repr(advice).startswith(f"{count(ahead.epochs)} (as above); ")
    dear = mlless_nb.advise(dataclasses.replace(JOB, budget=1e-6))
    assert dear.possible == []
    assert dear.sentence == "In a cloud no number of functions can do it within the budget"


def test_the_jobs_own_number_of_workers_is_compared_and_the_default_is_no_rule() -> None:
    advice = mlless_nb.advise(dataclasses.replace(JOB, workers=3, stop=Stop()))
    assert {option.workers for option in advice.options if option.place == "Redis"} == {1, 2, 3, 4, 8, 16, 32}
    assert "epochs (at most, or until the loss has settled); " in repr(advice)


def option(kind: str, time_s: float, usd: float) -> Option:
    return Option(kind, {"functions": "Redis", "vm": "c5.large"}[kind], 1, time_s, 0.0, 0.0, usd)


@pytest.mark.parametrize(
    ("vm", "verdict"),
    [
        ((50.0, 0.5), "functions are the wrong choice, the VM is quicker and cheaper"),
        ((200.0, 0.5), "the VM is cheaper, functions are quicker"),
        ((200.0, 2.0), "functions are quicker and cheaper"),
        ((50.0, 2.0), "functions are cheaper, VMs are quicker"),
    ],
)
def test_it_says_when_functions_are_the_wrong_choice(vm: tuple[float, float], verdict: str) -> None:
    options = option("functions", 100.0, 1.0), option("vm", *vm)
    advice = Advice(options, Sizes(1, 1, 1, 0.1, 0.1, 1.0, 1.0, 1.0), "as given", ())
    assert advice.sentence.endswith(f": {verdict}")


@pytest.mark.parametrize(
    ("n_bytes", "verdict"),
    [
        (1e3, "the VM is cheaper, functions are quicker"),
        (2e7, "functions are the wrong choice, the VM is quicker and cheaper"),
    ],
)
def test_functions_are_the_wrong_choice_where_exchange_takes_most_of_the_time(n_bytes: float, verdict: str) -> None:
    sizes = Sizes(40.0, 1000, 1, 0.01, 0.0, n_bytes, n_bytes, 1e6)
    assert compare(JOB, sizes, "as given").sentence.endswith(f": {verdict}")


def test_the_what_ifs_are_in_the_table_and_in_the_chart() -> None:
    advice = mlless_nb.advise(JOB)
    gpu, linked, hot = advice.what_ifs
    assert "a GPU" in gpu.place
    assert linked.place == "a frame server, links of 10 GB/s"
    slower = [one for one in advice.options if (one.place, one.workers) == ("a frame server", linked.workers)]
    assert [linked.exchange_s <= one.exchange_s for one in slower] == [True]
    cold = next(one for one in advice.options if one.place == "c5.large")
    assert hot.start_s == 0 < cold.start_s
    chart = advice_chart(advice)
    for one in advice.what_ifs:
        assert one.place in repr(advice)
        assert f"<title>{one.place}, " in chart
    assert chart.count('<circle fill="none"') == 3 + 1, "a point for each, and one in the legend"
    assert chart in advice._repr_html_()


def test_the_epochs_to_a_target_are_estimated_on_a_sample() -> None:
    run = dataclasses.replace(JOB, stop=Stop(target=0.9, epochs=500))
    advice = mlless_nb.advise(run)
    assert 0 < advice.sizes.epochs < 500
    assert "estimated" in advice.epochs_from
    harder = mlless_nb.advise(dataclasses.replace(run, stop=Stop(target=0.6, epochs=500)))
    assert harder.sizes.epochs > advice.sizes.epochs


def test_a_target_that_the_sample_does_not_reach_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descent, "SAMPLE_S", 0.1)
    with pytest.raises(JobError, match=r"stop\.target.*advise\(job, epochs=20\)"):
        mlless_nb.advise(dataclasses.replace(JOB, stop=Stop(target=1e-6)))
    given_epochs = mlless_nb.advise(dataclasses.replace(JOB, stop=Stop(target=1e-6)), epochs=20)
    assert given_epochs.sizes.epochs == 20
    with pytest.raises(JobError, match="epochs"):
        mlless_nb.advise(JOB, epochs=-1)


@pytest.mark.parametrize(
    ("workers", "says"),
    [
        ([0], "workers=0: must be an integer >= 1"),
        ([1, 2.5], "workers=2.5: must be an integer >= 1"),
        (4, "workers=4: must be numbers of workers, e.g. "),
        ("12", "workers='12': must be numbers of workers"),
        ([64, 37], r"workers=\[64, 37\]: must be some of at most 36, for which there are enough minibatches"),
    ],
)
def test_numbers_of_workers_that_cannot_be_compared_are_named(workers: Any, says: str) -> None:
    with pytest.raises(JobError, match=says):
        mlless_nb.advise(JOB, workers=workers)


def test_isp_and_other_models_are_measured_as_they_are() -> None:
    isp = mlless_nb.advise(dataclasses.replace(JOB, sync=ISP(0.7)))
    assert 0 < isp.sizes.update_bytes < mlless_nb.advise(JOB).sizes.update_bytes
    rows = datasets.synthetic_clicks(3000, n_features=500, seed=0)
    clicks = TrainingJob(model=LogisticRegression(), data=rows, workers=4, minibatch=100, stop=Stop(steps=27))
    assert mlless_nb.advise(clicks).sizes.epochs == pytest.approx(4.0)
    for execution in ("map-reduce", "events"):
        assert mlless_nb.advise(dataclasses.replace(JOB, execution=execution, partition="rows")).options


def test_steps_are_measured_as_a_worker_takes_them() -> None:
    """With the optimiser of the run, which skips what a minibatch does not touch; and users stay with their worker."""
    rows = datasets.synthetic_clicks(3000, n_features=5000, seed=0)
    clicks = TrainingJob(LogisticRegression(l2=1e-5), data=rows, workers=2, minibatch=20, stop=Stop(epochs=1))
    sizes = probe.probe(clicks)
    assert sizes.update_bytes < sizes.table_bytes / 2
    assert sizes.planned_bytes < sizes.table_bytes / 2
    assert sizes.is_lazy
    n_users, n_items = RATINGS.shape
    assert probe.probe(JOB).table_bytes == 4 * 5 * n_items
    whole = probe.probe(dataclasses.replace(JOB, partition="rows"))
    assert whole.table_bytes == 4 * 5 * (n_users + n_items)
    assert whole.update_bytes > probe.probe(JOB).update_bytes


def test_the_chart_has_a_point_for_each_option_and_is_readable_without_it() -> None:
    advice = mlless_nb.advise(JOB)
    chart = advice_chart(advice)
    assert chart.count("<circle") >= len(advice.possible)
    assert "t2.medium alone" in chart
    assert "<script" not in chart


@given(st.lists(st.tuples(st.floats(90, 170), st.floats(1e-3, 1e-2), st.integers(1, 128)), min_size=2, max_size=25))
def test_numbers_in_the_chart_touch_no_other_number_or_point(drawn: list[tuple[float, float, int]]) -> None:
    options = tuple(Option("functions", "Redis", w, time_s, 0.0, 0.0, usd) for time_s, usd, w in drawn)
    chart = advice_chart(Advice(options, Sizes(1, 1, 1, 0.1, 0.1, 1.0, 1.0, 1.0), "as given", ()))
    for one, other in combinations(_boxes(chart), 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    points = [
        (float(x), float(y))
        for x, y in re.findall(r'<circle fill="#\w+" cx="([\d.]+)" cy="([\d.]+)" r="4"><title', chart)
    ]
    assert len(points) == len(options)
    for left, top, right, bottom in _boxes(chart):
        assert not any(left - 3 < x < right + 3 and top - 3 < y < bottom + 3 for x, y in points)
        assert min(abs(x - (left + right) / 2) + abs(y - (top + bottom) / 2) for x, y in points) < 32  # beside its own


def test_points_that_are_near_each_other_have_their_numbers() -> None:
    options = tuple(Option("functions", "Redis", w, 130.0 + w / 16, 0.0, 0.0, 0.01 + w / 1e4) for w in (16, 32))
    far = Option("functions", "Redis", 1, 900.0, 0.0, 0.0, 0.1)
    sizes = Sizes(1, 1, 1, 0.1, 0.1, 1.0, 1.0, 1.0)
    assert len(_boxes(advice_chart(Advice((*options, far), sizes, "as given", ())))) == 3


def _boxes(chart: str) -> list[tuple[float, float, float, float]]:
    """Of the points' numbers: left, top, right and bottom, by the least size of the letters."""
    found = re.findall(r'<text fill="#\w+" x="([\d.]+)" y="([\d.]+)">(\d+)</text>', chart)
    return [(float(x), float(y) - 8, float(x) + 6 * len(text), float(y)) for x, y, text in found]


@pytest.mark.parametrize(
    ("amount", "told"), [(9.9e-5, "0.000099"), (4.2e-7, "0.00000042"), (0.25, "0.25"), (1234.0, "1,234")]
)
def test_dollars_are_written_out(amount: float, told: str) -> None:
    option = Option("functions", "Redis", 1, 1.0, 0.0, 0.0, amount)
    advice = Advice((option,), Sizes(1, 1, 1, 0.1, 0.1, 1.0, 1.0, 1.0), "as given", ())
    assert f"${told}" in advice.sentence
    assert f" {told}  *" in repr(advice)
    assert f">{told}</td>" in advice._repr_html_()
    assert not re.search(r"\de-\d", advice_chart(advice))


@given(st.floats(1e-3, 1e6), st.floats(1e-9, 1e3))
def test_the_chart_draws_any_amounts(scale_s: float, scale_usd: float) -> None:
    options = tuple(Option("functions", "Redis", w, scale_s / w, 0.0, 0.0, scale_usd * w) for w in (1, 2, 1000))
    sizes = Sizes(1, 1, 1, 0.1, 0.1, 1.0, 1.0, 1.0)
    assert "nan" not in advice_chart(Advice(options, sizes, "as given", ()))
