"""Tables as feature rows: columns by name, categories, missing values, labels; and ratings of the user's ids."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import coo_matrix

from mlless_nb import datasets
from mlless_nb.data import table_pass
from mlless_nb.data.csr import Csr
from mlless_nb.data.stream import CsrStream
from mlless_nb.errors import DataError, DataWarning
from mlless_nb.frames import coding, sources

ROWS = pd.DataFrame({
    "age": [30.0, 0.0, 50.0, 20.0],
    "city": ["Rome", "Oslo", "Rome", "Bonn"],
    "zip": [7, 7, -1, 9],
    "pro": [True, False, False, True],
    "who": ["p", "q", "q", "r"],
    "day": pd.to_datetime(["2020-01-03", "2020-01-01", "2020-01-02", "2020-01-04"]),
    "sold": ["no", "yes", "yes", "no"],
})  # fmt: skip
FEATURES = ["age", "city=Bonn", "city=Oslo", "city=Rome", "zip=-1", "zip=7", "zip=9", "pro"]
X = [
    [30, 0, 0, 1, 0, 1, 0, 1],
    [0, 0, 1, 0, 0, 1, 0, 0],
    [50, 0, 0, 1, 1, 0, 0, 0],
    [20, 1, 0, 0, 0, 0, 1, 1],
]


def forms(frame: pd.DataFrame, folder: Path) -> list[Any]:
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_parquet(folder / "rows.parquet")
    tables = [frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)]
    return [*tables, folder / "rows.csv", folder / "rows.parquet"]


def dense(data: Csr | CsrStream) -> Any:
    return (data if isinstance(data, Csr) else data.load()).X.toarray()


@pytest.mark.parametrize("n_rows", [1 << 16, 3, 1])
def test_every_form_gives_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_rows: int) -> None:
    monkeypatch.setattr(sources, "BATCH_ROWS", n_rows)
    monkeypatch.setattr(coding, "MOST_ENTRIES", 5)
    for form in forms(ROWS, tmp_path):
        data = datasets.table(form, "sold", categorical=["zip"], group="who", time="day")
        assert data.names.coding.features == FEATURES
        np.testing.assert_array_equal(dense(data), X)
        assert np.asarray(data.y).tolist() == [0, 1, 1, 0]
        assert data.names.classes[[0, 1]].tolist() == ["no", "yes"]
        assert data.groups.tolist() == [0, 1, 1, 2]
        assert isinstance(data, CsrStream) == isinstance(form, Path)
        assert np.diff(data.times).tolist() == [-172800.0, 86400.0, 172800.0]


def test_files_are_fingerprinted_by_their_rows(tmp_path: Path) -> None:
    dated = ROWS.drop(columns="day")
    _, _, _, text, parquet = forms(dated, tmp_path)
    first = datasets.table(text, "sold").fingerprint()
    text.touch()
    assert datasets.table(text, "sold").fingerprint() == first
    assert datasets.table(text, "sold", features=["age"]).fingerprint() != first
    dated.assign(age=[1.0, 2.0, 3.0, 4.0]).to_csv(text, index=False)
    assert datasets.table(text, "sold").fingerprint() != first
    assert datasets.table(parquet, "sold").n == 4


def test_labels_may_be_numbers_texts_arrays_or_none() -> None:
    assert datasets.table(ROWS, "age", features=["zip"]).y.tolist() == [30, 0, 50, 20]
    assert datasets.table(ROWS[["age"]], np.array([1, 0, 0, 1])).y.tolist() == [1, 0, 0, 1]
    named = datasets.table(ROWS[["age"]], ROWS["sold"])
    assert (named.y.tolist(), named.names.classes[1]) == ([0, 1, 1, 0], "yes")
    assert not datasets.table(ROWS[["age"]]).has_labels


def test_many_categories_are_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_pass, "MOST_CATEGORIES", 2)
    made = [datasets.table(form, "sold", features=["city", "who"], buckets=8) for form in forms(ROWS, tmp_path)]
    assert made[0].shape == (16,)
    assert made[0].names.coding.features[0] == "city in bucket 0"
    for data in made:
        np.testing.assert_array_equal(dense(data), dense(made[0]))
        assert (dense(data).sum(1) == 2).all()
    one = datasets.table(ROWS, "sold", features=["city", "who"], hashed=["who"], buckets=8)
    assert one.shape == (3 + 8,)


def test_a_column_of_ids_is_doubted(tmp_path: Path) -> None:
    rows = pd.DataFrame({"who": [f"C-{k}" for k in range(1500)], "age": range(1500), "sold": [0, 1] * 750})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    for form in (rows, tmp_path / "rows.csv"):
        with pytest.warns(DataWarning, match=r"column 'who': nearly every row has another text.*drop="):
            datasets.table(form, "sold")
    for known in ({"drop": ["who"]}, {"hashed": ["who"]}):
        datasets.table(rows, "sold", **known)
    datasets.table(rows.assign(who=[f"C-{k % 1200}" for k in range(1500)]), "sold")


@pytest.mark.parametrize(
    ("texts", "is_date"),
    [
        (["2024-01-31", None, "2024-02-29", "2024-01-31"], True),
        (["2024-01-31 10:00", "2024-02-01 10:00:59.125", "2024-02-01", "2024-02-01"], True),
        (["2024-01-31T10:00:00Z", "2024-02-01T10:00+01:00", "2024-02-01T10:00:00+0100", "2024-02-01 10:00 UTC"], True),
        (["31.01.2024", "1.2.2024", "29.02.2024", "01.02.2024"], True),
        (["01/31/2024 1:05 PM", "2/1/2024, 10:00:59", "02/29/24", "31/12/99"], True),
        (["2024/1/31", "2024.02.29 10:00", "31-01-2024T10:00", "2-1-2024"], True),
        (["2024-01-31", "2024-02-01", "soon", "2024-02-01"], False),
        (["2024-31-01", "2024-13-01", "2024-15-01", "2024-16-01"], False),
        (["20240131", "20240201", "2024", "7"], False),
        (["3-2024-01-31", "2024-01-31 a", "10:00", "may"], False),
        (["1.2.3", "1.10.0", "10.12.14", "10.12.15"], False),
        (["12-34-56", "10-11-12", "30-02-2024", "10-11-123"], False),
        (["31/13/2024", "2024-1-031", "1/2/3", "1.2/2024"], False),
    ],
)
def test_texts_that_are_dates_are_refused(tmp_path: Path, texts: list[Any], is_date: bool) -> None:
    frame = ROWS.drop(columns="day").assign(when=texts)
    listed = {"when": np.array(texts, object), "sold": ["no", "yes", "yes", "no"]}
    for form in (*forms(frame, tmp_path), listed):
        rule: dict[str, Any] = {"features": ["when"], "missing": "mean"}
        for more in ({}, {"hashed": []}):
            says = "features, column 'when'='dates': must be numbers or categories; drop=.*to_datetime.*categorical="
            with pytest.raises(DataError, match=says) if is_date else contextlib.nullcontext():
                datasets.table(form, "sold", **rule, **more)
        for more in ({"categorical": ["when"]}, {"hashed": ["when"]}):
            known = datasets.table(form, "sold", **rule, **more)
            np.testing.assert_array_equal(dense(datasets.table(form, "sold", like=known)), dense(known))
            np.testing.assert_array_equal(dense(datasets.table(listed, "sold", like=known)), dense(known))


def test_columns_are_left_out_by_name(tmp_path: Path) -> None:
    for form in forms(ROWS, tmp_path):
        with pytest.raises(DataError, match=r"column 'day'='dates': must be .*; drop=\['day'\] leaves it out"):
            datasets.table(form, "sold")
        some = datasets.table(form, "sold", drop=["day", "who"], categorical=["zip"])
        assert some.names.coding.features == FEATURES
    for arguments, says in (
        ({"drop": ["price"]}, "drop='price': must be the name of a column"),
        ({"drop": ["ages"]}, r"drop='ages': must be the name of a column; there are .*; is age meant\?"),
        ({"drop": ["sold"]}, "drop='sold': must be columns other than label"),
        ({"drop": "day"}, r"drop='day': must be a list of columns"),
        ({"drop": ["day"], "features": ["age"]}, r"drop=\['day'\]: must be used without features="),
    ):
        with pytest.raises(DataError, match=says):
            datasets.table(ROWS, "sold", **arguments)


HOLED = ROWS.assign(age=[30.0, None, 50.0, 10.0], city=["Rome", "Oslo", None, "Bonn"])


@pytest.mark.parametrize(
    ("missing", "features", "rows"),
    [
        (
            "mean",
            ["age", "city=Bonn", "city=Oslo", "city=Rome"],
            [[30, 0, 0, 1], [30, 0, 1, 0], [50, 0, 0, 0], [10, 1, 0, 0]],
        ),
        (
            "indicator",
            ["age", "age is missing", "city=Bonn", "city=Oslo", "city=Rome", "city is missing"],
            [[30, 0, 0, 0, 1, 0], [0, 1, 0, 1, 0, 0], [50, 0, 0, 0, 0, 1], [10, 0, 1, 0, 0, 0]],
        ),
        ("drop", ["age", "city=Bonn", "city=Rome"], [[30, 0, 1], [10, 1, 0]]),
    ],
)  # fmt: skip
def test_missing_values_follow_the_rule(tmp_path: Path, missing: str, features: Any, rows: Any) -> None:
    for form in forms(HOLED, tmp_path):
        data = datasets.table(form, "sold", features=["age", "city"], missing=missing)
        assert data.names.coding.features == features
        np.testing.assert_array_equal(dense(data), rows)


def test_a_missing_value_is_named_with_its_column_and_row(tmp_path: Path) -> None:
    for form in forms(HOLED.drop(columns="day"), tmp_path):
        with pytest.raises(DataError, match=r"column 'age', row 1=None: must be a value; missing='mean'"):
            datasets.table(form, "sold")
    for field in ("label", "time", "group"):
        with pytest.raises(DataError, match=r"column 'shop', row 2=None: must be a value; missing='drop'"):
            datasets.table(ROWS.assign(shop=[1.0, 2.0, None, 3.0]), features=["age"], **{field: "shop"})
    labels = ROWS.assign(sold=[None, "a", "b", "a"])
    assert datasets.table(labels, "sold", features=["age"], missing="drop").n == 3
    assert datasets.table(ROWS[["age"]], [None, "a", "b", "a"], missing="drop").n == 3
    assert datasets.table(ROWS[["age"]], [np.nan, 1, 0, 1], missing="drop").n == 3


def test_other_rows_are_coded_like_the_first(tmp_path: Path) -> None:
    data = datasets.table(ROWS, "sold", features=["age", "city", "zip"], categorical=["zip"], missing="mean")
    others = pd.DataFrame(
        {"zip": [9, 8], "city": ["Rome", "Kiew"], "age": [None, 2.0], "sold": ["yes", "no"], "more": 1}
    )
    for form in forms(others, tmp_path):
        again = datasets.table(form, "sold", like=data)
        np.testing.assert_array_equal(dense(again), [[25, 0, 0, 1, 0, 0, 1], [2, 0, 0, 0, 0, 0, 0]])
        assert datasets.table(form, like=data).names == data.names
        assert (np.asarray(again.y).tolist(), again.names) == ([1, 0], data.names)
    with pytest.raises(DataError, match=r"label, row 1='perhaps': must be one of 'no', 'yes'"):
        datasets.table(others.assign(sold=["yes", "perhaps"]), "sold", like=data)
    with pytest.raises(DataError, match="like, column 'city'=None: must be in the table, as it was in the tr"):
        datasets.table(others.drop(columns="city"), "sold", like=data)
    with pytest.raises(DataError, match=r"must be a dataset of datasets\.table"):
        datasets.table(others, "sold", like=datasets.csr(np.eye(2), [0, 1]))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"label": "price"}, r"label='price': must be the name of a column; there are age, city, zip, pro"),
        ({"label": "day"}, "label, column 'day'='times': must be numbers or text"),
        ({"label": [1, 2]}, "label='2 labels': must be as many as the table has rows, 4"),
        ({"features": "age"}, r"features='age': must be a list of columns, e.g. \['age'\]"),
        ({"features": []}, "must be at least one column"),
        ({"features": ["age", "age"]}, "must be columns that differ"),
        ({"features": ["age", "sold"]}, "columns that differ from each other and from label"),
        ({"features": ["age"], "categorical": ["zip"]}, "categorical='zip': must be one of the features: age"),
        ({"missing": "zero"}, "missing='zero': must be 'error' or 'mean' or 'indicator' or 'drop'"),
        ({"buckets": 0}, "buckets=0"),
        ({"features": ["age", "day"]}, r"column 'day'='dates': must be numbers or categories; drop=\['day'\]"),
        ({"group": "day"}, "group, column 'day'"),
        ({"group": "sold"}, r"label, time, group=\('sold', None, 'sold'\): must be different columns"),
        ({"time": "city"}, "time, column 'city'='text': must be numbers or times"),
    ],
)
def test_an_argument_that_is_wrong_is_named(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says) if "missing" not in arguments else pytest.raises(ValueError, match=says):
        datasets.table(ROWS, **{"label": "sold", **arguments})


@pytest.mark.parametrize("value", [np.inf, 1e300])
def test_a_number_that_float32_cannot_hold_is_named(tmp_path: Path, value: float) -> None:
    for form in forms(ROWS.assign(age=[1, 2, value, 3]), tmp_path):
        with pytest.raises(DataError, match=r"column 'age', row 2=.*: must be a finite number"):
            datasets.table(form, "sold", features=["age"])
        with pytest.raises(DataError, match=r"column 'age', row 2=.*: must be a finite number"):
            datasets.table(form, "sold", like=datasets.table(ROWS, "sold", features=["age"]))


def test_no_rows_are_refused() -> None:
    with pytest.raises(DataError, match="must be a table with at least one row"):
        datasets.table(ROWS.iloc[:0], "sold", features=["age"])
    with pytest.raises(DataError, match="at least one row, in which no value is missing"):
        datasets.table(HOLED.iloc[1:3], "sold", features=["age", "city"], missing="drop")


# -- ratings

RATINGS = pd.DataFrame({
    "user": ["u9", "u1", "u10", "u9"],
    "film": [-4, 10, 10, 3],
    "stars": [1.0, 2.0, 3.0, 4.0],
    "day": pd.to_datetime(["2020-01-03", "2020-01-01", "2020-01-02", "2020-01-04"]),
})  # fmt: skip
COLUMNS = {"user": "user", "item": "film", "rating": "stars"}


def test_ratings_of_every_form_are_numbered_alike(tmp_path: Path) -> None:
    for form in [*forms(RATINGS, tmp_path), {name: RATINGS[name].to_numpy() for name in RATINGS}]:
        made = datasets.ratings(form, **COLUMNS, time="day")
        assert (made.users.tolist(), made.items.tolist()) == ([2, 0, 1, 2], [0, 2, 2, 1])
        assert (made.ratings.tolist(), made.shape) == ([1, 2, 3, 4], (3, 3))
        assert made.names.users[[0, 1, 2]].tolist() == ["u1", "u10", "u9"]
        assert made.names.items[[0, 1, 2]].tolist() == [-4, 3, 10]


def test_ratings_without_a_rating_are_ones() -> None:
    assert datasets.ratings(RATINGS, user="user", item="film").ratings.tolist() == [1, 1, 1, 1]


def test_texts_in_arrays_are_ids_too() -> None:
    for users in (["b", "a"], np.array(["b", "a"]), pd.Series(["b", "a"]), pl.Series(["b", "a"])):
        made = datasets.ratings(users, [0, 5], [1, 2])
        assert (made.users.tolist(), made.items.tolist(), made.names.users[0]) == ([1, 0], [0, 1], "a")


def test_a_sparse_matrix_is_ratings() -> None:
    made = datasets.ratings(coo_matrix(([1.0, 2.0], ([0, 2], [1, 0])), shape=(4, 2)).tocsr())
    assert (made.users.tolist(), made.items.tolist(), made.shape) == ([0, 2], [1, 0], (4, 2))


def test_ratings_of_other_rows_are_numbered_like_the_first() -> None:
    made = datasets.ratings(RATINGS, **COLUMNS)
    again = datasets.ratings(RATINGS.iloc[2:], **COLUMNS, like=made)
    assert (again.users.tolist(), again.items.tolist(), again.shape) == ([1, 2], [2, 1], (3, 3))
    others = RATINGS.assign(user=["u9", "new", "u1", None])
    says = r"column 'user', row 1='new': must be one of the 3 ids of `like` \('u1', 'u10'\)"
    with pytest.raises(DataError, match=says):
        datasets.ratings(others.iloc[:3], **COLUMNS, like=made)
    assert datasets.ratings(others, **COLUMNS, like=made, missing="drop").users.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"user": None}, "user=None: must be the name of a column; there are user, film, stars, day"),
        ({"item": "movie"}, "item='movie': must be the name of a column"),
        ({"rating": "user"}, "rating, column 'user'='text': must be numbers; convert it to numbers first"),
        ({"rating": "film"}, "must be different columns"),
        ({"user": "day"}, "user, column 'day'='times'"),
        ({"missing": "mean"}, "missing='mean': must be 'error' or 'drop'"),
        ({"like": 3}, "like=3: must be a dataset of datasets.ratings"),
        ({"ratings": [1, 2, 3, 4]}, "ratings=.*: must be used with arrays; a table's columns are named"),
        ({"n_users": 9}, "n_users=9: must be used with arrays"),
    ],
)
def test_a_wrong_argument_of_ratings_is_named(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        datasets.ratings(RATINGS, **{**COLUMNS, **arguments})


def test_a_column_whose_name_has_two_lines_is_told_in_one() -> None:
    """As in headers of spreadsheets."""
    with pytest.raises(DataError) as caught:
        datasets.table(ROWS.rename(columns={"age": "age\n(years)"}), "price")
    assert "there are age (years), city" in str(caught.value)


def test_missing_values_of_ratings_are_named_or_dropped(tmp_path: Path) -> None:
    holed = RATINGS.assign(user=["u9", None, "u1", "u1"], stars=[1.0, 2.0, None, 3.0])
    for form in forms(holed, tmp_path):
        with pytest.raises(DataError, match=r"column 'user', row 1=None: must be a value; missing='drop'"):
            datasets.ratings(form, **COLUMNS)
        made = datasets.ratings(form, **COLUMNS, missing="drop")
        assert made.ratings.tolist() == [1, 3]
        assert made.names.users[[0, 1]].tolist() == ["u1", "u9"]


def test_what_looks_wrong_is_said() -> None:
    with pytest.warns(DataWarning, match="all 4 are 3"):
        datasets.ratings(RATINGS.assign(stars=3), **COLUMNS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"user": "u"}, "user='u': must be used with a table, whose column it names"),
        ({"time": "t"}, "time='t': must be used with a table"),
        ({"missing": "drop"}, "missing='drop': must be used with a table, or with ids that are texts"),
        ({"like": RATINGS}, "like=.*: must be a dataset of datasets.ratings"),
    ],
)
def test_an_argument_that_arrays_have_no_use_for_is_named(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        datasets.ratings([0, 1], [1, 0], [1.0, 2.0], **arguments)
    with pytest.raises(DataError, match=next(iter(arguments))):
        datasets.ratings(coo_matrix(np.eye(2)), **arguments)


def test_arrays_of_integers_are_numbered_like_other_rows() -> None:
    first = datasets.ratings(
        {"user": [100, 300], "film": [7, 9], "stars": [1, 2]}, user="user", item="film", rating="stars"
    )
    again = datasets.ratings([300, 100], [9, 9], [3.0, 4.0], like=first)
    assert (again.users.tolist(), again.items.tolist(), again.names) == ([1, 0], [1, 1], first.names)
    with pytest.raises(DataError, match="n_users=9: must be used with ids that begin at 0"):
        datasets.ratings([300, 100], [9, 9], [3.0, 4.0], like=first, n_users=9)


def test_errors_beside_rows_that_are_dropped_name_the_row_of_the_table() -> None:
    rows = pd.DataFrame({"age": [None, 1.0, np.inf], "sold": [0.0, 1.0, 0.0]})
    with pytest.raises(DataError, match="column 'age', row 2=inf"):
        datasets.table(rows, "sold", missing="drop", like=datasets.table(rows[1:2], "sold"))
    stars = pd.DataFrame({"user": ["a", None, "b"], "film": [1, 2, 3], "stars": [1.0, np.inf, np.inf]})
    with pytest.raises(DataError, match="column 'stars', row 2=inf"):
        datasets.ratings(stars, user="user", item="film", rating="stars", missing="drop")
    kept = datasets.table(pd.DataFrame({"age": [None, 1.0], "sold": [np.inf, 1.0]}), "sold", missing="drop")
    assert np.asarray(kept.y).tolist() == [1.0]


def test_labels_of_other_rows_are_of_the_kind_of_the_first() -> None:
    first = datasets.table(ROWS.assign(sold=[0, 1, 1, 0]), "sold", features=["age"])
    with pytest.raises(DataError, match="label='text': must be numbers, as the labels of `like`"):
        datasets.table(ROWS, "sold", like=first)


def test_a_missing_value_that_the_first_rows_have_no_rule_for_is_told_so() -> None:
    first = datasets.table(ROWS, "sold", features=["age"])
    with pytest.raises(DataError, match="row 1=None: must be a value; leave such rows out, or say missing='mean' or"):
        datasets.table(ROWS.assign(age=[1.0, None, 2.0, 3.0]), "sold", like=first, missing="mean")


def test_labels_in_lists_keep_their_kind() -> None:
    rows = pd.DataFrame({"age": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match="column 'label', row 1=None: must be a value"):
        datasets.table(rows, ["yes", np.nan, "no"])
    objects = pd.Series([5, 7, None], dtype=object)
    for label in (objects, "sold"):
        made = datasets.table(rows.assign(sold=objects), label, features=["age"], missing="drop")
        assert (np.asarray(made.y).tolist(), made.names.classes) == ([5.0, 7.0], None)
