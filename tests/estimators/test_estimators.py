"""The estimators are scikit-learn's own kind: in pipelines, in searches, and by its checks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from audit import unpickling
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from mlless_nb import TrainingJob, TrainingRun
from mlless_nb.errors import DataError, JobError, JobWarning, ServiceError, WaitInterrupted
from mlless_nb.estimators import MLLessClassifier, MLLessKMeans, MLLessPMF, training

pytestmark = pytest.mark.usefixtures("shared_runtime")


def test_a_classifier_in_a_pipeline_and_a_search() -> None:
    X, y = make_classification(300, 6, random_state=0)
    labels = np.array(["no", "yes"])[y]
    pipeline = make_pipeline(StandardScaler(), MLLessClassifier(epochs=20, workers=1))
    search = GridSearchCV(pipeline, {"mllessclassifier__l2": [0.001, 100.0]}, cv=2).fit(X, labels)
    assert search.best_params_ == {"mllessclassifier__l2": 0.001}
    peer = make_pipeline(StandardScaler(), LogisticRegression(C=1 / (300 * 0.001))).fit(X, labels)
    assert search.score(X, labels) == pytest.approx(peer.score(X, labels), abs=0.03)
    assert set(search.predict(X)) == {"no", "yes"}
    np.testing.assert_allclose(search.predict_proba(X).sum(1), 1.0)
    assert search.best_estimator_[-1].cost_usd_ > 0


def test_three_classes_sparse_rows_and_hinge() -> None:
    X, y = load_iris(return_X_y=True)
    made = MLLessClassifier(epochs=60, workers=1).fit(csr_matrix(X), y)
    assert made.score(X, y) > 0.9
    assert (made.coef_.shape, made.decision_function(X).shape) == ((3, 4), (150, 3))
    two = MLLessClassifier("hinge", epochs=20, workers=1).fit(X[:100], y[:100])
    assert two.score(X[:100], y[:100]) == 1.0
    with pytest.raises(AttributeError, match="loss='log_loss'"):
        two.predict_proba(X)


def test_far_too_many_workers_are_told_before_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(job: TrainingJob) -> Any:
        started.append(job.workers)
        raise ServiceError("not today")

    started: list[int | None] = []
    monkeypatch.setattr(training, "train", train)
    X, y = make_classification(2000, 6, random_state=0)
    many, few = (MLLessClassifier(epochs=20, workers=workers, job={"minibatch": 50}) for workers in (20, 2))
    with pytest.warns(JobWarning, match=r"^workers=20: \d workers? would be") as caught, pytest.raises(ServiceError):
        many.fit(X, y)
    assert [each.filename for each in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(JobWarning):
            many.fit(X, y)
        with pytest.raises(ServiceError):
            few.fit(X, y)
    assert started == [20, 2]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError])
def test_an_interrupt_of_fit_stops_its_run(kind: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> bool:
        raise kind

    asked: list[str] = []
    run = TrainingRun(None, "id-1", "run-1", lambda command, _: asked.append(command.do))
    monkeypatch.setattr(run._over, "wait", interrupt)
    monkeypatch.setattr(training, "train", lambda job: run)
    with pytest.raises(kind) as caught:
        MLLessClassifier(epochs=1, workers=1).fit(np.eye(4), [0, 1, 0, 1])
    assert asked == ["stop"]
    if kind is KeyboardInterrupt:
        assert isinstance(caught.value, WaitInterrupted)
        assert "run 'run-1' is asked to stop, what it has learnt is kept" in str(caught.value)


def test_k_means_finds_blobs() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(center, 0.1, (50, 2)) for center in (-3, 0, 3)])
    made = MLLessKMeans(3, workers=1).fit(X)
    assert {len(set(part)) for part in np.split(made.labels_, 3)} == {1}
    assert made.predict(X).tolist() == made.labels_.tolist()
    assert made.inertia_ == pytest.approx((made.transform(X).min(1) ** 2).sum(), rel=1e-4)
    assert made.get_feature_names_out().tolist() == ["mllesskmeans0", "mllesskmeans1", "mllesskmeans2"]


def pairs() -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, 20, 600), rng.integers(0, 15, 600)
    frame = pd.DataFrame({"user": np.char.add("u", user.astype(str)), "item": item - 5})
    return frame, rng.normal(size=20)[user] + rng.normal(size=15)[item] + 3


def test_a_recommender_predicts_pairs_of_any_ids() -> None:
    X, y = pairs()
    made = MLLessPMF(rank=2, workers=1).fit(X, y)
    assert made.score(X, y) > 0.5
    np.testing.assert_array_equal(made.predict(pl.from_pandas(X)), made.predict(X))
    assert [len(made.predict(empty)) for empty in (X.head(0), pl.from_pandas(X.head(0)))] == [0, 0]
    new = made.predict(pd.DataFrame({"user": ["u1", "new"], "item": [-5, 99]}))
    assert new[1] == pytest.approx(float(made.model_.params["mean"]))
    assert made.model_.recommend("u1", 2)[0].shape == (2,)
    assert min(cross_val_score(clone(made), X, y, cv=2)) > 0.2


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (MLLessClassifier("squared"), "loss='squared': must be 'log_loss' or 'hinge'"),
        (MLLessClassifier(job=3), "job=3: must be a dict of fields of TrainingJob"),  # type: ignore[arg-type]
        (MLLessClassifier(budget=-1.0), "budget"),
        (MLLessClassifier(epochs=0), "epochs=0"),
    ],
)
def test_a_wrong_argument_is_named_at_fit(made: Any, says: str) -> None:
    with pytest.raises(JobError, match=says):
        made.fit(np.eye(4), [0, 1, 0, 1])


def test_wrong_data_is_named_at_fit() -> None:
    with pytest.raises(JobError, match="loss='hinge': must be 'log_loss' for more than two classes; y has 3 classes"):
        MLLessClassifier("hinge").fit(np.eye(3), [0, 1, 2])
    with pytest.raises(DataError, match="there is one class"):
        MLLessClassifier().fit(np.eye(3), [1, 1, 1])
    with pytest.raises(DataError, match="must be a table whose first two columns are user and item"):
        MLLessPMF().fit(pd.DataFrame({"user": [1]}), [1.0])
    with pytest.raises(DataError, match=r"y='shape \(1,\)': must be a rating for each of the 600 rows"):
        MLLessPMF().fit(pairs()[0], [1.0])
    X, y = pairs()
    with pytest.raises(DataError, match="column 'item', row 2=None: must be a value; leave such rows out"):
        MLLessPMF().fit(X.assign(item=X["item"].where(X.index != 2)), y)
    with pytest.raises(DataError, match=r"y\[5\]=nan: must be a finite number"):
        MLLessPMF().fit(X, np.where(np.arange(600) == 5, np.nan, y))
    with pytest.raises(DataError, match=r"y=.*: must be numbers"):
        MLLessPMF().fit(X, ["good"] * 600)


@pytest.mark.proof
@pytest.mark.parametrize(
    "made", [MLLessClassifier(workers=1, random_state=0), MLLessKMeans(n_clusters=3, workers=1, random_state=0)]
)
def test_scikit_learn_s_own_checks_pass(made: Any) -> None:
    with unpickling.on_purpose():  # estimators are pickled by these checks
        check_estimator(made)
