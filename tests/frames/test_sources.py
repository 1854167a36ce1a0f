"""The same table in every form is read as the same columns."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_matrix

from mlless_nb.errors import DataError
from mlless_nb.frames import sources
from mlless_nb.frames.files import file_source
from mlless_nb.frames.locations import located
from mlless_nb.frames.sources import CODED, NUMBER, TIME, Source, is_frame, source_of

ROLES = {"who": CODED, "n": CODED, "x": NUMBER, "small": NUMBER, "yes": NUMBER, "kind": CODED, "at": TIME}
VALUES: dict[str, list[Any]] = {
    "who": ["u1", "ü9", None, "u1"],
    "n": [5, -3, 5, 7],
    "x": [1.5, 2.0, None, -1e9],
    "small": [1.0, None, 3.0, 4.0],
    "yes": [1.0, 0.0, 1.0, 1.0],
    "kind": ["a", None, "b", "a"],
    "at": [1577836800.0, 1577836801.5, None, 0.0],
}


def frame() -> pd.DataFrame:
    made = pd.DataFrame({name: VALUES[name] for name in ("who", "n", "x", "kind")})
    made["small"] = pd.array([1, None, 3, 4], "Int64")
    made["yes"] = [True, False, True, True]
    made["kind"] = made["kind"].astype("category")
    made["at"] = pd.to_datetime([1577836800.0, 1577836801.5, None, 0.0], unit="s")
    return made


def every_form(folder: Path) -> dict[str, Source]:
    made = frame()
    made.to_csv(folder / "rows.csv", index=False)
    made.to_csv(folder / "rows.tsv.gz", index=False, sep="\t")
    made.to_parquet(folder / "rows.parquet")
    arrays = {name: made[name].to_numpy() for name in made}
    return {
        "pandas": source_of(made),
        "polars": source_of(pl.from_pandas(made)),
        "lazy": source_of(pl.from_pandas(made).lazy()),
        "arrow": source_of(pa.Table.from_pandas(made)),
        "pandas on arrow": source_of(made.convert_dtypes(dtype_backend="pyarrow")),
        "columns": source_of({**arrays, "small": made["small"].to_numpy(np.float64, na_value=np.nan)}),
        "csv": file_source(located("path", folder / "rows.csv")),
        "tsv": file_source(located("path", folder / "rows.tsv.gz")),
        "parquet": file_source(located("path", folder / "rows.parquet")),
    }


def read(source: Source, roles: dict[str, str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [] for name in roles}
    for batch in source.batches(roles):
        for name, values in batch.items():
            if roles[name] == CODED:
                listed = [*list(values.values), None]
                found[name] += [listed[code] for code in values.codes.tolist()]
            else:
                found[name] += [None if np.isnan(value) else value for value in values.tolist()]
    return found


@pytest.mark.parametrize("rows", [1 << 16, 3, 1])
def test_every_form_has_the_same_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(sources, "BATCH_ROWS", rows)
    for form, source in every_form(tmp_path).items():
        found = read(source, ROLES)
        if source.is_text_file:
            found["n"] = [int(each) for each in found["n"]]
        assert found == VALUES, form
        assert source.columns["who"] == "text"
        assert source.columns["x"] == "numbers"
        assert source.columns["at"] == "times", form


def test_a_column_may_be_read_twice_and_alone(tmp_path: Path) -> None:
    for form, source in every_form(tmp_path).items():
        assert read(source, {"x": NUMBER}) == read(source, {"x": NUMBER}) == {"x": VALUES["x"]}, form


def test_times_with_a_zone_are_the_same_moments() -> None:
    here = pd.DataFrame({"at": pd.to_datetime(["2020-01-01T01:00"]).tz_localize("Europe/Berlin")})
    for made in (here, pl.from_pandas(here)):
        assert read(source_of(made), {"at": TIME}) == {"at": [1577836800.0]}


def test_uuids_are_read_from_objects_and_arrow() -> None:
    ids = [uuid.UUID(int=2), uuid.UUID(int=1), None]
    tables: list[Any] = [pd.DataFrame({"id": ids}), {"id": np.array(ids, object)}]
    if hasattr(pa, "uuid"):
        tables.append(pa.table({"id": pa.array([each and each.bytes for each in ids], pa.uuid())}))
    for table in tables:
        assert read(source_of(table), {"id": CODED}) == {"id": ids}


def test_a_matrix_and_a_structured_array_are_tables() -> None:
    matrix = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert read(source_of(matrix), {"1": NUMBER}) == {"1": [2.0, 4.0]}
    named = np.array([(1, "a"), (2, "b")], [("n", "i4"), ("t", "U1")])
    assert read(source_of(named), {"t": CODED, "n": NUMBER}) == {"t": ["a", "b"], "n": [1.0, 2.0]}
    assert not is_frame(matrix)
    assert is_frame(named)


def test_a_file_without_a_header_has_numbered_columns(tmp_path: Path) -> None:
    path = tmp_path / "u.data"
    path.write_text("196\t242\t3\n186\t302\t4\n")
    assert read(file_source(located("path", path)), {"0": CODED, "2": NUMBER}) == {"0": ["196", "186"], "2": [3.0, 4.0]}


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (3, "frame='a int': must be a table"),
        (csr_matrix(np.eye(2)), r"must be a table with columns; .* datasets.csr\(X, y\)"),
        ({}, "must be a table with columns"),
        ({"a": [1], "b": [1, 2]}, "must be columns of the same length"),
        ({"a": [[1, 2]]}, r"column 'a'='shape \(1, 2\)': must be one-dimensional"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "whose columns have different names"),
    ],
)
def test_what_is_no_table_is_named(table: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        source_of(table)


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ("z", "user='z': must be the name of a column; there are a, at, span, list"),
        ("at", "column 'at'='times': must be numbers; the days since a date are numbers"),
        ("span", "must be numbers; convert it to numbers or text first, or leave it out"),
        ("list", "must be numbers; convert it to numbers or text first, or leave it out"),
    ],
)
def test_a_column_of_another_kind_is_named(column: str, says: str) -> None:
    table = pa.table({
        "a": [1],
        "at": pa.array([0], pa.timestamp("s")),
        "span": pa.array([0], pa.duration("s")),
        "list": [[1]],
    })  # fmt: skip
    with pytest.raises(DataError, match=says):
        source_of(table).check_column("user", column, "numbers")


def test_a_text_in_a_later_row_of_a_column_of_numbers_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "1,2\n" * 600_000 + "1,oops\n")
    source = file_source(located("path", path))
    with pytest.raises(DataError, match=r"rows.csv, column 'b'='oops': must be numbers; .*categorical=\['b'\]"):
        read(source, {"a": NUMBER, "b": NUMBER})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "a file whose first line has the columns' names"),
        (b"a,a\n1,2\n", "a file whose first line has the columns' names"),
        (b"a,b\n1,2\n1,2,3\n", "must be a file that can be read; .*3"),
        (b"PAR1 and nothing", "must be a file that can be read"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(text)
    with pytest.raises(DataError, match=says):
        read(file_source(located("path", path)), {"a": NUMBER})


def test_a_second_file_must_be_like_the_first(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("b,a\n1,2\n")
    with pytest.raises(DataError, match=r"2.csv, line 1='b,a': must be the header of .*1.csv"):
        read(file_source(located("path", tmp_path / "*.csv")), {"a": NUMBER})
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "1.parquet")
    pd.DataFrame({"b": [1]}).to_parquet(tmp_path / "2.parquet")
    with pytest.raises(DataError, match=r"2.parquet='without column 'a''|without column 'a'"):
        read(file_source(located("path", tmp_path / "*.parquet")), {"a": NUMBER})
