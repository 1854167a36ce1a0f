"""k-means on the embedded default: trained, gone on from bit for bit, returned; each new model is trained and read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine.jobs import PATIENCE_S, cost_of_a_start, digest, finish, job

import mlless_nb
from mlless_nb import BSP, JobError, KMeans, LinearSVM, ScaleIn, SoftmaxRegression, Stop, datasets
from mlless_nb.models import load_model

RNG = np.random.default_rng(0)
X = (RNG.normal(0, 3, (12, 6))[RNG.integers(0, 12, 900)] + RNG.normal(size=(900, 6))).astype(np.float32)


def kmeans(**changes: Any) -> Any:
    """A job of three workers and twelve clusters."""
    fields = {"model": KMeans(12), "optimizer": None, "data": datasets.csr(X), "sync": BSP(), "workers": 3}
    return job(**fields | {"minibatch": None, "stop": Stop(steps=8)} | changes)


def test_kmeans_is_gone_on_from_bit_for_bit(tmp_path: Path) -> None:
    whole = finish(kmeans(validation=None))
    assert whole.status == "finished", whole.reason
    half = finish(kmeans(validation=None, stop=Stop(steps=3), name="half"))
    rest = mlless_nb.train(kmeans(validation=None, stop=Stop(steps=5)), resume=half)
    rest.wait(PATIENCE_S)
    assert rest.status == "finished", rest.reason
    assert digest(rest) == digest(whole)
    with pytest.raises(JobError, match=r"model.k=5: must be 12, as in run 'half'"):
        mlless_nb.train(kmeans(model=KMeans(5), validation=None), resume=half)
    losses = np.concatenate([half.history["loss"], rest.history["loss"]])
    np.testing.assert_array_equal(losses, whole.history["loss"])
    assert losses[-1] < losses[0]
    whole.model.save(tmp_path / "model.npz")
    again: Any = load_model(tmp_path / "model.npz")
    assert again.inertia(X) / 900 <= losses[-1] * (1 + 1e-6)


@pytest.mark.long
def test_kmeans_stays_within_its_budget() -> None:
    budget = 3 * cost_of_a_start()
    run = finish(kmeans(budget=budget, stop=Stop(), scale_in=ScaleIn()))
    assert run.status == "capped", run.reason
    assert float(run.cost.total) <= budget
    assert run.model is not None


@pytest.mark.long
def test_a_class_of_each_row_comes_back_in_its_own_coding() -> None:
    """The SVM's labels are -1 and 1 here; the softmax regression's 0 to 2."""
    for model, y in (
        (LinearSVM(), np.where(X[:, 0] > 0, 1, -1)),
        (SoftmaxRegression(3), np.digitize(X[:, 0], [-2, 2])),
    ):
        run = finish(kmeans(model=model, data=datasets.csr(X, y), stop=Stop(epochs=30)))
        assert run.status == "finished", run.reason
        assert (run.model.predict(X) == y).mean() > 0.9  # type: ignore[attr-defined]
