"""The same table in every form is read as the same columns."""

from __future__ import annotations

import datetime
import gzip
import lzma
import math
import uuid
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy.sparse import csr_matrix

from mlless_nb import datasets
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


@pytest.mark.parametrize(
    "values",
    [[1.5, None, 2], [Decimal("1.5"), None, Decimal(2)], [True, None, False]],
    ids=["floats", "decimals", "bools"],
)
def test_numbers_among_objects_are_numbers(values: list[Any]) -> None:
    """As they come from lists with a missing value, from databases, or from JSON."""
    expected = [None if value is None else float(value) for value in values]
    for table in ({"a": values}, pd.DataFrame({"a": pd.Series(values, dtype=object)})):
        source = source_of(table)
        assert source.columns == {"a": "numbers"}
        assert read(source, {"a": NUMBER}) == {"a": expected}


def test_ids_among_objects_are_exact() -> None:
    for table in ({"a": [2**60 + 1, None]}, pd.DataFrame({"a": pd.Series([2**60 + 1, None], dtype=object)})):
        assert read(source_of(table), {"a": CODED}) == {"a": [2**60 + 1, None]}


def test_a_missing_value_in_a_list_is_no_text() -> None:
    assert read(source_of({"a": ["x", math.nan, None]}), {"a": CODED}) == {"a": ["x", None, None]}
    with pytest.raises(DataError, match="column 'a'=1: must be integers, text or UUIDs, all of one kind"):
        read(source_of({"a": [1, "x"]}), {"a": CODED})
    masked = np.ma.masked_array([1.0, 2.0], [False, True])  # type: ignore[no-untyped-call]
    assert read(source_of({"a": masked}), {"a": NUMBER}) == {"a": [1.0, None]}


def test_not_a_number_among_ids_of_arrow_is_missing() -> None:
    table = pa.table({"a": [2.0, math.nan, None, 1.0, 2.0]})
    assert read(source_of(table), {"a": CODED}) == {"a": [2, None, None, 1, 2]}


def test_large_integers_and_nanoseconds_are_rounded_as_those_of_pandas(tmp_path: Path) -> None:
    made = pd.DataFrame({"n": [2**53 + 1, 3], "at": pd.to_datetime([1_000_000_001, 5], unit="ns")})
    made.to_parquet(tmp_path / "rows.parquet")
    expected = {"n": [float(2**53), 3.0], "at": [1.0, 0.0]}
    tables = [source_of(made), source_of(pa.Table.from_pandas(made)), source_of(pl.from_pandas(made))]
    for source in (*tables, file_source(located("path", tmp_path / "rows.parquet"))):
        assert read(source, {"n": NUMBER, "at": TIME}) == expected


def test_days_of_pandas_on_arrow_are_times() -> None:
    days = pd.Series([datetime.date(2020, 1, 1), None]).astype(pd.ArrowDtype(pa.date32()))
    assert read(source_of(pd.DataFrame({"at": days})), {"at": TIME}) == {"at": [1577836800.0, None]}


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
        ({"a": [[1], [1, 2]]}, r"column 'a'=\[\[1\], \[1, 2\]\]: must be an array"),
        ({"a": 1}, r"column 'a'='shape \(\)': must be one-dimensional"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "whose columns have different names"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), "whose columns have different names"),
        ({1: [1], "1": [2]}, "frame=\"two columns '1'\": must be a table whose columns have different names"),
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


TEXT = b"a,b\n" + b"".join(b"%d,%d\n" % (row, row * row) for row in range(2000))


def damaged(blob: bytes) -> bytes:
    return blob[: len(blob) // 2] + bytes([blob[len(blob) // 2] ^ 255]) + blob[len(blob) // 2 + 1 :]


@pytest.mark.parametrize(
    ("name", "blob"),
    [
        ("rows.csv.gz", TEXT),
        ("rows.csv.gz", damaged(gzip.compress(TEXT))),
        ("rows.csv.gz", gzip.compress(TEXT)[:-20]),
        ("rows.csv.bz2", TEXT),
        ("rows.csv.xz", TEXT),
        ("rows.csv.xz", damaged(lzma.compress(TEXT))),
    ],
)
def test_a_packed_file_that_is_damaged_is_named(tmp_path: Path, name: str, blob: bytes) -> None:
    (tmp_path / name).write_bytes(blob)
    for open_it in (lambda place: read(file_source(located("path", place)), {"a": NUMBER}), datasets.libsvm):
        with pytest.raises(DataError, match=rf"path='.*{name}': must be a file that can be read"):
            open_it(tmp_path / name)


def test_a_damaged_member_of_an_archive_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "rows.zip", "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("rows.csv", TEXT)
    (tmp_path / "rows.zip").write_bytes((tmp_path / "rows.zip").read_bytes().replace(b"1999", b"1998", 1))
    with pytest.raises(DataError, match=r"path='.*rows.zip/rows.csv': must be a file that can be read"):
        read(file_source(located("path", tmp_path / "rows.zip")), {"a": NUMBER})


def test_a_file_of_two_columns_with_one_name_is_refused(tmp_path: Path) -> None:
    parquet.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), tmp_path / "1.parquet")
    with pytest.raises(DataError, match="path=\"two columns 'a'\": must be a table whose columns have different names"):
        file_source(located("path", tmp_path / "1.parquet"))


def test_text_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes("who,b\nJosé,1\n".encode("latin-1"))
    with pytest.raises(DataError, match="column 'who'='text that is not UTF-8'"):
        file_source(located("path", tmp_path / "rows.csv")).check_column("user", "who", "text")


def test_a_second_file_must_be_like_the_first(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("b,a\n1,2\n")
    with pytest.raises(DataError, match=r"2.csv, line 1='b,a': must be the header of .*1.csv"):
        read(file_source(located("path", tmp_path / "*.csv")), {"a": NUMBER})
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "1.parquet")
    pd.DataFrame({"b": [1]}).to_parquet(tmp_path / "2.parquet")
    with pytest.raises(DataError, match=r"2.parquet='without column 'a''|without column 'a'"):
        read(file_source(located("path", tmp_path / "*.parquet")), {"a": NUMBER})
    (tmp_path / "1.parquet").unlink()
    pd.DataFrame({"b": [[1]]}).to_parquet(tmp_path / "3.parquet")
    with pytest.raises(DataError, match=r"3.parquet, column 'b'='list<.*>': must be numbers, as in the first file"):
        read(file_source(located("path", tmp_path / "*.parquet")), {"b": NUMBER})
