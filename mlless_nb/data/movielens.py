"""MovieLens in the publisher's formats: found in the data folder or downloaded, read, with contiguous ids.

F. Maxwell Harper and Joseph A. Konstan (2015): The MovieLens Datasets: History and Context. ACM TiiS 5, 4, 19:1-19:19.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .download import Archive, data_home, fetch
from .minibatches import Float32, Int32
from .numbers import number_blocks
from .ratings import Ratings

SITE = "https://files.grouplens.org/datasets/movielens/"
#: Largest valid id; a table of all ids is made.
MOST_ID = 10_000_000
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Edition:
    """One MovieLens dataset: its files and their format.

    Attributes
    ----------
    name : str
        The name shown to users.
    archive : Archive
    ratings, titles : str
        File names in the folder.
    separator, titles_separator : bytes, str
        Separators of the columns user, item, rating, timestamp, and of an item's id and its title.
    has_header : bool
    encoding : str
        Encoding of the titles.
    """

    name: str
    archive: Archive
    ratings: str
    titles: str
    separator: bytes
    titles_separator: str
    has_header: bool
    encoding: str


def _edition(name: str, folders: tuple[str, ...], checksum: str, files: str) -> Edition:
    """An edition in one of the publisher's three formats."""
    ratings, titles, separator, titles_separator, encoding = {
        "u.data": ("u.data", "u.item", b"\t", "|", "latin-1"),
        "dat, latin-1": ("ratings.dat", "movies.dat", b"::", "::", "latin-1"),
        "dat": ("ratings.dat", "movies.dat", b"::", "::", "utf-8"),
        "csv": ("ratings.csv", "movies.csv", b",", ",", "utf-8"),
    }[files]
    archive = Archive(f"{SITE}{folders[0]}.zip", f"sha256:{checksum}", folders, (ratings,), (titles,))
    return Edition(name, archive, ratings, titles, separator, titles_separator, files == "csv", encoding)


#: Checksums (SHA-256) of the archives; "latest-small" is the edition of September 2018.
EDITIONS = {
    "100k": _edition(
        "MovieLens-100K", ("ml-100k",), "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229", "u.data"
    ),
    "1m": _edition(
        "MovieLens-1M", ("ml-1m",), "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20", "dat, latin-1"
    ),
    "10m": _edition(
        "MovieLens-10M",
        ("ml-10m", "ml-10M100K"),
        "813c411ccb6122564edfe752e7f80c4dcc5aa25fa94c93622f6877a7ba252862",
        "dat",
    ),
    "20m": _edition(
        "MovieLens-20M", ("ml-20m",), "96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3", "csv"
    ),
    "latest-small": _edition(
        "MovieLens-latest-small",
        ("ml-latest-small",),
        "696d65a3dfceac7c45750ad32df2c259311949efec81f0f144fdfb91ebc9e436",
        "csv",
    ),
}


def movielens(edition: str = "1m") -> Ratings:
    """MovieLens ratings, downloaded from the publisher if the data folder does not have them.

    Parameters
    ----------
    edition : {"100k", "1m", "10m", "20m", "latest-small"}

    Returns
    -------
    Ratings
        Ids of users and items are 0-based, in the order of the publisher's ids, without those that have no rating.
        ``titles`` is set if the folder has them.

    Raises
    ------
    DataError
        When there is no such edition, or a file is invalid.
    ServiceError
        When the data is not in the folder and cannot be downloaded; the message says which files to put where.

    Notes
    -----
    The data folder is ``MLLESS_DATA_HOME``, by default the user's cache folder. MovieLens is licensed for research, and
    must not be redistributed.
    """
    if not isinstance(edition, str) or edition not in EDITIONS:
        raise DataError("movielens", edition, "one of " + ", ".join(repr(name) for name in EDITIONS))
    about = EDITIONS[edition]
    folder = fetch(about.archive, data_home(), about.name)
    path = folder / about.ratings
    blocks = [
        (_ids(block[:, 0], path, "user"), _ids(block[:, 1], path, "item"), _stars(block[:, 2], path))
        for block in number_blocks(path, about.separator, 3, skip_lines=int(about.has_header))
    ]
    users, _ = _contiguous(np.concatenate([block[0] for block in blocks]))
    items, item_ids = _contiguous(np.concatenate([block[1] for block in blocks]))
    ratings = np.concatenate([block[2] for block in blocks])
    shape = (int(users.max()) + 1, len(item_ids))
    return Ratings(users, items, ratings, shape, about.name, titles=_titles(folder / about.titles, about, item_ids))


def _ids(ids: Float64, path: Path, what: str) -> Int32:
    """``ids`` as int32, checked."""
    if not bool(((ids == np.floor(ids)) & (ids >= 0) & (ids <= MOST_ID)).all()):
        raise DataError(str(path), f"{what} ids {ids.min():g}..{ids.max():g}", f"whole numbers from 0 to {MOST_ID:,}")
    return ids.astype(np.int32)


def _stars(ratings: Float64, path: Path) -> Float32:
    """``ratings`` as float32, checked."""
    if not bool(((ratings >= 0.5) & (ratings <= 5)).all()):
        raise DataError(str(path), f"ratings {ratings.min():g}..{ratings.max():g}", "from 0.5 to 5")
    return ratings.astype(np.float32)


def _contiguous(ids: Int32) -> tuple[Int32, NDArray[np.int64]]:
    """(0-based ids by rank, the original ids in that order)."""
    is_there = np.zeros(int(ids.max()) + 1, bool)
    is_there[ids] = True
    rank = np.cumsum(is_there, dtype=np.int32) - np.int32(1)
    return rank[ids], np.flatnonzero(is_there)


def _titles(path: Path, about: Edition, item_ids: NDArray[np.int64]) -> list[str] | None:
    """A title for each item, in the order of ``item_ids``; None if the folder has no titles."""
    if not path.is_file():
        return None
    titles: dict[str, str] = {}
    with path.open(encoding=about.encoding, errors="replace", newline="") as lines:
        if about.has_header:
            next(lines, None)
            rows = csv.reader(lines)
        else:
            rows = (line.rstrip("\r\n").split(about.titles_separator) for line in lines)  # type: ignore[assignment]
        for row in rows:
            if len(row) >= 2:
                titles[row[0]] = row[1]
    return [titles.get(str(item), f"item {item}") for item in item_ids.tolist()]
