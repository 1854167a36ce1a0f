"""What a job leaves open is chosen by rules on its data."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from mlless_nb import FTRL, PMF, SGD, AdaGrad, Adam, LogisticRegression, TrainingJob, datasets
from mlless_nb.driver.launch.data_preparation import JobData
from mlless_nb.job import defaults

RATINGS = datasets.synthetic_ratings(300, 200, 50_000, rank=2, seed=1)
CLICKS = datasets.synthetic_clicks(400, n_features=40, seed=1)


@pytest.mark.parametrize(
    "optimizer", [SGD(), SGD(momentum=0.9), Adam(), AdaGrad(), FTRL(), SGD(per_sample=True)], ids=str
)
def test_every_optimiser_gets_a_rate_and_keeps_one_of_its_own(optimizer: Any) -> None:
    for model, data in ((PMF(), RATINGS), (LogisticRegression(), CLICKS)):
        if isinstance(optimizer, SGD) and optimizer.per_sample and model.kind != "pmf":
            continue
        left_open = TrainingJob(model, optimizer, data)
        chosen = JobData(left_open).job
        assert chosen.optimizer.learning_rate > 0
        assert chosen.model.l2 > 0
        assert "learning rate" in defaults.summary(left_open, chosen)
        assert f"{chosen.optimizer.learning_rate:g}" in str(chosen.optimizer)
        own = TrainingJob(dataclasses.replace(model, l2=0.0), dataclasses.replace(optimizer, learning_rate=0.125), data)
        assert JobData(own).job == own
        assert defaults.summary(own, own) == ""


def test_rates_of_ratings_do_not_depend_on_their_scale() -> None:
    other = datasets.ratings(RATINGS.users, RATINGS.items, 20 * RATINGS.ratings - 30, *RATINGS.shape)
    one, two = (JobData(TrainingJob(PMF(), data=data)).job for data in (RATINGS, other))
    assert (one.optimizer, one.model) == (two.optimizer, two.model)


def test_rates_of_features_do_not_depend_on_their_scale() -> None:
    X = np.random.default_rng(1).normal(size=(200, 5))
    y = X[:, 0] > 0
    one, two = (JobData(TrainingJob(LogisticRegression(), Adam(), datasets.csr(rows, y))).job for rows in (X, 1000 * X))
    assert (one.optimizer, one.model) == (two.optimizer, two.model)


def test_fewer_ratings_for_each_user_ask_for_a_larger_penalty() -> None:
    few, _ = RATINGS.split(0.9, 0)
    penalties = [JobData(TrainingJob(PMF(), data=data)).job.model.l2 for data in (RATINGS, few)]
    assert penalties[1] > 2 * penalties[0]


def test_lazy_is_decided_by_how_much_a_minibatch_touches() -> None:
    assert defaults.decided(Adam(0.1), 1000, 900) == Adam(0.1, lazy=False)
    assert defaults.decided(Adam(0.1), 100_000, 900) == Adam(0.1, lazy=True)
    assert defaults.decided(SGD(0.1, 0.9, lazy=False), 100_000, 900) == SGD(0.1, 0.9, lazy=False)
    assert defaults.decided(FTRL(0.1), 100_000, 900) == FTRL(0.1)
    job = TrainingJob(PMF(l2=0.1), SGD(0.1, 0.9), RATINGS)
    lazy = dataclasses.replace(job, optimizer=defaults.decided(job.optimizer, 10, 1))
    assert "lazy" in defaults.summary(job, lazy)
