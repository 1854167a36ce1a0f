"""Linear SVM, linear regression and softmax regression: labels, losses, fitted models; trained, against references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression as SkLogistic
from sklearn.linear_model import Ridge
from sklearn.svm import LinearSVC

from mlless_nb import (
    SGD,
    AdaGrad,
    DataError,
    JobError,
    LinearRegression,
    LinearSVM,
    ScaleIn,
    SoftmaxRegression,
    Stop,
    TrainingJob,
    datasets,
)
from mlless_nb.driver.launch.data_preparation import JobData
from mlless_nb.models import LinearSVMModel, SoftmaxModel, load_model, model_from_json
from mlless_nb.simulate import TWO_CORES, simulate

RNG = np.random.default_rng(0)
N = 600
X = RNG.normal(size=(N, 4)).astype(np.float32) * np.array([1.0, 2.0, 0.5, 1.0], np.float32)
SCORES = X @ np.array([1.0, -0.7, 0.5, 0.0]) + 0.2 + RNG.normal(0, 0.5, N)
SIGNS = np.where(SCORES > 0, 1.0, -1.0)
CLASSES = np.digitize(SCORES, [-1.0, 1.0])
MODELS = [LinearSVM(), LinearSVM(0.1), LinearRegression(l2=0.5, scale=False), SoftmaxRegression(3)]


def trained(model: Any, optimizer: Any, y: Any, **changes: Any) -> Any:
    """The model that two workers fit to all rows, which each step takes at once."""
    fields = {"workers": 2, "minibatch": N // 2, "validation": None, "stop": Stop(steps=400)} | changes
    job = TrainingJob(model, optimizer, datasets.csr(X, y), scale_in=ScaleIn.off(), schedule="constant", **fields)
    data = JobData(job)
    run = simulate(job, TWO_CORES)
    assert run.status == "finished", run.reason
    assert run.params is not None
    return data.restored(model.fitted(run.params, job.data.shape, 0.0))


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_json_round_trip(model: Any) -> None:
    assert model_from_json(model.to_json()) == model


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: LinearSVM(l2=-1.0), "LinearSVM.l2=-1.0"),
        (lambda: LinearRegression(l2="a"), "LinearRegression.l2='a'"),  # type: ignore[arg-type]
        (lambda: LinearRegression(scale=1), "LinearRegression.scale=1"),  # type: ignore[arg-type]
        (lambda: SoftmaxRegression(1), "SoftmaxRegression.n_classes=1: must be an integer >= 2"),
        (
            lambda: SoftmaxRegression(2**16),
            "SoftmaxRegression.n_classes=65536: must be so small that a row of the table",
        ),
        (lambda: SoftmaxRegression(3, l2=-1.0), "SoftmaxRegression.l2=-1.0"),
        (lambda: TrainingJob(LinearSVM(), data=datasets.csr(np.eye(3), [0, 1, 2])), "data.y[2]=2.0: must be 0 or 1"),
        (lambda: TrainingJob(LinearSVM(), data=datasets.csr(np.eye(3), [0, 1, -1])), "data.y[0]=0.0: must be -1 or 1"),
        (lambda: TrainingJob(SoftmaxRegression(2), data=datasets.csr(np.eye(3), [0, 1, 2])), "data.y[2]=2.0: must be"),
        (lambda: TrainingJob(SoftmaxRegression(2), data=datasets.csr(np.eye(2), [0, 0.5])), "data.y[1]=0.5: must be"),
        (lambda: TrainingJob(LinearRegression(), data=datasets.csr(np.eye(3))), "data.y=None: must be labels"),
    ],
)
def test_a_wrong_field_is_named(make: Any, field: str) -> None:
    with pytest.raises((JobError, DataError), match="must be") as caught:
        make()
    assert str(caught.value).startswith(field)
    assert "\n" not in str(caught.value)


# -- against scikit-learn and closed forms


@pytest.mark.parametrize("negative", [-1, 0])
def test_svm_reaches_the_objective_of_liblinear(negative: int) -> None:
    l2 = 0.01
    y = np.where(SIGNS > 0, 1, negative)
    model = trained(LinearSVM(l2, scale=False), AdaGrad(0.2), y)
    best = LinearSVC(loss="hinge", C=1 / (N * l2), intercept_scaling=10.0, max_iter=100_000).fit(X, SIGNS)

    def objective(weights: Any, intercept: float) -> float:
        return float(np.maximum(0, 1 - SIGNS * (X @ weights + intercept)).mean() + l2 / 2 * weights @ weights)

    reached = objective(model.params["weights"], float(model.params["intercept"][0]))
    assert reached <= 1.005 * objective(best.coef_[0], best.intercept_[0])
    assert set(model.predict(X)) == {negative, 1}
    assert (model.predict(X) == y).mean() == pytest.approx(best.score(X, SIGNS), abs=0.01)
    np.testing.assert_array_equal(model.decision_function(X) > 0, model.predict(X) == 1)


@pytest.mark.parametrize("scale", [False, True])
def test_linear_regression_is_the_closed_form(scale: bool) -> None:
    """Labels far from 0: the intercept begins at their mean."""
    l2, y = 0.05 * (not scale), 300.0 + 20.0 * SCORES
    model = trained(LinearRegression(l2, scale=scale), SGD(0.2, momentum=0.8), y)
    best = Ridge(alpha=N * l2).fit(X.astype(np.float64), y.astype(np.float32).astype(np.float64))
    np.testing.assert_allclose(model.params["weights"], best.coef_, rtol=1e-4, atol=1e-4)
    assert model.params["intercept"][0] == pytest.approx(best.intercept_, rel=1e-5)
    np.testing.assert_allclose(model.predict(scipy.sparse.csr_matrix(X)), best.predict(X), rtol=1e-4, atol=1e-3)


def test_softmax_finds_the_optimum() -> None:
    l2 = 0.01
    model = trained(SoftmaxRegression(3, l2, scale=False), SGD(0.6, momentum=0.9), CLASSES)
    best = SkLogistic(C=1 / (N * l2), tol=1e-8, max_iter=10_000).fit(X, CLASSES)
    np.testing.assert_allclose(model.predict_proba(X), best.predict_proba(X), atol=1e-3)
    assert (model.predict(X) == best.predict(X)).mean() > 0.998


def test_softmax_of_scaled_columns_is_for_the_data_as_they_are() -> None:
    model = trained(SoftmaxRegression(3, 0.0), SGD(0.6, momentum=0.9), CLASSES)
    best = SkLogistic(C=1e9, tol=1e-8, max_iter=10_000).fit(X, CLASSES)
    np.testing.assert_allclose(model.predict_proba(X), best.predict_proba(X), atol=0.01)


def test_softmax_gradient_is_the_slope_of_the_loss() -> None:
    model = SoftmaxRegression(3)
    (minibatch,) = datasets.csr(X[:50] * (X[:50] > 0), CLASSES[:50]).minibatches(50, None)
    params = RNG.normal(size=(5, 3)).astype(np.float32)
    grad = np.empty((5, 3), np.float32)
    loss = model.gradient(params, minibatch, 0.0, 50.0, grad)
    assert loss == model.evaluate(params, minibatch, 0.0)
    assert model.rows(minibatch, (4,)).tolist() == [0, 1, 2, 3, 4]
    for row in range(5):
        for column in range(3):
            above, below = params.copy(), params.copy()
            above[row, column] += 0.01
            below[row, column] -= 0.01
            width = float(above[row, column] - below[row, column])
            rise = model.evaluate(above, minibatch, 0.0) - model.evaluate(below, minibatch, 0.0)
            assert grad[row, column] == pytest.approx(rise / width / 50.0, rel=1e-3, abs=1e-4)


# -- baselines, defaults, files


def test_baselines_are_the_losses_of_the_best_constants() -> None:
    train, held = datasets.csr(X[:400], SIGNS[:400]), datasets.csr(X[400:], SIGNS[400:])
    share = (SIGNS[400:] > 0).mean()
    constant = 1.0 if (SIGNS[:400] > 0).mean() >= 0.5 else -1.0
    expected = share * max(0, 1 - constant) + (1 - share) * max(0, 1 + constant)
    assert LinearSVM().baseline_loss(train, held) == pytest.approx(expected)

    train, held = datasets.csr(X[:400], SCORES[:400]), datasets.csr(X[400:], SCORES[400:])
    expected = np.square(SCORES[400:] - SCORES[:400].mean()).mean()
    assert LinearRegression().baseline_loss(train, held) == pytest.approx(expected, rel=1e-5)

    train, held = datasets.csr(X[:400], CLASSES[:400]), datasets.csr(X[400:], CLASSES[400:])
    shares = np.bincount(CLASSES[:400]) / 400
    assert SoftmaxRegression(3).baseline_loss(train, held) == pytest.approx(-np.log(shares[CLASSES[400:]]).mean())
    assert SoftmaxRegression(3).baseline_loss(datasets.csr(X[:9], [0, 1] * 4 + [0]), held) is None


@pytest.mark.parametrize("optimizer", [None, SGD()], ids=str)
def test_rates_of_a_regression_grow_with_the_labels(optimizer: Any) -> None:
    """In their own units, labels a thousand times as large give a thousand times the coefficients."""
    rates = []
    for unit in (1.0, 1000.0):
        job = TrainingJob(LinearRegression(), optimizer, datasets.csr(X, unit * SCORES), workers=2)
        rates.append(JobData(job).job.optimizer.learning_rate)
    assert rates[1] / rates[0] == pytest.approx(1.0 if isinstance(optimizer, SGD) else 1000.0, rel=0.01)


def test_fitted_models_are_read_back(tmp_path: Path) -> None:
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    svm = LinearSVMModel({"weights": weights[0], "intercept": np.ones(1), "classes": np.array([-1, 1])})
    softmax = SoftmaxModel({"weights": weights, "intercept": np.ones(2)})
    for model in (svm, softmax):
        model.save(tmp_path / "model.npz")
        again = load_model(tmp_path / "model.npz")
        assert type(again) is type(model)
        np.testing.assert_array_equal(again.predict(np.eye(3)), model.predict(np.eye(3)))  # type: ignore[attr-defined]
    np.testing.assert_array_equal(SoftmaxRegression(2).table_of(softmax)[:-1].T, weights)
    with pytest.raises(ValueError, match=r"^X='shape \(2, 2\)': must be rows of 3 columns$"):
        softmax.predict(np.eye(2))
    with pytest.raises(ValueError, match="classes has shape"):
        LinearSVMModel({**svm.params, "classes": np.ones(3)})
    with pytest.raises(ValueError, match="weights and intercept have shapes"):
        SoftmaxModel({"weights": weights, "intercept": np.ones(3)})
