"""LIBSVM files: read as written, refused with the line that is wrong."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlless_nb import datasets
from mlless_nb.data import numbers
from mlless_nb.data.csr import Csr
from mlless_nb.data.stream import CsrStream
from mlless_nb.errors import DataError

TEXT = b"+1 1:0.5 3:-2e1 \n-1\n\n# a comment\n1 2:1  # another\r\n-1 3:4"
ROWS = [[0.5, 0, -20], [0, 0, 0], [0, 1, 0], [0, 0, 4]]
LABELS = [1, 0, 1, 0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "rows.svm"
    path.write_bytes(TEXT)
    return path


def test_rows_and_labels_are_read(path: Path) -> None:
    data = datasets.libsvm(path)
    assert isinstance(data, Csr)
    np.testing.assert_array_equal(data.X.toarray(), ROWS)
    np.testing.assert_array_equal(data.y, LABELS)
    assert (data.name, data.is_synthetic, data.shape) == ("rows.svm", False, (3,))
    assert datasets.libsvm(str(path), n_features=9).shape == (9,)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_compressed_files_are_read(tmp_path: Path, suffix: str, pack: Any) -> None:
    path = tmp_path / f"rows{suffix}"
    path.write_bytes(pack(TEXT))
    assert datasets.libsvm(path).fingerprint() == datasets.libsvm(_written(tmp_path, TEXT)).fingerprint()
    path.write_bytes(pack(TEXT)[:-9])
    with pytest.raises(DataError, match="can be read to its end"):
        datasets.libsvm(path)


def test_blocks_of_any_size_give_the_same_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n_bytes in (1, 7, 20):
        monkeypatch.setattr(numbers, "BLOCK_BYTES", n_bytes)
        data = datasets.libsvm(path)
        assert isinstance(data, Csr)
        np.testing.assert_array_equal(data.X.toarray(), ROWS)


def test_first_blocks_are_small_and_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "FIRST_BYTES", 8)
    monkeypatch.setattr(numbers, "BLOCK_BYTES", 32)
    blocks = list(numbers.line_blocks(io.BytesIO(b"1234567\n" * 20), "a file"))
    assert [len(block) for block in blocks] == [8, 16, 32, 32, 32, 32, 8]


def test_indices_may_be_in_any_order(tmp_path: Path) -> None:
    data = datasets.libsvm(_written(tmp_path, b"1 3:3 1:1\n"))
    assert isinstance(data, Csr)
    assert data.X.toarray().tolist() == [[1, 0, 3]]


@pytest.mark.parametrize(
    "line",
    [
        b"2 1:1",
        b"0.5 1:1",
        b"1 0:1",
        b"1 -1:1",
        b"1 1.5:1",
        b"1 1:1 1:2",
        b"1 1:nan",
        b"1 1:inf",
        b"1 1:1e300",
        b"1 1:x",
        b"x 1:1",
        b"nan 1:1",
        b"1 1:2:3",
        b"1 1 2",
        b"1:1 2:2",
        b"1 1: 2:2",
        b"1 :1",
        b"1 qid:3 1:1",
        b"1 99999999999:1",
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, line: bytes) -> None:
    path = _written(tmp_path, b"1 1:1\n\n" + line + b"\n-1 2:2\n")
    with pytest.raises(DataError, match=r"rows.svm, line 3=") as error:
        datasets.libsvm(path)
    assert "must be 'label index:value" in str(error.value)


def test_lines_that_are_wrong_do_not_make_up_for_each_other(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 1="):
        datasets.libsvm(_written(tmp_path, b"1 1:2:3\n1 5\n"))


def test_the_line_is_counted_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "BLOCK_BYTES", 16)
    with pytest.raises(DataError, match="line 21="):
        datasets.libsvm(_written(tmp_path, b"1 1:1 2:2\n" * 20 + b"1 x:1\n"))


def test_labels_are_of_one_kind(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="this one has -1 and 0"):
        datasets.libsvm(_written(tmp_path, b"-1 1:1\n0 1:1\n"))


@pytest.mark.parametrize("text", [b"", b"\n\n", b"# nothing\n"])
def test_a_file_without_rows_is_refused(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(DataError, match="at least one row"):
        datasets.libsvm(_written(tmp_path, text))


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "BLOCK_BYTES", 10)
    monkeypatch.setattr(numbers, "LINE_BYTES", 50)
    with pytest.raises(DataError, match="lines shorter"):
        datasets.libsvm(_written(tmp_path, b"1 " + b"1:1 " * 50))


def test_arguments_that_are_wrong_are_named(path: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"path='nowhere://bucket/a9a': must be a file that can be read"):
        datasets.libsvm("nowhere://bucket/a9a")
    with pytest.raises(DataError, match=r"path=.*must be an existing file"):
        datasets.libsvm(tmp_path / "nowhere")
    with pytest.raises(DataError, match="path=3: must be the path"):
        datasets.libsvm(3)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="n_features=0"):
        datasets.libsvm(path, n_features=0)
    with pytest.raises(DataError, match=r"line 1=.*up to n_features=2"):
        datasets.libsvm(path, n_features=2)


def test_a_file_too_large_for_memory_becomes_a_stream_with_the_same_rows(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory = datasets.libsvm(path)
    monkeypatch.setattr("mlless_nb.data.libsvm.IN_MEMORY_BYTES", 1)
    stream = datasets.libsvm(path)
    assert isinstance(stream, CsrStream)
    assert stream.load().fingerprint() == in_memory.fingerprint()
    assert stream.ids_per_row == pytest.approx(in_memory.ids_per_row)


def test_adult_is_read_as_it_is_known() -> None:
    home = os.environ.get("MLLESS_DATA_HOME")
    if not home or not (Path(home) / "a9a" / "a9a").is_file():
        pytest.skip("no a9a/a9a below MLLESS_DATA_HOME: get it from the LIBSVM data sets page")
    data = datasets.libsvm(Path(home) / "a9a" / "a9a")
    assert isinstance(data, Csr)
    assert (data.n, data.shape, data.X.nnz, int(data.y.sum())) == (32_561, (123,), 451_592, 7841)


def _written(folder: Path, text: bytes) -> Path:
    path = folder / "rows.svm"
    path.write_bytes(text)
    return path
