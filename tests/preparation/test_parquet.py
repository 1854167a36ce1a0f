"""Parquet files: functions share out row groups, and the bytes are those of one file that is read here."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from preparation.in_process import FOLDER, InProcess

from mlless_nb import DataError, StoredFiles, datasets
from mlless_nb.data import prepare as local
from mlless_nb.data.parquet import RangeFile
from mlless_nb.storage.objects import MemoryObjects

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

RNG = np.random.default_rng(5)


def table(n: int) -> Any:
    """Numbers of several types, some missing; labels are real numbers."""
    missing = RNG.random(n) < 0.2
    return pyarrow.table(
        {
            "a": pyarrow.array(RNG.normal(size=n), mask=missing),
            "b": pyarrow.array(RNG.integers(-5, 9, n).astype(np.int32), mask=~missing),
            "label": pyarrow.array(RNG.normal(size=n).astype(np.float32)),
            "c": pyarrow.array(RNG.random(n) < 0.5),
            "d": pyarrow.array(RNG.integers(0, 3, n), mask=missing),
        }
    )


def blob_of(rows: Any, group: int = 20) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(rows, sink, row_group_size=group)
    return sink.getvalue()


TABLES = [table(90), table(7), table(41)]
BLOBS = [blob_of(TABLES[0]), blob_of(TABLES[1]), blob_of(TABLES[2], 9)]


def whole(folder: Path) -> Path:
    path = folder / "whole.parquet"
    parquet.write_table(pyarrow.concat_tables(TABLES), path, row_group_size=33)
    return path


@pytest.mark.parametrize("functions", [1, 2, 3, 7, 30])
def test_minibatches_are_those_of_one_local_file(functions: int, tmp_path: Path) -> None:
    stored = InProcess(BLOBS)
    rows, here = stored.scanned("parquet", functions), datasets.parquet(whole(tmp_path))
    assert (rows.n, rows.shape) == (here.n, here.shape) == (138, (4,))
    np.testing.assert_array_equal(rows.y, here.y)
    parts, parts_here = rows.split(0.2, 5), here.split(0.2, 5)
    manifests = stored.pack([(parts[0], 11), (parts[1], None)], 16)
    for part, part_here, seed in zip(parts, parts_here, (11, None), strict=True):
        part_here.name, vars(part_here)["_fingerprint"] = part.name, part.fingerprint()
        objects = MemoryObjects()
        assert local.write(part_here, 16, seed, objects) == manifests[local.pack_key(part, 16, seed)]
        assert {key: stored.objects.blobs.get(key) for key in objects.blobs} == objects.blobs
    assert not stored.objects.list(FOLDER)
    [n_scans] = [n for stage, n in stored.n_called if stage == "scan"]
    assert min(functions, 7) <= n_scans <= functions


def test_rows_are_scaled_and_missing_ones_are_0(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    columns = {"y": [1.0, 2.0, 3.0], "a": [2, None, 6], "b": [True, False, True], "one": [4.0, 4.0, None]}
    parquet.write_table(pyarrow.table(columns), path)
    data = datasets.parquet(path, label="y").load()
    np.testing.assert_array_equal(data.X.toarray(), [[0, 1, 0], [0, 0, 0], [1, 1, 0]])
    assert data.y.tolist() == [1, 2, 3]
    assert datasets.parquet(path, label=-1 - 3).y.tolist() == [1, 2, 3]


def test_a_label_that_two_columns_are_called_is_refused(tmp_path: Path) -> None:
    columns = [pyarrow.array([1.0, 2.0]), pyarrow.array([3.0, 4.0]), pyarrow.array([0.0, 1.0])]
    parquet.write_table(pyarrow.Table.from_arrays(columns, ["y", "a", "y"]), tmp_path / "rows.parquet")
    (tmp_path / "rows.csv").write_text("y,a,y\n1,3,0\n2,4,1\n")
    for read, name in ((datasets.parquet, "rows.parquet"), (datasets.csv, "rows.csv")):
        with pytest.raises(DataError, match=r"label='y': must be the name of one column of .*several"):
            read(tmp_path / name, label="y")
        assert read(tmp_path / name, label=2).y.tolist() == [0, 1]


def test_the_content_s_key_does_not_depend_on_the_functions() -> None:
    assert len({InProcess(BLOBS).scanned("parquet", n).fingerprint() for n in (1, 2, 7)}) == 1


@pytest.mark.parametrize("functions", [1, 7])
def test_a_bad_row_is_named_with_its_object_and_number(functions: int, tmp_path: Path) -> None:
    labels = RNG.normal(size=90)
    labels[57] = np.inf
    blob = blob_of(TABLES[0].set_column(2, "label", pyarrow.array(labels)))
    with pytest.raises(DataError, match=r"bucket/data/part-00001, row 58='.*': must be numbers"):
        InProcess([BLOBS[0], blob]).scanned("parquet", functions)
    path = tmp_path / "bad.parquet"
    path.write_bytes(blob)
    with pytest.raises(DataError, match=r"bad.parquet, row 58='"):
        datasets.parquet(path)


def test_files_that_are_not_as_the_first(tmp_path: Path) -> None:
    def read(blob: bytes) -> None:
        InProcess([BLOBS[0], blob]).scanned("parquet", 2)

    with pytest.raises(DataError, match=r"bucket/data/part-00001='an object of 25 bytes': must be a Parquet file"):
        read(b"not a Parquet file at all")
    with pytest.raises(
        DataError, match=r"bucket/data/part-00001='an object of .*': must be a file with at least one row"
    ):
        read(blob_of(TABLES[0].slice(0, 0)))
    with pytest.raises(DataError, match=r"part-00001=.*must be a file with the columns"):
        read(blob_of(TABLES[0].rename_columns(["a", "b", "label", "c", "e"])))
    with pytest.raises(DataError, match=r"part-00001, column 'a'='string': must be numbers"):
        read(blob_of(TABLES[0].set_column(0, "a", pyarrow.array(["x"] * 90))))
    with pytest.raises(DataError, match=r"label='y': must be one of the columns"):
        InProcess(BLOBS).scanned("parquet", 2, label="y")


def test_a_row_group_is_read_by_one_request() -> None:
    objects = MemoryObjects()
    big = blob_of(table(60_000), 20_000)
    objects.put("big", big)
    with parquet.ParquetFile(RangeFile(objects, "big", len(big))) as opened:
        assert opened.metadata.num_row_groups == 3
    stored = InProcess([big])
    before = stored.files.gets
    rows = stored.scanned("parquet", 1)
    assert rows.n == 60_000
    assert stored.files.gets - before <= 3 + 3  # a footer three times, three row groups


def test_without_pyarrow_it_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else find(name))
    for use in (lambda: StoredFiles("bucket/a", "parquet"), lambda: datasets.parquet(tmp_path / "a.parquet")):
        with pytest.raises(DataError, match=r"pip install 'mlless_nb\[parquet\]'"):
            use()
