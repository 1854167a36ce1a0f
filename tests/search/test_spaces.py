"""What settings are drawn from, how a job is made of them, and how far a trial is: without a run."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mlless_nb import PMF, SGD, Adam, JobError, LogisticRegression, Stop, TrainingJob, datasets
from mlless_nb.errors import MllessError, RunError
from mlless_nb.search import Sweep, Trial, choice, integer, log_uniform, uniform
from mlless_nb.search.recipe import recipe_of, tried
from mlless_nb.search.rungs import TrialLength
from mlless_nb.search.space import combinations
from mlless_nb.search.study import Study
from mlless_nb.telemetry.live import COLUMNS

RATINGS = datasets.synthetic_ratings(60, 40, 900, rank=2, seed=1)
JOB = TrainingJob(PMF(2), SGD(0.5), RATINGS, workers=1, minibatch=90, stop=Stop(epochs=9))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (choice, r"choice=0: must be of 1 to 100 values"),
        (lambda: choice(1, 1), "must be of values that differ"),
        (lambda: uniform(2, 1), "the lower one first"),
        (lambda: log_uniform(0, 1), "must be numbers > 0"),
        (lambda: uniform("a", 1), "uniform='a': must be two finite numbers"),
        (lambda: integer(1.5, 3), "integer=1.5: must be two integers"),  # type: ignore[arg-type]
    ],
)
def test_wrong_spaces_are_one_line(make: Any, says: str) -> None:
    with pytest.raises(JobError, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_values_are_drawn_from_where_they_are_said_to_be() -> None:
    spaces = {
        "rate": log_uniform(1e-3, 10.0),
        "l2": uniform(0.0, 1.0),
        "rank": integer(2, 40),
        "optimizer": choice(SGD(0.5), Adam(0.1), None),
        "kind": choice(["a", "b"]),
    }
    drawing = Study(spaces, "random", 50, None, 0)
    drawn: list[dict[str, Any]] = []

    def recipe(draw: Any) -> TrainingJob:
        drawn.append({name: draw(name, space) for name, space in spaces.items()})
        return JOB

    for _ in range(50):
        drawing.tell(drawing.ask(recipe), 1.0)
    assert all(1e-3 <= each["rate"] <= 10.0 and 0 <= each["l2"] <= 1 and 2 <= each["rank"] <= 40 for each in drawn)
    assert all(isinstance(each["rank"], int) for each in drawn)
    assert {str(each["optimizer"]) for each in drawn} == {str(SGD(0.5)), str(Adam(0.1)), "None"}
    assert {each["kind"] for each in drawn} == {"a", "b"}
    assert min(each["rate"] for each in drawn) < 0.1  # not uniform


def test_a_grid_is_drawn_whole_and_once() -> None:
    spaces = {"a": choice(1, 2, 3), "b": integer(1, 4)}
    drawing = Study(spaces, "auto", None, 3, 0)
    assert (drawing.sampler, drawing.n_trials) == ("grid", 12)
    asked = [
        drawing.ask(lambda draw: dataclasses.replace(JOB, seed=10 * draw("a", spaces["a"]) + draw("b", spaces["b"])))
        for _ in range(12)
    ]
    assert len({each.job.seed for each in asked if each.job is not None}) == 12
    assert combinations({"a": uniform(0, 1)}) is None
    assert Study(spaces, "auto", 5, 3, 0).sampler == "tpe"
    with pytest.raises(JobError, match="a is drawn from endlessly many values"):
        Study({"a": uniform(0, 1)}, "grid", None, 3, 0)


def test_successive_halving_keeps_the_best_third() -> None:
    drawing, pruned = Study({"a": uniform(0, 1)}, "random", 30, 3, 0), []
    for loss in range(9, 0, -1):  # each better than all before
        asked = drawing.ask(lambda draw: JOB)
        pruned.append(drawing.report(asked, float(loss), 1))
        drawing.tell(asked, None)
    assert not any(pruned)
    assert drawing.report(drawing.ask(lambda draw: JOB), 5.0, 1)
    assert not drawing.report(drawing.ask(lambda draw: JOB), 2.0, 1)
    off = Study({"a": uniform(0, 1)}, "random", 30, None, 0)
    assert not any(off.report(off.ask(lambda draw: JOB), float(loss), 27) for loss in range(9))


@pytest.mark.parametrize(("trials", "factor"), [(1, None), (5, None), (6, 3), (20, 3), (None, 3)])
def test_where_the_best_third_would_be_one_trial_all_run_to_their_ends(trials: int | None, factor: int | None) -> None:
    assert Study({"a": uniform(0, 1)}, "auto", trials, "auto", 0).factor == factor
    assert Study({"a": uniform(0, 1)}, "auto", trials, 2, 0).factor == 2


def test_a_grid_of_few_trials_runs_whole_to_its_end() -> None:
    drawing = Study({"a": choice(1, 2, 3)}, "auto", None, "auto", 0)
    assert not any(drawing.report(drawing.ask(lambda draw: JOB), float(loss), 1) for loss in range(3))


def test_fields_are_found_in_the_job_and_its_parts() -> None:
    space = {"learning_rate": choice(1.0, 2.0), "model.rank": choice(3), "workers": choice(2), "epochs": choice(4)}
    job, spaces, _ = tried(recipe_of(JOB, space))
    assert job.optimizer == SGD(1.0)
    assert (job.model.rank, job.workers, job.stop.epochs) == (3, 2, 4)  # type: ignore[attr-defined]
    assert spaces == space
    whole = {"optimizer": choice(Adam(0.1), SGD(0.3)), "optimizer.learning_rate": choice(0.7)}
    assert tried(recipe_of(JOB, whole))[0].optimizer == Adam(0.7)


@pytest.mark.parametrize(
    ("space", "says"),
    [
        ({}, "what settings are drawn from"),
        ({"lerning_rate": choice(1.0)}, "is learning_rate meant|a field of the job or of a part"),
        ({"kind": choice(1)}, "a field of the job"),
        ({"learning_rate": 0.5}, r"space\['learning_rate'\]=0.5: must be choice"),
        ({"workers": choice(1, 1000)}, "workers=1000: must be at most"),
        ({"validation": choice(0.1, None)}, "compared by their held-out losses"),
        ({"learning_rate": log_uniform(1e-3, 1), "rank": integer(0, 3)}, "PMF.rank=0"),
    ],
)
def test_wrong_settings_are_refused_before_anything_begins(space: Any, says: str) -> None:
    with pytest.raises(MllessError, match=says) as caught:
        tried(recipe_of(JOB, space))
    assert "\n" not in str(caught.value)


def test_a_function_makes_jobs() -> None:
    recipe = recipe_of(lambda rate: dataclasses.replace(JOB, optimizer=SGD(rate)), {"rate": choice(0.25, 0.5)})
    assert tried(recipe)[0].optimizer == SGD(0.25)
    with pytest.raises(JobError, match="a function that returns a TrainingJob"):
        tried(recipe_of(lambda rate: None, {"rate": choice(0.25, 0.5)}))  # type: ignore[arg-type,return-value]
    clicks = datasets.synthetic_clicks(500, n_features=50, seed=0)
    other = TrainingJob(LogisticRegression(), data=clicks)
    with pytest.raises(JobError, match="one whose held-out loss is RMSE"):
        tried(recipe_of(lambda is_other: other if is_other else JOB, {"is_other": choice(False, True)}))


def test_a_setting_called_like_a_column_has_its_own() -> None:
    spaces = {"loss": choice("log", "hinge"), "rank": integer(2, 4)}
    sweep = Sweep("kinds", "log loss", spaces, Study(spaces, "random", 1, None, 0), 1)
    sweep._put(Trial(1, "kinds-1", settings={"loss": "hinge", "rank": 3}, status="finished", loss=0.0))
    frame = sweep.to_pandas()
    assert (frame["loss"].tolist(), frame["settings.loss"].tolist(), frame["rank"].tolist()) == ([0.0], ["hinge"], [3])
    assert "best log loss 0 of kinds-1" in repr(sweep)


@pytest.mark.parametrize("loss", [0.5, None])
def test_the_best_trial_is_waited_for(monkeypatch: pytest.MonkeyPatch, loss: float | None) -> None:
    spaces = {"rank": integer(2, 4)}
    sweep = Sweep("ranks", "RMSE", spaces, Study(spaces, "random", 1, None, 0), 1)
    trial = Trial(1, "ranks-1", settings={"rank": 3}, status="finished", loss=loss)
    monkeypatch.setattr(sweep, "wait", lambda: sweep._put(trial))
    assert sweep.best_so_far is None
    if loss is not None:
        assert sweep.best_trial.settings == {"rank": 3}
        return
    with pytest.raises(RunError, match="sweep 'ranks' has no trial with a loss"):
        _ = sweep.best_trial


@given(epochs=st.floats(1, 500), factor=st.integers(2, 5), at=st.floats(0, 2))
def test_how_far_a_trial_is(epochs: float, factor: int, at: float) -> None:
    length = TrialLength({"epoch": epochs}, factor)
    row = dict.fromkeys(COLUMNS, 0.0) | {"epoch": at * epochs}
    assert length.share(row) == pytest.approx(min(at, 1.0))
    assert 0 <= length.resource(row) <= factor**3
    has_come = length.share(row) * factor**3 + 1e-9 >= 1  # type: ignore[operator]
    assert (length.resource(row) >= 1) == (has_come and row["epoch"] >= 1 - 1e-9)


def test_no_trials_are_compared_before_an_epoch() -> None:
    length = TrialLength({"epoch": 20.0}, 3)  # 1/27 of it is epoch 0.74
    row = dict.fromkeys(COLUMNS, 0.0)
    assert [length.resource(row | {"epoch": epoch}) for epoch in (0.75, 0.99, 1.0, 2.3)] == [0, 0, 1, 3]
    assert TrialLength({"step": 40.0}, 3).resource(row | {"step": 20.0, "epoch": 0.5}) == 0


def test_the_length_of_a_trial_is_what_ends_it_first() -> None:
    row = dict.fromkeys(COLUMNS, 0.0) | {"epoch": 3.0, "step": 8.0, "spent_usd": 0.25}
    assert TrialLength.of(JOB, 3).share(row) == pytest.approx(1 / 3)
    both = dataclasses.replace(JOB, stop=Stop(epochs=9, steps=10), budget=1.0)
    assert TrialLength.of(both, 3).share(row) == pytest.approx(0.8)
    target = TrialLength.of(dataclasses.replace(JOB, stop=Stop(target=0.5)), 3)
    assert (target.share(row), target.resource(row)) == (None, 3)


def test_without_optuna_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MllessError, match=r"pip install 'mlless_nb\[sweep\]'"):
        Study({"a": uniform(0, 1)}, "tpe", 5, 3, 0)


def test_a_trial_is_shown_in_short() -> None:
    drawn = {"learning_rate": 0.31622776601683794, "rank": 3}
    trial = Trial(1, "rates-1", "rates-1-2", drawn, "finished", "9 epochs are done", 0.43857719, 1.0, 9.0, 2.0, 3e-4)
    assert repr(trial) == "<Trial 'rates-1': finished, learning_rate=0.3162, rank=3, loss 0.4386, $0.000300>"
    assert repr(Trial(2, "rates-2")) == "<Trial 'rates-2': starting, $0.000000>"
