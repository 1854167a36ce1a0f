"""The data of the benchmarks: real MovieLens-1M, and generated sets whose shape is that of data we may not ship.

Generated sets are made once and kept in the user's cache folder. A folder of ready-made ones may be named by
``--sets`` or the environment's ``MLLESS_BENCH_SETS``: ``criteo.npz`` with idx (n, 39), val, y and tidx, tval, ty (held
out) and F, the number of features; ``syn10m.npz`` with u, i, y and tu, ti, ty (held out), U users and I items.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import scipy.sparse
from numpy.typing import NDArray

from mlless_nb import MllessError, datasets
from mlless_nb.data.csr import Csr
from mlless_nb.data.download import data_home
from mlless_nb.data.ratings import Ratings

#: Held-out rows of the generated sets, a fraction.
HELD_OUT = 0.1
CLICKS, CLICKS_HELD_OUT = 200_000, 20_000
N_NUMERIC, N_BUCKETS = 13, 100_000
#: Distinct values of the 26 categories: from a handful to a quarter of a million.
CATEGORIES = tuple(round(count) for count in np.geomspace(4, 225_000, 26))


@dataclass(frozen=True)
class Split:
    """Training and held-out rows.

    Attributes
    ----------
    train, held_out : Ratings or Csr
    label : str
        What it is, with "real" or "generated" in it.
    """

    train: Any
    held_out: Any
    label: str


def folder_of_sets(chosen: str | None = None) -> Path | None:
    """The folder of ready-made sets, if one was named."""
    named = chosen or os.environ.get("MLLESS_BENCH_SETS")
    return Path(named).expanduser() if named else None


def ml1m() -> Split:
    """MovieLens-1M in the split of the literature (900,000 and 100,203 ratings), else split here, else generated."""
    path = data_home() / "ml-1m" / "split_900k_100k.npz"
    if path.is_file():
        with np.load(path) as file:
            train, held_out = (file[name].astype(np.int32) for name in ("train_vec", "probe_vec"))
        shape = (max(train[:, 0].max(), held_out[:, 0].max()), max(train[:, 1].max(), held_out[:, 1].max()))
        parts = [
            _ratings(part[:, 0] - 1, part[:, 1] - 1, part[:, 2], shape, "MovieLens-1M") for part in (train, held_out)
        ]
        return Split(*parts, "MovieLens-1M (real; 900,000 + 100,203 ratings, the split used in the literature)")
    try:
        whole = datasets.movielens("1m")
        label = "MovieLens-1M (real; a random tenth held out)"
    except MllessError:
        whole = _cached_ratings("gen1m", 6_040, 3_706, 1_000_209)
        label = "MovieLens-1M shape (generated)"
    return Split(*whole.split(HELD_OUT, 0), label)


def syn10m(folder: Path | None = None) -> Split:
    """Ratings of MovieLens-10M's shape, 69,878 users x 10,681 items, 10,000,054 ratings, a tenth held out."""
    label = "MovieLens-10M shape (generated)"
    if folder is not None and (folder / "syn10m.npz").is_file():
        with np.load(folder / "syn10m.npz") as file:
            shape = (int(file["U"]), int(file["I"]))
            parts = [
                _ratings(*(file[prefix + name] for name in "uiy"), shape, "MovieLens-10M shape", is_synthetic=True)
                for prefix in ("", "t")
            ]
        return Split(*parts, label)
    return Split(*_cached_ratings("gen10m", 69_878, 10_681, 10_000_054).split(HELD_OUT, 0), label)


def criteo(folder: Path | None = None) -> Split:
    """Click-log rows of Criteo's shape: 39 non-zeros each (13 numbers, 26 hashed categories), 100,013 features."""
    label = f"Criteo shape (generated; {CLICKS:,} + {CLICKS_HELD_OUT:,} rows x 39 non-zeros)"
    ready = folder / "criteo.npz" if folder is not None else None
    path = ready if ready is not None and ready.is_file() else _cached("clicks", make_clicks)
    with np.load(path) as file:
        n_features = int(file["F"])
        parts = [
            _clicks(file[prefix + "idx"], file[prefix + "val"], file[prefix + "y"], n_features) for prefix in ("", "t")
        ]
    return Split(*parts, label)


def imdb() -> Split:
    """Film reviews as word counts, halved as their authors did; logarithms of the counts, rows of length 1.

    Generated rows of Criteo's shape stand in where the counts are not at hand.
    """
    folder = data_home() / "imdb"
    if not (folder / "bow_counts_csr.npz").is_file():
        return criteo()
    counts = scipy.sparse.csr_array(scipy.sparse.load_npz(folder / "bow_counts_csr.npz")).astype(np.float32)
    counts.data = np.log1p(counts.data)
    lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(1)).ravel())
    counts.data /= np.repeat(np.maximum(lengths, 1e-9), np.diff(counts.indptr)).astype(np.float32)
    with np.load(folder / "labels.npz") as file:
        y, split = file["y"], file["split"]
    parts = []
    for half in (0, 1):
        rows = np.flatnonzero((split == half) & (y >= 0))
        parts.append(Csr(scipy.sparse.csr_array(counts[rows]), y[rows].astype(np.float32), "IMDb reviews"))
    return Split(*parts, "IMDb reviews (real; 25,000 + 25,000 rows, 49,170 words)")


def named(name: str, folder: Path | None = None) -> Split:
    """The set called ml1m, syn10m, criteo or imdb."""
    if name in ("ml1m", "imdb"):
        return {"ml1m": ml1m, "imdb": imdb}[name]()
    return {"syn10m": syn10m, "criteo": criteo}[name](folder)


def make_clicks() -> dict[str, Any]:
    """Rows with planted logistic weights; a third of the labels are 1, frequent values carry most of the signal."""
    rng = np.random.default_rng(5)
    n = CLICKS + CLICKS_HELD_OUT
    numbers = np.minimum(rng.gamma(0.5, 1.0, (n, N_NUMERIC)) / 8, 1)
    score = numbers @ rng.normal(0, 1.5, N_NUMERIC)
    index = np.empty((n, N_NUMERIC + len(CATEGORIES)), np.int32)
    index[:, :N_NUMERIC] = np.arange(N_NUMERIC)
    for field, count in enumerate(CATEGORIES):
        # A power law by the inverse of its distribution function; every value has a weight and, hashed, a bucket.
        popularity = np.cumsum((np.arange(count) + 3.0) ** -1.15)
        value = np.searchsorted(popularity, rng.random(n) * popularity[-1]).clip(max=count - 1)
        score += rng.normal(0, 0.355, count)[value]
        index[:, N_NUMERIC + field] = N_NUMERIC + rng.integers(0, N_BUCKETS, count)[value]
    score -= np.quantile(score, 0.75) - 0.1
    values = np.ones(index.shape, np.float32)
    values[:, :N_NUMERIC] = numbers
    y = (rng.random(n) < 1 / (1 + np.exp(-score))).astype(np.float32)
    kept, held = slice(0, CLICKS), slice(CLICKS, n)
    return {
        "idx": index[kept],
        "val": values[kept],
        "y": y[kept],
        "tidx": index[held],
        "tval": values[held],
        "ty": y[held],
        "F": N_NUMERIC + N_BUCKETS,
    }


def _ratings(
    users: NDArray[Any],
    items: NDArray[Any],
    stars: NDArray[Any],
    shape: tuple[int, int],
    name: str,
    *,
    is_synthetic: bool = False,
) -> Ratings:
    arrays = [np.ascontiguousarray(users, np.int32), np.ascontiguousarray(items, np.int32)]
    shape = (int(shape[0]), int(shape[1]))
    return Ratings(*arrays, np.ascontiguousarray(stars, np.float32), shape, name, is_synthetic=is_synthetic)


def _clicks(index: NDArray[Any], value: NDArray[Any], y: NDArray[Any], n_features: int) -> Csr:
    n, n_fields = index.shape
    ends = np.arange(0, n * n_fields + 1, n_fields, dtype=np.int32)
    X = scipy.sparse.csr_array((value.ravel(), index.ravel(), ends), shape=(n, n_features))
    X.sum_duplicates()
    return Csr(X, y.astype(np.float32), "Criteo shape", is_synthetic=True)


def _cached_ratings(name: str, n_users: int, n_items: int, n: int) -> Ratings:
    def make() -> dict[str, Any]:
        whole = datasets.synthetic_ratings(n_users, n_items, n, seed=3)
        return {"u": whole.users, "i": whole.items, "y": whole.ratings}

    with np.load(_cached(name, make)) as file:
        return _ratings(file["u"], file["i"], file["y"], (n_users, n_items), "generated ratings", is_synthetic=True)


def _cached(name: str, make: Callable[[], dict[str, Any]]) -> Path:
    """The file of generated set ``name`` in the user's cache folder, made where it is not there."""
    folder = platformdirs.user_cache_path("mlless_nb") / "benchmarks"
    path = folder / f"{name}.npz"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".npz", delete=False) as draft:
            np.savez(draft, **make())
        os.replace(draft.name, path)
    return path
