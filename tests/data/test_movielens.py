"""MovieLens in every way its publisher writes it: found, downloaded, checked; and what is said when it is not there."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from mlless_nb import datasets
from mlless_nb.data import movielens as movielens_module
from mlless_nb.data import numbers
from mlless_nb.data.download import data_home
from mlless_nb.errors import DataError, MllessError, ServiceError

#: edition -> (folder, {file: content}); three ratings of films 10, 30, 20 by users 7, 7, 5 in each.
FILES: dict[str, tuple[str, dict[str, bytes]]] = {
    "100k": (
        "ml-100k",
        {
            "u.data": b"7\t10\t5\t1\n7\t30\t3\t2\n5\t20\t1\t3\n",
            "u.item": "10|Amélie (2001)|x\n20|B: b (1)|y\n30|C (2)|z\n".encode("latin-1"),
        },
    ),
    "1m": (
        "ml-1m",
        {
            "ratings.dat": b"7::10::5::1\n7::30::3::2\n5::20::1::3\n",
            "movies.dat": "10::Amélie (2001)::x\n20::B: b (1)::y\n30::C (2)::z\n".encode("latin-1"),
        },
    ),
    "10m": (
        "ml-10M100K",
        {
            "ratings.dat": b"7::10::5::1\n7::30::3::2\n5::20::1::3",
            "movies.dat": "10::Amélie (2001)::x\n20::B: b (1)::y\n30::C (2)::z\n".encode(),
        },
    ),
    "20m": (
        "ml-20m",
        {
            "ratings.csv": b"userId,movieId,rating,timestamp\r\n7,10,5.0,1\r\n7,30,3.0,2\r\n5,20,1.0,3\r\n",
            "movies.csv": "movieId,title,genres\r\n10,Amélie (2001),x\r\n20,B: b (1),y\r\n30,C (2),z\r\n".encode(),
        },
    ),
    "latest-small": (
        "ml-latest-small",
        {
            "ratings.csv": b"userId,movieId,rating,timestamp\n7,10,5.0,1\n7,30,3.0,2\n5,20,1.0,3\n",
            "movies.csv": 'movieId,title,genres\n10,Amélie (2001),x\n20,"B: b (1)",y\n30,C (2),z\n'.encode(),
        },
    ),
}
ALL = pytest.mark.parametrize("edition", list(FILES))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "data"
    monkeypatch.setenv("MLLESS_DATA_HOME", str(home))
    return home


def put(home: Path, edition: str) -> Path:
    folder = home / FILES[edition][0]
    folder.mkdir(parents=True)
    for name, content in FILES[edition][1].items():
        (folder / name).write_bytes(content)
    return folder


@ALL
def test_every_edition_is_read(home: Path, edition: str) -> None:
    put(home, edition)
    ratings = datasets.movielens(edition)
    assert ratings.users.tolist() == [1, 1, 0]
    assert ratings.items.tolist() == [0, 2, 1]
    assert ratings.ratings.tolist() == [5, 3, 1]
    assert ratings.shape == (2, 3)
    assert ratings.titles == ["Amélie (2001)", "B: b (1)", "C (2)"]
    assert ratings.name.startswith("MovieLens-")
    assert not ratings.is_synthetic
    train, _ = ratings.split(0.4, 0)
    assert train.titles == ratings.titles


@ALL
def test_titles_are_left_out_where_the_folder_has_none(home: Path, edition: str) -> None:
    folder = put(home, edition)
    (folder / list(FILES[edition][1])[1]).unlink()
    assert datasets.movielens(edition).titles is None


def test_a_film_without_a_title_is_named_by_its_number(home: Path) -> None:
    folder = put(home, "1m")
    (folder / "movies.dat").write_bytes(b"10::A::x\nodd line\n")
    assert datasets.movielens("1m").titles == ["A", "item 20", "item 30"]


def test_blocks_of_any_size_give_the_same_ratings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(home, "1m")
    whole = datasets.movielens("1m").fingerprint()
    monkeypatch.setattr(numbers, "BLOCK_BYTES", 5)
    assert datasets.movielens("1m").fingerprint() == whole


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file"),
        (b"7::10::5::1\n7::30::x::2\n", "ratings.dat, line 2='7::30::x::2': must be 4 numbers separated by '::'"),
        (b"7::10::5::1\n7::30::3\n", "line 2="),
        (b"7::10::5::1\n7::30::3\n5::20::1::3::4\n", "line 2="),
        (b"7::10\n", "line 1="),
        (b"7::10::6::1\n", "ratings 6..6'?: must be from 0.5 to 5"),
        (b"7::10::nan::1\n", "must be from 0.5 to 5"),
        (b"-7::10::5::1\n", "user ids -7"),
        (b"7::1.5::5::1\n", "item ids 1.5"),
        (b"7::1e12::5::1\n", "item ids 1e"),
    ],
)
def test_a_file_that_is_wrong_is_named(home: Path, content: bytes, message: str) -> None:
    (put(home, "1m") / "ratings.dat").write_bytes(content)
    with pytest.raises(DataError, match=message):
        datasets.movielens("1m")


@pytest.mark.parametrize("edition", ["2m", "", None, 1])
def test_an_edition_that_does_not_exist_is_refused(edition: object) -> None:
    with pytest.raises(DataError, match="must be one of '100k', '1m', '10m', '20m', 'latest-small'"):
        datasets.movielens(edition)  # type: ignore[arg-type]


def test_the_data_folder_is_the_users_cache_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLLESS_DATA_HOME", raising=False)
    assert data_home().name == "mlless_nb"
    monkeypatch.setenv("MLLESS_DATA_HOME", "~/sets")
    assert data_home() == Path.home() / "sets"


class QuietHandler(SimpleHTTPRequestHandler):
    """Files of a folder, without a line on stderr for each."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder served over HTTP in the publisher's place, with MovieLens-1M as a zip."""
    folder = tmp_path / "site"
    folder.mkdir()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in FILES["1m"][1].items():
            archive.writestr(f"ml-1m/{name}", content)
        archive.writestr("ml-1m/README", b"not needed")
    (folder / "ml-1m.zip").write_bytes(buffer.getvalue())
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    about = movielens_module.EDITIONS["1m"]
    archive_there = replace(
        about.archive,
        url=f"http://127.0.0.1:{server.server_port}/ml-1m.zip",
        checksum="sha256:" + hashlib.sha256(buffer.getvalue()).hexdigest(),
    )
    monkeypatch.setitem(movielens_module.EDITIONS, "1m", replace(about, archive=archive_there))
    yield folder
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_is_absent_is_downloaded_once(home: Path, site: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ratings = datasets.movielens("1m")
    assert ratings.n == 3
    assert "100%" in capfd.readouterr().err
    assert sorted(path.name for path in home.rglob("*")) == ["ml-1m", "movies.dat", "ratings.dat"]
    (site / "ml-1m.zip").unlink()
    assert datasets.movielens("1m").fingerprint() == ratings.fingerprint()


def test_an_archive_with_another_checksum_is_refused_and_nothing_is_left(home: Path, site: Path) -> None:
    path = site / "ml-1m.zip"
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(ServiceError, match="hash"):
        datasets.movielens("1m")
    assert list(home.iterdir()) == []


def test_offline_it_says_what_to_put_where(home: Path, site: Path) -> None:
    (site / "ml-1m.zip").unlink()
    with pytest.raises(MllessError) as error:
        datasets.movielens("1m")
    sentence = str(error.value)
    assert sentence.startswith(f"MovieLens-1M is not in {home / 'ml-1m'} and could not be downloaded (404")
    assert f"put its ratings.dat and movies.dat into {home / 'ml-1m'}, or set MLLESS_DATA_HOME" in sentence
    assert "\n" not in sentence
    assert list(home.iterdir()) == []


def test_a_server_that_cannot_be_reached_is_named(home: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        there = f"127.0.0.1:{unused.getsockname()[1]}"  # nobody listens
        about = movielens_module.EDITIONS["1m"]
        archive = replace(about.archive, url=f"http://{there}/ml-1m.zip")
        monkeypatch.setitem(movielens_module.EDITIONS, "1m", replace(about, archive=archive))
        with pytest.raises(ServiceError) as error:
            datasets.movielens("1m")
    assert f"could not be downloaded ({there} cannot be reached): get http://{there}/ml-1m.zip" in str(error.value)
    assert str(error.value).endswith("datasets.synthetic_ratings(...) needs no download")


def test_a_data_folder_that_cannot_be_made_is_said_so(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("MLLESS_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(ServiceError, match="could not be downloaded"):
        datasets.movielens("1m")


@pytest.mark.parametrize(("edition", "n", "shape"), [("100k", 100_000, (943, 1682)), ("1m", 1_000_209, (6040, 3706))])
def test_the_real_ones_are_of_the_known_size(edition: str, n: int, shape: tuple[int, int]) -> None:
    home = os.environ.get("MLLESS_DATA_HOME")
    about = movielens_module.EDITIONS[edition]
    if not home or not (Path(home) / about.archive.folders[0] / about.ratings).is_file():
        pytest.skip(
            f'no {about.name} below MLLESS_DATA_HOME: run `python -c "from mlless_nb import datasets; '
            f"datasets.movielens('{edition}')\"`"
        )
    ratings = datasets.movielens(edition)
    assert (ratings.n, ratings.shape) == (n, shape)
    assert np.unique(ratings.users).size == shape[0]
    assert np.unique(ratings.items).size == shape[1]
    if ratings.titles:
        assert ratings.titles[0] == "Toy Story (1995)"
