"""Criteo files: both ways in which they are written, scaling, hashing, blanks; streamed and shuffled."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pytest
from entries import matrix_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlless_nb import datasets
from mlless_nb.data import numbers, stream
from mlless_nb.data.minibatches import CsrMinibatch
from mlless_nb.data.prepare import pack
from mlless_nb.data.stream import CsrStream
from mlless_nb.errors import DataError, ServiceError
from mlless_nb.storage.objects import MemoryObjects

HEADER = ["Id", "Label", *(f"I{k}" for k in range(1, 14)), *(f"C{k}" for k in range(1, 27))]


def line(label: int, numbers: list[object], categories: list[str], separator: str = "\t") -> str:
    return separator.join([str(label), *map(str, numbers), *categories]) + "\n"


def log_of(n: int, seed: int = 0, separator: str = "\t") -> str:
    """``n`` lines of numbers and categories, some blank."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(n):
        values: list[object] = ["" if rng.random() < 0.2 else int(rng.integers(-2, 50)) for _ in range(13)]
        words = ["" if rng.random() < 0.1 else f"{rng.integers(2**20):08x}" for _ in range(26)]
        lines.append(line(int(rng.random() < 0.25), values, words, separator))
    return "".join(lines)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "train.txt"
    path.write_text(log_of(300))
    return path


def test_numbers_are_scaled_and_categories_hashed(tmp_path: Path) -> None:
    path = tmp_path / "three.txt"
    words = [f"word{k}" for k in range(26)]
    path.write_text(
        line(1, [0, -1, 5, "", *[7] * 9], words)
        + line(0, [10, 3, "", "", *[7] * 9], words)
        + line(0, [4, 1, 9, "", *[7] * 9], ["", *words[1:]])
    )
    data = datasets.criteo(path, n_features=1000).load()
    assert data.shape == (1013,)
    numeric = data.X[:, :13].toarray()
    np.testing.assert_allclose(numeric[:, 0], [0, 1, 0.4])
    np.testing.assert_allclose(numeric[:, 1], [0, 1, 0.5])
    np.testing.assert_allclose(numeric[:, 2], [0, 0, 1])
    assert not numeric[:, 3:].any()  # blank in every row; the same in every row
    expected = np.zeros((3, 1000))
    for row, categories in enumerate([words, words, ["", *words[1:]]]):
        for column, word in enumerate(categories):
            expected[row, mmh3.hash(word.encode(), column, signed=False) % 1000] += 1
    np.testing.assert_array_equal(data.X[:, 13:].toarray(), expected)
    assert data.y.tolist() == [1, 0, 0]


def test_hashes_are_those_of_murmur3_everywhere() -> None:
    """Known values of MurmurHash3 x86 32: a hash that changed would silently unlearn every model."""
    assert mmh3.hash(b"", 0, signed=False) == 0
    assert mmh3.hash(b"", 1, signed=False) == 0x514E28B7
    assert mmh3.hash(b"test", 0, signed=False) == 0xBA6BD213


def test_csv_with_a_header_in_any_order_reads_the_same(path: Path, tmp_path: Path) -> None:
    rows = [text.split("\t") for text in path.read_text().splitlines()]
    columns = [*reversed(HEADER)]
    with (tmp_path / "train.csv").open("w") as file:
        file.write(",".join(columns) + "\r\n")
        for number, row in enumerate(rows):
            by_name = dict(zip(HEADER, [str(number), *row], strict=True))
            file.write(",".join(by_name[column] for column in columns) + "\r\n")
    one, other = datasets.criteo(path, 500).load(), datasets.criteo(tmp_path / "train.csv", 500).load()
    assert one.fingerprint() == other.fingerprint()


def test_blocks_of_any_size_give_the_same_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = datasets.criteo(path, 500).load().fingerprint()
    for n_bytes in (100, 1000):
        monkeypatch.setattr(numbers, "BLOCK_BYTES", n_bytes)
        assert datasets.criteo(path, 500).load().fingerprint() == whole


def test_the_same_lines_under_another_header_are_other_data(path: Path, tmp_path: Path) -> None:
    names = HEADER[1:]
    digests = set()
    for header in (names, [names[0], names[2], names[1], *names[3:]]):
        other = tmp_path / "other.tsv"
        other.write_text("\t".join(header) + "\n" + path.read_text())
        digests.add(datasets.criteo(other).fingerprint())
    assert len(digests) == 2


def test_blank_lines_are_passed_over_and_block_borders_leave_no_trace(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = datasets.criteo(path)
    spaced = tmp_path / "spaced.txt"
    spaced.write_text("\n" * 300 + path.read_text() + "\n" * 300)
    monkeypatch.setattr(numbers, "BLOCK_BYTES", 100)
    data = datasets.criteo(path)
    assert data.fingerprint() == expected.fingerprint()
    with pytest.raises(DataError, match="line 1="):
        datasets.criteo(spaced)  # the first line says what the columns are
    spaced.write_text(path.read_text() + "\n" * 300)
    data = datasets.criteo(spaced)
    assert data.n == expected.n
    assert data.fingerprint() == expected.fingerprint()


def row_keys(minibatches: list[CsrMinibatch]) -> list[tuple[Any, ...]]:
    keys = []
    for minibatch in minibatches:
        X = matrix_of(minibatch, int(minibatch.ids[-1]) + 1)
        for row, label in enumerate(minibatch.labels.tolist()):
            at = slice(X.indptr[row], X.indptr[row + 1])
            keys.append((label, X.indices[at].tobytes(), X.data[at].tobytes()))
    return keys


@pytest.mark.parametrize("seed", [None, 0, 5])
def test_minibatches_hold_every_row_once_whether_or_not_memory_suffices(
    path: Path, seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = datasets.criteo(path, 500)
    in_memory = list(data.minibatches(64, seed))
    monkeypatch.setattr(stream, "PART_BYTES", 10_000)
    monkeypatch.setattr(numbers, "BLOCK_BYTES", 5_000)
    streamed = list(data.minibatches(64, seed))
    for minibatches in (in_memory, streamed):
        assert [minibatch.n for minibatch in minibatches] == [64, 64, 64, 64, 44]
    stored = row_keys(list(data.load().minibatches(300, None)))
    assert sorted(row_keys(streamed)) == sorted(stored)
    assert (row_keys(streamed) == stored) == (seed is None)
    assert row_keys(streamed) == row_keys(list(data.minibatches(64, seed)))


def test_shuffling_through_files_favours_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over many seeds, each row is as often first as any other."""
    (tmp_path / "few.txt").write_text("".join(line(row % 2, [row] * 13, ["x"] * 26) for row in range(8)))
    data = datasets.criteo(tmp_path / "few.txt", 10)
    monkeypatch.setattr(stream, "PART_BYTES", 700)
    keys = row_keys(list(data.minibatches(8, None)))
    firsts = [keys.index(row_keys([next(data.minibatches(1, seed))])[0]) for seed in range(800)]
    np.testing.assert_allclose(np.bincount(firsts, minlength=8) / 800, 1 / 8, atol=0.05)


def test_no_temporary_file_has_a_name(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(stream.tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(stream, "PART_BYTES", 10_000)
    minibatches = datasets.criteo(path, 500).minibatches(64, 0)
    next(minibatches)
    assert list(scratch.iterdir()) == []
    assert len(list(minibatches)) == 4


def test_too_little_room_for_temporary_files_is_said_before_any_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PART_BYTES", 10_000)
    monkeypatch.setattr(stream.shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(100, 100, 0))
    with pytest.raises(ServiceError, match="set TMPDIR to a folder with room"):
        next(datasets.criteo(path, 500).minibatches(64, 0))


@given(first=st.floats(0.05, 0.9), second=st.floats(0.05, 0.9), seed=st.integers(0, 100))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
def test_splits_of_splits_lose_nothing(path: Path, first: float, second: float, seed: int) -> None:
    data = datasets.criteo(path, 500)
    train, test = data.split(first, seed)
    train, validation = train.split(second, seed)
    parts = [row_keys(list(part.minibatches(50, None))) for part in (train, validation, test)]
    assert [len(part) for part in parts] == [train.n, validation.n, test.n]
    assert sorted(key for part in parts for key in part) == sorted(row_keys(list(data.minibatches(50, None))))


def test_a_stream_is_packed_once(path: Path) -> None:
    train, validation = datasets.criteo(path, 500).split(0.1, 0)
    objects = MemoryObjects()
    manifest = pack(train, 64, 0, objects)
    held = pack(validation, 64, None, objects)
    assert (manifest.n, held.n, manifest.shape, manifest.kind) == (270, 30, (513,), "csr")
    puts = objects.puts
    again, _ = datasets.criteo(path, 500).split(0.1, 0)
    assert pack(again, 64, 0, objects) == manifest
    assert objects.puts == puts
    assert pack(datasets.criteo(path, 400).split(0.1, 0)[0], 64, 0, objects).key != manifest.key
    assert pack(datasets.criteo(path, 500).split(0.1, 1)[0], 64, 0, objects).key != manifest.key


def test_a_file_that_changed_since_is_refused(path: Path) -> None:
    data = datasets.criteo(path, 500)
    path.write_text(log_of(301))
    with pytest.raises(DataError, match="make it anew"):
        next(data.minibatches(64, None))
    path.unlink()
    with pytest.raises(DataError, match="make it anew"):
        data.load()


@pytest.mark.parametrize(
    "bad",
    [
        line(2, [1] * 13, ["a"] * 26),
        line(0, [1] * 12, ["a"] * 26),
        line(0, [1] * 13, ["a"] * 27),
        line(0, ["x", *[1] * 12], ["a"] * 26),
        line(0, ["1 2", *[1] * 12], ["a"] * 26),
        line(0, ["inf", *[1] * 12], ["a"] * 26),
        "half a line\n",
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "train.txt"
    path.write_text(log_of(4) + bad + log_of(3))
    with pytest.raises(DataError, match=r"train.txt, line 5=.*must be 40 columns"):
        datasets.criteo(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1=''"),
        ("a,b,c\n1,2,3\n", "line 1=.*must be a header with Label"),
        (",".join(HEADER[:-1]) + "\n", "header=.*must be with a column C26"),
        (",".join(["Id", *HEADER[2:]]) + "\n", "header=.*must be with a column Label"),
        (",".join(HEADER) + "\n", "at least one row"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "train.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        datasets.criteo(path)


def test_arguments_that_are_wrong_are_named(path: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"path=.*must be an existing file"):
        datasets.criteo(tmp_path / "nowhere")
    for n_features in (0, 2**31, 1.5):
        with pytest.raises(DataError, match="n_features="):
            datasets.criteo(path, n_features)  # type: ignore[arg-type]


def test_the_published_sample_is_read() -> None:
    home = os.environ.get("MLLESS_DATA_HOME")
    if not home or not (Path(home) / "criteo-tiny" / "train.tiny.csv").is_file():
        pytest.skip("no criteo-tiny/train.tiny.csv below MLLESS_DATA_HOME")
    data = datasets.criteo(Path(home) / "criteo-tiny" / "train.tiny.csv")
    assert isinstance(data, CsrStream)
    assert (data.n, data.shape) == (1999, (100_013,))
    rows = data.load()
    assert 0.15 < rows.y.mean() < 0.3
    assert rows.X[:, :13].max() == 1
