"""Linear SVM, k-means and softmax regression on real data, with default settings, against scikit-learn. Minutes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from engine.jobs import finish
from sklearn.cluster import KMeans as SkKMeans
from sklearn.linear_model import LogisticRegression as SkLogistic
from sklearn.svm import LinearSVC

from mlless_nb import KMeans, LinearSVM, ScaleIn, SoftmaxRegression, Stop, TrainingJob, datasets

pytestmark = pytest.mark.long
DATA_HOME = Path(os.environ.get("MLLESS_DATA_HOME", "nowhere"))


def folder(name: str) -> Path:
    """A folder below MLLESS_DATA_HOME; skips if it is missing."""
    if not (DATA_HOME / name).is_dir():
        pytest.skip(f"MLLESS_DATA_HOME holds no {name}; put it there")
    return DATA_HOME / name


def trained(model: Any, data: Any, stop: Stop) -> Any:
    """The model of two workers that see all rows."""
    run = finish(TrainingJob(model, data=data, workers=2, validation=None, stop=stop, scale_in=ScaleIn.off()))
    assert run.status == "finished", run.reason
    return run.model


def a9a() -> tuple[Any, Any]:
    """Rows, and labels -1 and 1."""
    data: Any = datasets.libsvm(folder("a9a") / "a9a")
    return data.X, np.where(data.y > 0, 1, -1)


def imdb() -> tuple[Any, Any]:
    """Logarithms of the word counts of the labelled reviews, as rows of length 1; and labels -1 and 1."""
    labels = np.load(folder("imdb") / "labels.npz")["y"]
    X = scipy.sparse.load_npz(folder("imdb") / "bow_counts_csr.npz")[np.flatnonzero(labels >= 0)].astype(np.float32)
    X.data = np.log1p(X.data)
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(1)).ravel())
    return scipy.sparse.diags(1 / np.maximum(lengths, 1e-9)) @ X, np.where(labels[labels >= 0] > 0, 1, -1)


@pytest.mark.parametrize("rows", [a9a, imdb])
def test_the_svm_s_objective_is_within_half_a_percent_of_liblinear_s(rows: Any) -> None:
    (X, y), l2 = rows(), 1e-4
    X = scipy.sparse.csr_matrix((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), X.shape)
    best = LinearSVC(loss="hinge", C=1 / (len(y) * l2), intercept_scaling=10, max_iter=20_000).fit(X, y)

    def objective(weights: Any, intercept: float) -> float:
        return float(np.maximum(0, 1 - y * (X @ weights + intercept)).mean() + l2 / 2 * weights @ weights)

    params = trained(LinearSVM(l2, scale=False), datasets.csr(X, y), Stop(epochs=30)).params
    reached = objective(params["weights"].astype(np.float64), float(params["intercept"][0]))
    assert reached <= 1.005 * objective(best.coef_[0], best.intercept_[0])


@pytest.mark.filterwarnings("ignore::mlless_nb.DataWarning")  # the margins of the pictures are empty
def test_kmeans_inertia_is_within_two_percent_of_the_best_of_ten() -> None:
    X = np.load(folder("mnist") / "mnist.npz")["x_train"].reshape(-1, 784).astype(np.float32)
    model = trained(KMeans(10), datasets.csr(X), Stop())
    assert model.inertia(X) <= 1.02 * SkKMeans(10, n_init=10, random_state=0).fit(X).inertia_


@pytest.mark.filterwarnings("ignore::mlless_nb.DataWarning")
def test_softmax_accuracy_is_within_three_tenths_of_a_point() -> None:
    files = np.load(folder("mnist") / "mnist.npz")
    X, test = (files[name].reshape(-1, 784).astype(np.float32) / 255 for name in ("x_train", "x_test"))
    model = trained(SoftmaxRegression(10), datasets.csr(X, files["y_train"]), Stop(epochs=10))
    accuracy = (model.predict(test) == files["y_test"]).mean()
    best = SkLogistic(max_iter=100).fit(X, files["y_train"]).score(test, files["y_test"])
    assert accuracy >= best - 0.003
