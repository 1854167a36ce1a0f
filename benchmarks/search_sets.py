"""The data on which defaults are held against a search: small and large, dense and sparse, on scales of their own.

Real data from ``MLLESS_DATA_HOME`` and scikit-learn; a set that is not at hand is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import sets
from sets import Split

from mlless_nb import datasets
from mlless_nb.data.download import data_home

#: Test rows where the publisher names none, a fraction, and the seed that draws them.
TEST, TEST_SEED = 0.2, 99


def _drawn(whole: Any, label: str, fraction: float = TEST) -> Split:
    return Split(*whole.split(fraction, TEST_SEED), label)


def ml100k() -> Split:
    """MovieLens-100K."""
    return _drawn(datasets.movielens("100k"), "MovieLens-100K (real)", 0.1)


def ml1m_shifted() -> Split:
    """MovieLens-1M with ratings of 7 to 107."""
    split = sets.ml1m()
    parts = [
        datasets.ratings(part.users, part.items, 20 * part.ratings + 7, *part.shape)
        for part in (split.train, split.held_out)
    ]
    return Split(*parts, "MovieLens-1M, ratings x 20 + 7")


def a9a() -> Split:
    """Adult, in its authors' split."""
    folder = data_home() / "a9a"
    parts = [datasets.libsvm(folder / name, n_features=123) for name in ("a9a", "a9a.t")]
    return Split(*parts, "a9a (real)")


def imdb() -> Split:
    """Word counts as they are. Test rows are drawn at random: the authors' have other films than the training rows."""
    folder = data_home() / "imdb"
    counts = scipy.sparse.load_npz(folder / "bow_counts_csr.npz").tocsr()
    with np.load(folder / "labels.npz") as file:
        y = file["y"]
    rows = np.flatnonzero(y >= 0)
    return _drawn(datasets.csr(counts[rows], y[rows]), "IMDb's reviews, word counts (real)")


def mnist(classes: int = 2) -> Split:
    """Digits modulo ``classes``: odd ones against even ones, or, with 10, each a class. Pixels of 0 to 255."""
    with np.load(data_home() / "mnist" / "mnist.npz") as file:
        parts = [
            datasets.csr(
                scipy.sparse.csr_matrix(file[f"x_{part}"].reshape(-1, 784), dtype=np.float32),
                file[f"y_{part}"] % classes,
            )
            for part in ("train", "test")
        ]
    return Split(*parts, "MNIST, odd or even (real)" if classes == 2 else "MNIST (real)")


def _of_scikit_learn(name: str, label: str, positive: Callable[[Any], Any]) -> Callable[[], Split]:
    def load() -> Split:
        from sklearn import datasets as theirs

        X, y = getattr(theirs, f"load_{name}")(return_X_y=True)
        return _drawn(datasets.csr(X, positive(y)), label)

    return load


SETS: dict[str, Callable[[], Split]] = {
    "ml100k": ml100k,
    "ml1m": sets.ml1m,
    "ml1m_shifted": ml1m_shifted,
    "a9a": a9a,
    "imdb": imdb,
    "cancer": _of_scikit_learn("breast_cancer", "breast cancer, 569 rows (scikit-learn's)", lambda y: y),
    "mnist": mnist,
    "clicks": sets.criteo,
    "iris": _of_scikit_learn("iris", "iris, versicolor or not, 150 rows (scikit-learn's)", lambda y: y == 1),
}
