"""The settings of a job as the list of runs keeps them."""

from __future__ import annotations

import json

import numpy as np

from mlless_nb import PMF, SGD, NumpyModel, Stop, TrainingJob, datasets
from mlless_nb.job.limits import AllottedBudget
from mlless_nb.tracking import differing, flat, settings_of

RATINGS = datasets.synthetic_ratings(30, 20, 300, rank=2, seed=1)
JOB = TrainingJob(PMF(2), SGD(0.5), RATINGS, minibatch=30, stop=Stop(epochs=3), budget=0.25, name="first")


class Ridge:
    def parameters(self, n_features, seed):  # type: ignore[no-untyped-def]
        return {"w": np.zeros(n_features)}

    def loss(self, params, X, y):  # type: ignore[no-untyped-def]
        return 0.5 * np.mean((X @ params["w"] - y) ** 2)

    def gradients(self, params, X, y):  # type: ignore[no-untyped-def]
        return {"w": X.T @ (X @ params["w"] - y) / len(y)}


def test_settings_are_plain_json_of_what_the_cell_said() -> None:
    settings = settings_of(JOB)
    assert json.loads(json.dumps(settings, allow_nan=False)) == settings
    found = flat(settings)
    assert (found["optimizer.learning_rate"], found["model.rank"], found["stop.epochs"]) == (0.5, 2, 3)
    assert (found["budget"], found["data"], found["validation"]) == (0.25, RATINGS.name, 0.1)
    assert "name" not in found


def test_settings_hold_no_secret() -> None:
    job = TrainingJob(
        PMF(2),
        SGD(0.5),
        RATINGS,
        minibatch=30,
        redis="redis://:hidden-word@127.0.0.1/0",
        bus="amqp://u:hidden-word@127.0.0.1",
        backend={"lithops": {"backend": "aws_lambda"}, "aws": {"secret_access_key": "hidden-word"}},
    )
    text = json.dumps(settings_of(job))
    assert "hidden-word" not in text
    assert "aws_lambda" in text


def test_an_allotted_budget_is_no_setting_and_a_models_source_is_its_name() -> None:
    X = np.ones((50, 3), np.float32)
    job = TrainingJob(NumpyModel(Ridge), SGD(0.1), datasets.csr(X, np.arange(50.0)), budget=AllottedBudget(0.1))
    settings = settings_of(job)
    assert settings["budget"] is None
    assert str(settings["model"]["definition"]).startswith("Ridge ")
    assert len(json.dumps(settings)) < 4000


def test_only_differing_settings_are_told() -> None:
    assert differing([{"a": 1, "b": {"c": 2.0}}, {"a": 1, "b": {"c": 3.0}, "d": "x"}]) == {
        "b.c": [2.0, 3.0],
        "d": [None, "x"],
    }
    assert differing([settings_of(JOB), settings_of(JOB)]) == {}
