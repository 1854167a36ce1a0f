"""Files that functions prepare are packed bit for bit as one file that is read here, for any number of functions."""

from __future__ import annotations

import itertools
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from preparation.in_process import FOLDER, InProcess, written

from mlless_nb import datasets
from mlless_nb.data import numbers, spans, stream
from mlless_nb.data import prepare as local
from mlless_nb.data.csr import Csr
from mlless_nb.data.dataset import Dataset
from mlless_nb.data.prepare import Manifest
from mlless_nb.errors import DataError
from mlless_nb.job import column_sums, defaults
from mlless_nb.job.defaults import _squared_length
from mlless_nb.job.units import ColumnUnits
from mlless_nb.preparation import prepare, stages
from mlless_nb.storage.objects import MemoryObjects

RNG = np.random.default_rng(3)


def svm_line(end: str = "\n") -> str:
    ids = np.sort(RNG.choice(40, RNG.integers(0, 9), replace=False)) + 1
    values = [f"{k}:{RNG.choice([1, 2, 0.25, -3.5])}" for k in ids]
    return " ".join([str(RNG.choice(["+1", "-1"])), *values]) + end


def criteo_line(end: str = "\n") -> str:
    numbers = ["" if RNG.random() < 0.2 else str(RNG.integers(-2, 50)) for _ in range(13)]
    words = ["" if RNG.random() < 0.1 else f"{RNG.integers(2**20):08x}" for _ in range(26)]
    return "\t".join([str(RNG.integers(2)), *numbers, *words]) + end


def csv_line(end: str = "\n") -> str:
    values = ["" if RNG.random() < 0.2 else f"{RNG.normal():.3f}" for _ in range(5)]
    return ",".join([*values[:2], f"{RNG.normal():.2f}", *values[2:]]) + end


def texts_of(line: Any, n: int, header: str = "") -> list[bytes]:
    """Three files: with blank lines, with CRLF, and without a line end at the end."""
    first = "".join(line() + ("\n" if k % 7 == 0 else "") for k in range(n))
    second = "".join(line("\r\n") for _ in range(n // 3))
    third = "".join(line() for _ in range(n // 2)).rstrip("\n")
    return [(header + text).encode() for text in (first, second, third)]


CSV_HEADER = "x1,x2,label,x3,x4,x5\n"
TEXTS = {
    "libsvm": texts_of(svm_line, 90),
    "criteo": texts_of(criteo_line, 60),
    "csv": texts_of(csv_line, 90, CSV_HEADER),
}
MORE: dict[str, dict[str, Any]] = {"libsvm": {}, "criteo": {"n_features": 500}, "csv": {}}
READ: dict[str, Any] = {
    "libsvm": datasets.libsvm,
    "criteo": lambda path: datasets.criteo(path, 500),
    "csv": datasets.csv,
}
FORMATS = list(TEXTS)


def check_equal(stored: InProcess, rows: Dataset, here: Dataset, size: int, seed: int | None) -> Manifest:
    """Check that ``rows`` are packed as the very bytes of ``here``, which only has another name and digest."""
    here.name, vars(here)["_fingerprint"] = rows.name, rows.fingerprint()
    objects = MemoryObjects()
    manifest = local.write(here, size, seed, objects)
    assert {key: stored.objects.blobs.get(key) for key in objects.blobs} == objects.blobs
    assert local.packed(rows, size, seed, stored.objects) == manifest
    return manifest


@pytest.mark.parametrize("functions", [1, 2, 3, 7])
@pytest.mark.parametrize("format", FORMATS)
def test_minibatches_are_those_of_one_local_file(format: str, functions: int, tmp_path: Path) -> None:
    stored = InProcess(TEXTS[format])
    rows, here = stored.scanned(format, functions, **MORE[format]), READ[format](written(tmp_path, TEXTS[format]))
    assert (rows.n, rows.shape) == (here.n, here.shape)
    np.testing.assert_array_equal(rows.y, here.y)
    assert rows.n_values == (here.X.nnz if isinstance(here, Csr) else here.n_values)
    parts, parts_here = rows.split(0.2, 5), here.split(0.2, 5)
    units, units_here = ColumnUnits.of(parts[0]), ColumnUnits.of(parts_here[0])
    np.testing.assert_array_equal(units.scale, units_here.scale)
    parts, parts_here = tuple(map(units.apply, parts)), tuple(map(units_here.apply, parts_here))
    manifests = stored.pack([(parts[0], 11), (parts[1], None)], 16)
    expected = [
        check_equal(stored, part, part_here, 16, seed)
        for part, part_here, seed in zip(parts, parts_here, (11, None), strict=True)
    ]
    assert list(manifests.values()) == expected
    assert not stored.objects.list(FOLDER)
    assert [n for stage, n in stored.n_called if stage == "scan"] == [functions]


@pytest.mark.parametrize("format", FORMATS)
def test_many_bundles_pieces_and_parts_give_the_same(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "BUNDLE_BYTES", 1500)
    monkeypatch.setattr(stages, "PIECE_BYTES", 2000)
    monkeypatch.setattr(prepare, "LOT_BYTES", 4000)
    monkeypatch.setattr(stream, "PART_BYTES", 4000)
    stored = InProcess(TEXTS[format])
    rows, here = stored.scanned(format, 4, **MORE[format]), READ[format](written(tmp_path, TEXTS[format]))
    [manifest] = stored.pack([(rows, 3)], 16).values()
    assert len(manifest.bundles) > 3
    assert check_equal(stored, rows, here, 16, 3) == manifest
    assert rows.n_parts == 1 or format != "libsvm"


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("functions", [1, 7])
def test_tiny_files(format: str, functions: int, tmp_path: Path) -> None:
    line = {"libsvm": svm_line, "criteo": criteo_line, "csv": csv_line}[format]
    header = CSV_HEADER if format == "csv" else ""
    texts = [(header + line("")).encode(), (header + "\n" + line() + "\n\n").encode()]
    stored = InProcess(texts)
    rows = stored.scanned(format, functions, **MORE[format])
    [manifest] = stored.pack([(rows, 0)], 100).values()
    assert check_equal(stored, rows, READ[format](written(tmp_path, texts)), 100, 0) == manifest


@pytest.mark.parametrize("most", [40, 10**6])
@pytest.mark.parametrize("format", FORMATS)
def test_columns_have_the_scale_of_local_data_in_blocks_of_any_size(
    format: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (spans, numbers):
        monkeypatch.setattr(module, "BLOCK_BYTES", 700)
    monkeypatch.setattr(column_sums, "STREAM_ROWS", most)
    monkeypatch.setattr(defaults, "SAMPLE_ROWS", most)
    rows = InProcess(TEXTS[format]).scanned(format, 3, **MORE[format]).split(0.2, 5)[0]
    here = READ[format](written(tmp_path, TEXTS[format])).split(0.2, 5)[0]
    units, units_here = ColumnUnits.of(rows), ColumnUnits.of(here)
    np.testing.assert_array_equal(units.scale, units_here.scale)
    np.testing.assert_array_equal(units.shift, units_here.shift)
    assert (units.scale != 1).any()
    # What is not changed, too: a learning rate follows from it, to three digits.
    length, length_here = (_squared_length(units.apply(each)) for each in (rows, here))
    assert length == pytest.approx(length_here, rel=1e-6)
    assert _squared_length(rows) == pytest.approx(_squared_length(here), rel=1e-6)


@pytest.mark.parametrize("functions", [1, 7])
@pytest.mark.parametrize("format", FORMATS)
def test_the_mark_that_spreadsheets_write_is_no_part_of_a_file(format: str, functions: int, tmp_path: Path) -> None:
    stored = InProcess([BOM_UTF8 + text for text in TEXTS[format]])
    rows = stored.scanned(format, functions, **MORE[format])
    [manifest] = stored.pack([(rows, 3)], 16).values()
    assert check_equal(stored, rows, READ[format](written(tmp_path, TEXTS[format])), 16, 3) == manifest


def test_the_content_s_key_does_not_depend_on_the_functions() -> None:
    found = {InProcess(TEXTS["libsvm"]).scanned("libsvm", n).fingerprint() for n in (1, 2, 3, 7, 50)}
    assert len(found) == 1
    other = [TEXTS["libsvm"][0].replace(b"+1", b"-1", 1), *TEXTS["libsvm"][1:]]
    assert InProcess(other).scanned("libsvm", 2).fingerprint() not in found


@pytest.mark.parametrize("functions", [1, 2, 7])
@pytest.mark.parametrize("format", FORMATS)
def test_a_bad_line_is_named_with_its_object_and_number(format: str, functions: int) -> None:
    for number, at in itertools.product((1, 2), (2, 15)):
        texts = list(TEXTS[format])
        lines = texts[number].split(b"\n")
        lines[at:at] = [b"", b"what is this"]
        texts[number] = b"\n".join(lines)
        with pytest.raises(DataError, match=rf"bucket/data/part-0000{number}, line {at + 2}='what is this'"):
            InProcess(texts).scanned(format, functions, **MORE[format])


@pytest.mark.parametrize("text", [b"", b"\n\n", b"\r\n" * 9, BOM_UTF8, BOM_UTF8 + b"\n"])
def test_a_file_without_rows_is_named(text: bytes) -> None:
    with pytest.raises(DataError, match=r"bucket/data/part-00001='.*': must be a file with at least one row"):
        InProcess([TEXTS["libsvm"][0], text]).scanned("libsvm")


def test_no_object_has_the_prefix() -> None:
    with pytest.raises(DataError, match="prefix='bucket/data/': must be the begin of some object's key"):
        InProcess([]).scanned("libsvm")


def test_objects_that_mark_a_job_s_end_are_left_out() -> None:
    stored = InProcess(TEXTS["libsvm"])
    n = stored.scanned("libsvm").n
    stored.files.put("data/_SUCCESS", b"")
    stored.files.put("data/.crc", b"not rows")
    assert stored.scanned("libsvm").n == n


def test_labels_of_two_kinds_in_two_files() -> None:
    with pytest.raises(DataError, match="labels 0 and 1, or -1 and 1; this one has -1 and 0"):
        InProcess([b"-1 1:1\n" * 9, b"0 1:1\n" * 9]).scanned("libsvm", 2)


def test_files_with_other_headers() -> None:
    with pytest.raises(
        DataError, match=r"bucket/data/part-00001, line 1='x2,x1,label'.*'x1,x2,label', as in the first"
    ):
        InProcess([b"x1,x2,label\n1,2,3\n", b"x2,x1,label\n1,2,3\n"]).scanned("csv", 2)


def test_a_file_that_changes_meanwhile_is_noticed() -> None:
    stored = InProcess(TEXTS["libsvm"])
    rows = stored.scanned("libsvm", 2)
    stored.files.put("data/part-00000", TEXTS["libsvm"][0].replace(b"+1", b"-1", 1))
    with pytest.raises(Exception, match="changed while"):
        stored.pack([(rows, 1)], 16)
