"""Files by path, glob, zip archive and URL: the same bytes, and one line where there are none."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pytest

from mlless_nb import datasets
from mlless_nb.errors import DataError
from mlless_nb.frames.locations import located

ROWS = "user,film,stars\nu1,1,3\nu2,2,4\n", "user,film,stars\nu3,1,5\nu1,3,1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, text in enumerate(ROWS):
        (tmp_path / f"part-{number}.csv").write_text(text)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for number, text in enumerate(ROWS):
            archive.writestr(f"in/part-{number}.csv", text)
        archive.writestr("__MACOSX/part-0.csv", "junk")
    return tmp_path


def fingerprint(place: object) -> str:
    made = datasets.ratings(place, user="user", item="film", rating="stars")
    assert (made.n, made.shape) == (4, (3, 3))
    return made.fingerprint()


def test_a_glob_a_zip_archive_and_a_list_are_the_same_rows(folder: Path) -> None:
    places = [folder / "part-*.csv", str(folder / "*.csv"), folder / "all.zip", sorted(folder.glob("*.csv"))]
    assert len({fingerprint(place) for place in places}) == 1
    assert [each.name for each in located("path", folder / "all.zip")] == [
        f"{folder}/all.zip/in/part-{number}.csv" for number in range(2)
    ]


def test_the_mark_that_spreadsheets_write_is_no_part_of_the_first_column(folder: Path) -> None:
    plain = fingerprint(folder / "part-*.csv")
    for number, text in enumerate(ROWS):
        (folder / f"part-{number}.csv").write_text(text, encoding="utf-8-sig")
    assert fingerprint(folder / "part-*.csv") == plain
    (folder / "marked.csv").write_text("label,a\n1,3\n0,4\n", encoding="utf-8-sig")
    assert datasets.csv(folder / "marked.csv").y.tolist() == [1, 0]
    assert datasets.table(folder / "marked.csv", label="label").y.tolist() == [1, 0]


def test_formats_of_numbers_take_the_same_places(folder: Path) -> None:
    for number in range(2):
        pd.DataFrame({"a": [number, 2.0], "label": [0, 1]}).to_parquet(folder / f"{number}.parquet")
        pd.DataFrame({"a": [number, 2.0], "label": [0, 1]}).to_csv(folder / f"{number}.numbers", index=False)
        (folder / f"{number}.svm").write_text(f"{number} 1:2\n")
    with zipfile.ZipFile(folder / "svm.zip", "w") as archive:
        for number in range(2):
            archive.write(folder / f"{number}.svm", f"{number}.svm")
    assert datasets.parquet(folder / "*.parquet").load().X.toarray().tolist() == [[0], [1], [0.5], [1]]
    assert datasets.csv(folder / "*.numbers").load().X.toarray().tolist() == [[0], [1], [0.5], [1]]
    for place in (folder / "*.svm", folder / "svm.zip", [folder / "0.svm", folder / "1.svm"]):
        assert datasets.libsvm(place).y.tolist() == [0, 1]


def test_a_header_that_differs_is_named(folder: Path) -> None:
    (folder / "1.txt").write_text("a,label\n1,0\n")
    (folder / "2.txt").write_text("b,label\n1,0\n")
    with pytest.raises(DataError, match=r"2.txt, line 1='b,label': must be 'a,label', as in the first file"):
        datasets.csv(folder / "*.txt")


def test_a_changed_file_is_noticed(folder: Path) -> None:
    data = datasets.table(folder / "part-*.csv", label="stars")
    (folder / "part-1.csv").write_text(ROWS[1] + "u9,9,1\n")
    with pytest.raises(DataError, match="make it anew"):
        next(data.minibatches(2, None))


@pytest.fixture
def bucket(aws: Any, aws_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The host and port of an S3 server with the files in bucket "data"."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3 = aws("s3")
    s3.create_bucket(Bucket="data")
    for number, text in enumerate(ROWS):
        s3.put_object(Bucket="data", Key=f"films/part-{number}.csv", Body=text.encode())
    return aws_server.partition("://")[2]


def test_objects_of_a_storage_are_read(bucket: str, folder: Path) -> None:
    options = f"?endpoint_override={bucket}&scheme=http&region=us-east-1"
    assert fingerprint(f"s3://data/films/part-*.csv{options}") == fingerprint(folder / "*.csv")
    assert located("path", f"s3://data/films/part-0.csv{options}")[0].name == "s3://data/films/part-0.csv"
    with pytest.raises(DataError, match=r"frame='s3://data/films/none.csv': must be a URL, or a glob, of an object"):
        fingerprint(f"s3://data/films/none.csv{options}")


def test_other_storages_are_read_by_fsspec(folder: Path) -> None:
    memory = fsspec.filesystem("memory")
    for number, text in enumerate(ROWS):
        with memory.open(f"/films/part-{number}.csv", "wb") as file:
            file.write(text.encode())
    assert fingerprint("memory://films/part-*.csv") == fingerprint(folder / "*.csv")


@pytest.mark.parametrize("name", ["none.csv", "none-*.csv"])
def test_files_that_are_not_there_are_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"frame='.*none.*csv': must be an existing file, or a glob or a URL"):
        fingerprint(tmp_path / name)


def test_a_file_of_nearly_that_name_is_named(tmp_path: Path) -> None:
    (tmp_path / "recipes.csv").write_text("customer\n")
    with pytest.raises(DataError, match=r"must be an existing file, .*; is recipes.csv meant\?"):
        fingerprint(tmp_path / "recipe.csv")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "no.zip").write_text("no archive")
    with pytest.raises(DataError, match=r"no.zip': must be a zip archive"):
        fingerprint(tmp_path / "no.zip")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    with pytest.raises(DataError, match=r"empty.zip': must be a zip archive with a file in it"):
        fingerprint(tmp_path / "empty.zip")
    with pytest.raises(
        DataError, match=r"frame='nowhere://x': must be a file that can be read \(pyarrow: .*; fsspec: "
    ):
        fingerprint("nowhere://x")
    if os.geteuid():
        (tmp_path / "shut.csv").write_text("a")
        (tmp_path / "shut.csv").chmod(0)
        with pytest.raises(DataError, match="a readable file"):
            fingerprint(tmp_path / "shut.csv")
