"""Measures of predictions are scikit-learn's, and exports predict what the model does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from scipy.sparse import csr_matrix
from sklearn import metrics as peer

from mlless_nb import datasets
from mlless_nb.errors import DataError, MllessError, ModelError
from mlless_nb.frames.ids import Ids
from mlless_nb.frames.names import RatingNames
from mlless_nb.models import (
    KMeansModel,
    LinearRegressionModel,
    LinearSVMModel,
    LogisticModel,
    PMFModel,
    SoftmaxModel,
    metrics,
)
from mlless_nb.models.written import FittedArrays

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 4)).astype(np.float32)
WEIGHTS, INTERCEPT = np.array([1.0, -2.0, 0.5, 0.0]), np.array([0.3])
LINEAR = {"weights": WEIGHTS, "intercept": INTERCEPT}
SOFTMAX = SoftmaxModel({"weights": RNG.normal(size=(3, 4)), "intercept": np.array([0.1, 0.0, -0.2])})


def binary() -> Any:
    return datasets.csr(X, (X @ WEIGHTS + RNG.normal(size=200) > 0).astype(float))


def test_measures_of_probabilities_are_those_of_scikit_learn() -> None:
    data, model = binary(), LogisticModel(LINEAR)
    found, chance = model.evaluate(data), model.predict_proba(X)[:, 1].astype(np.float64)
    assert found["log loss"] == pytest.approx(peer.log_loss(data.y, chance), rel=1e-5)
    assert found["AUC"] == pytest.approx(peer.roc_auc_score(data.y, chance))
    assert found["accuracy"] == pytest.approx(peer.accuracy_score(data.y, model.predict(X)))
    assert found["Brier score"] == pytest.approx(peer.brier_score_loss(data.y, chance), rel=1e-5)
    assert 0 < found["calibration error"] < 0.2
    hinge = LinearSVMModel(LINEAR).evaluate(data)
    assert hinge["hinge loss"] == pytest.approx(peer.hinge_loss(data.y, LinearSVMModel(LINEAR).decision_function(X)))


def test_measures_of_classes_numbers_and_clusters() -> None:
    y = RNG.integers(0, 3, 200)
    found = SOFTMAX.evaluate(datasets.csr(X, y))
    chances = SOFTMAX.predict_proba(X).astype(float)
    assert found["log loss"] == pytest.approx(peer.log_loss(y, chances / chances.sum(1, keepdims=True)), rel=1e-4)
    assert found["accuracy"] == pytest.approx(np.mean(SOFTMAX.predict(X) == y))
    numbers, model = datasets.csr(X, X @ WEIGHTS + 1), LinearRegressionModel(LINEAR)
    found = model.evaluate(numbers)
    assert found["RMSE"] == pytest.approx(0.7, rel=1e-4)
    assert found["MAE"] == pytest.approx(peer.mean_absolute_error(numbers.y, model.predict(X)), rel=1e-5)
    assert found["R2"] == pytest.approx(peer.r2_score(numbers.y, model.predict(X)), rel=1e-5)
    clusters = KMeansModel({"centers": X[:3], "counts": np.ones(3)})
    assert clusters.evaluate(datasets.csr(X))["inertia"] == pytest.approx(clusters.inertia(X))


def test_rows_of_a_file_are_measured_alike(tmp_path: Path) -> None:
    text = "".join(f"{float(row[0])},{int(row[1] > 0)}\n" for row in X)
    (tmp_path / "rows.csv").write_text("x,label\n" + text)
    rows = datasets.table(tmp_path / "rows.csv", "label")
    model = LogisticModel({"weights": np.ones(1), "intercept": np.zeros(1)}).with_names(rows.names)
    loaded = datasets.table({"x": X[:, 0], "label": (X[:, 1] > 0).astype(int)}, "label")
    assert model.evaluate(rows) == pytest.approx(model.evaluate(loaded), rel=1e-5)
    with pytest.raises(DataError, match=r"data=.*datasets.table\(..., like=model\)"):
        model.evaluate(datasets.table({"other": X[:, 0], "label": [0, 1] * 100}, "label"))


def test_a_plain_table_is_told_by_its_columns() -> None:
    frame = pd.DataFrame({"user": [0, 1], "film": [1, 0], "stars": [4.0, 3.0]})
    told = re.escape("data='DataFrame with columns user, film, stars': must be ")
    with pytest.raises(DataError, match=f"{told}a dataset of feature rows"):
        LogisticModel(LINEAR).evaluate(frame)
    with pytest.raises(DataError, match=f"{told}ratings of 2 users x 4 items"):
        factors().evaluate(frame)
    with pytest.raises(DataError, match=f"{told}a dataset of mlless_nb.datasets"):
        datasets.split(frame)  # type: ignore[type-var]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2))
def test_auc_is_the_share_of_pairs_in_order(rows: list[tuple[bool, int]]) -> None:
    is_one, scores = np.array([each for each, _ in rows]), np.array([each for _, each in rows])
    ones, zeros = scores[is_one], scores[~is_one]
    pairs = (ones[:, None] > zeros) + 0.5 * (ones[:, None] == zeros)
    found = metrics.auc(is_one, scores)
    assert np.isnan(found) if not pairs.size else found == pytest.approx(pairs.mean())


def test_a_perfectly_calibrated_prediction_has_no_error() -> None:
    chance = np.repeat([0.25, 0.75], 100)
    is_one = np.concatenate([np.arange(100) < 25, np.arange(100) < 75])
    assert metrics.calibration_error(is_one, chance) == pytest.approx(0.0)
    assert metrics.calibration_error(is_one, np.full(200, 0.9)) == pytest.approx(0.4)


def test_rankings_are_measured_by_hand() -> None:
    hits = np.array([[True, False, True], [False, True, False]])
    found = metrics.ranking(hits, np.array([2, 5]))
    assert found["precision@3"] == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert found["recall@3"] == pytest.approx((1 + 1 / 5) / 2)
    one = (1 + 1 / np.log2(4)) / (1 + 1 / np.log2(3))
    two = (1 / np.log2(3)) / (1 + 1 / np.log2(3) + 1 / np.log2(4))
    assert found["NDCG@3"] == pytest.approx((one + two) / 2)


def factors() -> PMFModel:
    """Predictions fall from item 0 to item 3 for user 0, and rise for user 1."""
    return PMFModel({
        "user_factors": np.array([[1.0], [-1.0]]),
        "item_factors": np.array([[3.0], [1.0], [-1.0], [-3.0]]),
        "user_bias": np.zeros(2),
        "item_bias": np.zeros(4),
        "mean": np.array(3.0),
    })  # fmt: skip


def test_rows_that_predictions_cannot_be_compared_with_are_refused() -> None:
    models = (LogisticModel(LINEAR), LinearSVMModel(LINEAR), LinearRegressionModel(LINEAR), SOFTMAX)
    for model in models:
        with pytest.raises(DataError, match=r"data\.y=None: must be labels, with which .*, e\.g\. datasets\."):
            model.evaluate(datasets.csr(X))
    for model, label, valid in (
        (models[0], 2, "0 or 1, or all labels -1 or 1"),
        (models[1], 0.5, "0 or 1, or all labels -1 or 1"),
        (SOFTMAX, 3, "an integer from 0 to 2"),
        (SOFTMAX, -1, "an integer from 0 to 2"),
    ):
        y = np.where(np.arange(200) == 7, label, np.arange(200) % 2)
        with pytest.raises(DataError, match=rf"data\.y\[7\]={float(label)}: must be {valid}"):
            model.evaluate(datasets.csr(X, y))
    data = binary()
    signed = datasets.csr(X, np.where(data.y > 0, 1, -1))
    assert models[0].evaluate(signed) == models[0].evaluate(data)


@pytest.mark.parametrize(
    "model",
    [LogisticModel(LINEAR), SOFTMAX, KMeansModel({"centers": np.eye(4)[:2], "counts": np.ones(2)})],
    ids=["linear", "softmax", "k-means"],
)
def test_predictions_are_for_finite_numbers_and_for_one_row_too(model: Any) -> None:
    rows = X[:3].copy()
    assert model.predict(rows[1]).tolist() == model.predict(rows[1:2]).tolist()
    for value in (np.nan, np.inf):
        rows[1, 2] = value
        for form in (rows, csr_matrix(rows)):
            with pytest.raises(DataError, match=rf"X\[1, 2\]={value}: must be a finite number"):
                model.predict(form)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: factors().recommend(7), "user=7: must be an id from 0 to 1"),
        (lambda: factors().recommend("ann"), "user=['ann']: must be ids, whole numbers from 0 to 1"),
        (lambda: factors().recommend(1, n=-1), "n=-1: must be a whole number >= 0"),
        (lambda: factors().recommend(1, least_ratings=5), "least_ratings=5: must be 0 for a model that does not know"),
        (lambda: factors().predict([0], [0, 1]), "lengths of users and items=(1, 2): must be equal"),
        (lambda: LogisticModel(LINEAR).predict(X[:, :3]), "X='shape (200, 3)': must be rows of 4 columns"),
        (
            lambda: LogisticModel(LINEAR).predict([list("abcd")]),
            "X=[['a', 'b', 'c', 'd']]: must be rows of 4 columns of",
        ),
        (lambda: LogisticModel(LINEAR).save("no/folder.npz"), "no/folder.npz: there is no folder no"),
        (lambda: LogisticModel(LINEAR).to_onnx("no/folder.onnx"), "no/folder.onnx: there is no folder no"),
        (lambda: SOFTMAX.coefficients(), "SoftmaxModel has no single coefficient for each feature"),
        (lambda: factors().to_sklearn(), "PMFModel has no counterpart in scikit-learn"),
        (lambda: factors().to_torch(), "PMFModel has no counterpart in PyTorch"),
        (lambda: factors().to_onnx("model.onnx"), "PMFModel cannot be written as ONNX"),
        (lambda: FittedArrays({"w": WEIGHTS}).evaluate(binary()), "FittedArrays has no measures"),
    ],
)
def test_what_a_model_does_not_take_or_have_is_one_line(call: Any, says: str) -> None:
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=re.escape(says)) as caught:
        call()
    assert isinstance(caught.value, MllessError)
    assert isinstance(caught.value, TypeError) == isinstance(caught.value, ModelError)


def test_rankings_leave_out_what_was_seen() -> None:
    held = datasets.ratings([0, 0, 1], [1, 3, 3], [5.0, 1.0, 4.0], n_users=2, n_items=4)
    seen = datasets.ratings([0, 0], [0, 2], [5.0, 4.0], n_users=2, n_items=4)
    found = factors().evaluate(held, k=1)
    assert (found["precision@1"], found["RMSE"]) == (0.5, pytest.approx(np.sqrt((1 + 1 + 4) / 3)))
    assert factors().evaluate(held, k=1, seen=seen)["precision@1"] == 1.0
    assert factors().evaluate(held, k=2, relevant=4.5)["recall@2"] == 1.0
    with pytest.raises(DataError, match=r"seen=.*must be ratings of 2 users x 4 items"):
        factors().evaluate(held, seen=binary())


# -- exports


def test_scikit_learn_predicts_the_same() -> None:
    for model in (LogisticModel(LINEAR), LinearSVMModel(LINEAR), LinearRegressionModel(LINEAR), SOFTMAX):
        peer_model = model.to_sklearn()
        np.testing.assert_allclose(peer_model.predict(X), model.predict(X), rtol=1e-4)  # type: ignore[attr-defined]
        if hasattr(model, "predict_proba"):
            np.testing.assert_allclose(peer_model.predict_proba(X), model.predict_proba(X), atol=1e-5)
    two = SoftmaxModel({"weights": SOFTMAX.params["weights"][:2], "intercept": SOFTMAX.params["intercept"][:2]})
    np.testing.assert_allclose(two.to_sklearn().predict_proba(X), two.predict_proba(X), atol=1e-5)
    clusters = KMeansModel({"centers": X[:3], "counts": np.ones(3)})
    assert clusters.to_sklearn().predict(X.astype(float)).tolist() == clusters.predict(X).tolist()
    with pytest.raises(TypeError, match="PMFModel has no counterpart in scikit-learn"):
        factors().to_sklearn()


def test_onnx_predicts_the_same(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    expected = [
        (LogisticModel(LINEAR), LogisticModel(LINEAR).predict_proba(X)[:, 1:]),
        (LinearRegressionModel(LINEAR), LinearRegressionModel(LINEAR).predict(X)[:, None]),
        (SOFTMAX, SOFTMAX.predict_proba(X)),
    ]
    for model, wanted in expected:
        model.to_onnx(path)
        (found,) = ReferenceEvaluator(onnx.load(path)).run(None, {"X": X})
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_factors_are_written_with_the_users_ids(tmp_path: Path) -> None:
    names = RatingNames(Ids(["a", "b"], "text"), Ids(np.array([-1, 2, 3, 4]), "integers"))
    factors().with_names(names).to_parquet(tmp_path / "out")
    users, items = (pq.read_table(tmp_path / "out" / f"{side}.parquet").to_pydict() for side in ("users", "items"))
    assert (users["id"], users["factors"]) == (["a", "b"], [[1.0], [-1.0]])
    assert (items["id"], items["bias"]) == ([-1, 2, 3, 4], [0.0] * 4)
    for at, user in enumerate(users["id"]):
        products = np.array(items["factors"]) @ users["factors"][at]
        found = users["mean"][at] + users["bias"][at] + np.array(items["bias"]) + products
        np.testing.assert_allclose(found, factors().with_names(names).predict([user] * 4, items["id"]), rtol=1e-6)
    assert items["mean"] == [3.0] * 4


def test_torch_predicts_the_same() -> None:
    torch = pytest.importorskip("torch", reason="torch is missing: pip install 'mlless_nb[torch]'")
    scores = SOFTMAX.to_torch()(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(scores, SOFTMAX.decision_function(X), rtol=1e-4, atol=1e-5)
