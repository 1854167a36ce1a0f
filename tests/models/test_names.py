"""Models answer in the user's ids, columns and labels, and keep them in their file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from mlless_nb import (
    PMF,
    KMeans,
    LinearRegression,
    LinearSVM,
    LogisticRegression,
    SoftmaxRegression,
    TrainingJob,
    datasets,
)
from mlless_nb.driver.launch.data_preparation import JobData
from mlless_nb.driver.launch.resumption import summary
from mlless_nb.errors import DataError, DecodeError, JobError
from mlless_nb.models import ImplicitMF, PMFModel, load_model

RATINGS = pd.DataFrame({
    "user": ["u9", "u1", "u10", "u9", "u1", "u10"],
    "film": [-4, 10, 10, 3, 3, 8],
    "stars": [1.0, 2.0, 3.0, 4.0, 5.0, 1.0],
})  # fmt: skip
ROWS = pd.DataFrame({
    "age": [30.0, 0.0, 50.0, 20.0],
    "city": ["Rome", "Oslo", "Rome", "Bonn"],
    "sold": ["no", "yes", "yes", "no"],
})  # fmt: skip


def data() -> Any:
    return datasets.ratings(RATINGS, user="user", item="film", rating="stars")


def table() -> Any:
    return datasets.table(ROWS, "sold")


def fitted(model: Any, rows: Any) -> Any:
    """The model of the start's parameters, as the end of a run hands it out."""
    prepared = JobData(TrainingJob(model, data=rows, validation=None, workers=1))
    table = prepared.first + np.linspace(-1, 1, prepared.first.size, dtype=np.float32).reshape(prepared.first.shape)
    return prepared.restored(prepared.job.model.fitted(table, prepared.shape, prepared.mean))


@pytest.mark.parametrize("model", [PMF(rank=2), ImplicitMF(rank=2)])
def test_recommendations_are_in_the_users_ids(tmp_path: Path, model: Any) -> None:
    made = fitted(model, data())
    made.save(tmp_path / "model.npz")
    for each in (made, load_model(tmp_path / "model.npz")):
        assert isinstance(each, PMFModel)
        items, scores = each.recommend("u9", 2)
        np.testing.assert_allclose(each.predict(["u9", "u9"], items), scores, rtol=1e-5)
        assert set(each.recommend("u9", seen=data())[0].tolist()) == {8, 10}
        (one, _), (two, _) = each.recommend(["u9", "u1"], 9, seen=data())
        assert (set(one), set(two)) == ({8, 10}, {-4, 8})
        assert each.recommend("u1", least_ratings=2)[0].tolist() in ([3, 10], [10, 3])
        assert -4 not in each.recommend("u1", exclude=[-4])[0]
        near, cosines = each.similar_items(10, 3)
        assert 10 not in near
        assert (np.diff(cosines) <= 0).all()
        with pytest.raises(DataError, match=r"user='u7': must be one of the 3 ids .*\('u1', 'u10'\)"):
            each.recommend("u7")
        with pytest.raises(DataError, match="item=4: must be one of the 4 ids"):
            each.similar_items(4)


def test_one_item_may_be_excluded_by_its_id_alone() -> None:
    made = fitted(PMF(rank=2), datasets.ratings(RATINGS, user="film", item="user", rating="stars"))
    assert set(made.recommend(3, exclude="u10")[0]) == {"u1", "u9"}
    assert set(made.recommend(3, exclude={"u10", "u1"})[0]) == {"u9"}
    with pytest.raises(DataError, match=r"^exclude='u7': must be one of the 3 ids"):
        made.recommend(3, exclude="u7")


@pytest.mark.parametrize("model", [PMF(rank=2), ImplicitMF(rank=2)])
def test_a_model_of_ratings_keeps_which_users_and_items_have_some(model: Any) -> None:
    made = fitted(model, datasets.ratings([0, 2, 2], [0, 3, 0], [1.0, 2.0, 4.0]))
    assert made.params["seen_users"].tolist() == [True, False, True]
    assert made.params["seen_items"].tolist() == [True, False, False, True]
    assert made.params["item_counts"].tolist() == [2, 0, 0, 1]


def test_unknown_ids_are_users_and_items_without_ratings_if_asked() -> None:
    """Also of models whose ids are numbers from 0."""
    ids = datasets.ratings([0, 1, 2, 0], [0, 1, 1, 2], [1.0, 2.0, 3.0, 4.0])
    for made, known, unknown in ((fitted(PMF(rank=2), ids), 0, 99), (fitted(PMF(rank=2), data()), "u9", "new")):
        items = [0, 10**12] if unknown == 99 else [10, "none"]
        found = made.predict([known, unknown], items, unknown="mean")
        np.testing.assert_allclose(found, [made.predict([known], items[:1])[0], made.params["mean"]], rtol=1e-5)
        with pytest.raises(ValueError, match=r"lengths of users and items=\(1, 2\): must be equal"):
            made.predict([known], items, unknown="mean")


@pytest.mark.parametrize(
    ("model", "labels", "says"),
    [
        (LinearRegression(), ["no", "yes", "yes", "no"], "labels of 2 kinds, 'no', 'yes'\": must be numbers for"),
        (
            LogisticRegression(),
            ["a", "b", "c", "a"],
            "labels of 3 kinds, 'a', 'b', ...\": must be of two kinds for LogisticRegression; "
            "SoftmaxRegression(n_classes) takes more",
        ),
        (LinearSVM(), ["a", "b", "c", "a"], "of two kinds for LinearSVM; SoftmaxRegression(n_classes) takes more"),
        (SoftmaxRegression(2), ["a", "b", "c", "a"], "must be of at most n_classes=2 kinds"),
        (LogisticRegression(), ["a"] * 4, "all 4 labels are 'a': nothing can be learnt"),
    ],
)
def test_labels_that_a_model_cannot_take_are_named_as_the_user_has_them(
    tmp_path: Path, model: Any, labels: list[str], says: str
) -> None:
    ROWS.assign(sold=labels).to_csv(tmp_path / "rows.csv", index=False)
    for frame in (ROWS.assign(sold=labels), tmp_path / "rows.csv"):
        with pytest.raises(DataError, match=re.escape(says)):
            TrainingJob(model, data=datasets.table(frame, "sold"), validation=None)


def test_a_table_without_rows_has_no_predictions() -> None:
    made = fitted(LogisticRegression(), table())
    for empty in (ROWS.head(0), pl.from_pandas(ROWS).head(0)):
        assert len(made.predict(empty)) == 0


def test_many_users_are_answered_as_one_by_one() -> None:
    made = fitted(PMF(rank=2), data())
    together = made.recommend(["u1", "u10", "u9"], 3)
    for user, (items, scores) in zip(["u1", "u10", "u9"], together, strict=True):
        alone, of_alone = made.recommend(user, 3)
        assert items.tolist() == alone.tolist()
        np.testing.assert_allclose(scores, of_alone, rtol=1e-5)


def test_unknown_ids_may_be_predicted_by_the_mean() -> None:
    made = fitted(PMF(rank=2), data())
    known = made.predict(["u1"], [3])
    either = made.predict(["u1", "new", "u1", "new"], [3, 3, 99, 99], unknown="mean")
    assert either[0] == pytest.approx(known[0], rel=1e-5)
    assert either[3] == pytest.approx(made.params["mean"])
    assert either[1] == pytest.approx(made.params["mean"] + made.params["item_bias"][1], rel=1e-5)
    with pytest.raises(ValueError, match="unknown='skip': must be 'error' or 'mean'"):
        made.predict(["u1"], [3], unknown="skip")


def test_classifiers_take_tables_and_answer_in_labels(tmp_path: Path) -> None:
    for model in (LogisticRegression(), LinearSVM(), SoftmaxRegression(2)):
        made = fitted(model, table())
        made.save(tmp_path / "model.npz")
        again = load_model(tmp_path / "model.npz")
        assert again.feature_names == ["age", "city=Bonn", "city=Oslo", "city=Rome"]
        for form in (ROWS, pl.from_pandas(ROWS), ROWS[["city", "age"]], table().X, table().X.toarray()):
            assert again.predict(form).tolist() == made.predict(table().X).tolist()  # type: ignore[attr-defined]
        assert set(made.predict(ROWS)) <= {"no", "yes"}


def test_coefficients_have_names() -> None:
    made = fitted(LogisticRegression(), table())
    named = made.coefficients()
    assert set(named) == {"age", "city=Bonn", "city=Oslo", "city=Rome"}
    assert list(map(abs, named.values())) == sorted(map(abs, named.values()), reverse=True)
    assert named["age"] == pytest.approx(made.params["weights"][0])
    rome = ROWS[ROWS["city"] == "Rome"]
    odds = made.intercept + named["city=Rome"] + named["age"] * rome["age"]
    assert made.predict_proba(rome)[:, 1] == pytest.approx(1 / (1 + np.exp(-odds)), rel=1e-5)
    with pytest.raises(TypeError, match="no single coefficient"):
        fitted(KMeans(2), datasets.table(ROWS[["age"]])).coefficients()


def test_a_positive_coefficient_speaks_for_the_second_class() -> None:
    for model in (LogisticRegression(), LinearSVM()):
        made = fitted(model, table())
        made.params["weights"][:] = [1, 0, 0, 0]  # of the age
        assert made.predict(ROWS[ROWS["age"] == 50]).tolist() == made.class_labels(2)[1:].tolist() == ["yes"]
    numbers = fitted(LinearSVM(), datasets.csr([[1.0], [2.0]], [1, -1]))
    assert numbers.class_labels(2).tolist() == [-1, 1]


def test_clusters_are_of_tables_too() -> None:
    made = fitted(KMeans(2), datasets.table(ROWS.drop(columns="sold")))
    assert made.predict(ROWS).tolist() == made.predict(table().X).tolist()


def test_validation_rows_of_other_names_are_refused() -> None:
    one, other = (
        data(),
        datasets.ratings(RATINGS.assign(user=["a", "b", "c"] * 2), user="user", item="film", rating="stars"),
    )
    with pytest.raises(JobError, match=r"validation=.*must be coded as data, .*like=data"):
        TrainingJob(PMF(rank=2), data=one, validation=other)
    few = datasets.ratings(RATINGS.iloc[:3], user="user", item="film", rating="stars")
    with pytest.raises(JobError, match="like=data codes it alike"):
        TrainingJob(PMF(rank=2), data=one, validation=few)


def test_a_record_tells_the_names_apart() -> None:
    digests = set()
    for rows in (
        data(),
        datasets.ratings(RATINGS.assign(film=RATINGS.film + 1), user="user", item="film", rating="stars"),
    ):
        job = TrainingJob(PMF(rank=2), data=rows, validation=None, workers=1)
        digests.add(summary(job, JobData(job), None)["names"])
    assert len(digests) == 2
    assert None not in digests


@pytest.mark.parametrize(
    ("value", "model", "says"),
    [
        (RATINGS, PMF(2), r"columns user, film, stars': .*\(frame, user='user', item='film', rating='stars'\)"),
        (pl.from_pandas(ROWS), LogisticRegression(), r"columns age, city, sold': .*\(frame, label='\.\.\.'\)"),
        (ROWS, KMeans(2), r"datasets.table\(frame\)"),
        ({"a": [1]}, LogisticRegression(), r"datasets.table\(frame, label='\.\.\.'\)"),
    ],
)  # fmt: skip
def test_a_table_as_data_names_the_one_call_that_does_it(value: Any, model: Any, says: str) -> None:
    with pytest.raises(JobError, match=says):
        TrainingJob(model, data=value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"names.users.ends": np.array([1, 2, 3])}, "names.users must be texts and their ends"),
        ({"names.items.integers": np.array([1, 1, 2, 3])}, "ascending whole numbers"),
        ({"names.items.integers": np.array([1, 2])}, r"names are of shape \(3, 2\): must be \(3, 4\)"),
        ({"names.columns": np.frombuffer(b"[", np.uint8)}, "must be a whole pmf model"),
        ({"names.more": np.ones(1), "names.items.integers": None}, "names must be whole"),
    ],
)
def test_damaged_names_are_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    made = fitted(PMF(rank=2), data())
    arrays = {"kind": np.array("pmf"), **made.params, **made.names.to_arrays(), **change}
    np.savez(tmp_path / "model.npz", **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(DecodeError, match=says):
        load_model(tmp_path / "model.npz")
