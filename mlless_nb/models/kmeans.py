"""k-means over sparse or dense rows, and its fitted form. It is trained by expectation maximisation, without labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..kernels import rows_product
from ..plurals import count
from ..validation import check_choice, check_positive_integer, specification
from . import exports
from .base import Model, check_width, register_model
from .fitted import FittedModel
from .kmeans_start import first_centers
from .tables import entries_of, features_of, padded_width, rows_with_last

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]

#: Distances that are in memory at a time.
MOST_DISTANCES = 1 << 21


class KMeansModel(FittedModel):
    """A fitted k-means.

    Attributes
    ----------
    params : dict
        centers (k, n_features), counts (k,): the rows of each cluster in the last pass; float32.
    """

    kind: ClassVar[str] = "k-means"

    def __init__(self, params: dict[str, NDArray[Any]]) -> None:
        centers, counts = params["centers"], params["counts"]
        if centers.ndim != 2 or counts.shape != centers.shape[:1]:
            raise ValueError(f"centers and counts have shapes {centers.shape}, {counts.shape}: must be (k, n), (k,)")
        self.params: dict[str, NDArray[Any]] = {
            "centers": np.asarray(centers, np.float32),
            "counts": np.asarray(counts, np.float32),
        }

    @property
    def cluster_centers_(self) -> Float32:
        """The centroids, float32 (k, n_features)."""
        centers: Float32 = self.params["centers"]
        return centers

    @property
    def shape(self) -> tuple[int, ...]:
        """(n_features,)."""
        return self.params["centers"].shape[1:]

    def transform(self, X: Any) -> Float64:
        """Squared distances of the rows of X, scipy sparse or array (n, n_features), to the centroids; float64 (n, k).

        ValueError when X has another number of columns.
        """
        centers = self.cluster_centers_.astype(np.float64)
        rows = features_of(self.features(X), centers.shape[1])
        lengths = np.asarray(rows.multiply(rows).sum(1)).reshape(-1, 1)
        squares: Float64 = lengths - 2.0 * np.asarray(rows @ centers.T) + np.square(centers).sum(1)
        return np.maximum(squares, 0.0)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The cluster of each row, the one with the nearest centroid; int64 (n,)."""
        nearest: NDArray[np.int64] = self.transform(X).argmin(1)
        return nearest

    def inertia(self, X: Any) -> float:
        """Sum of the squared distances of the rows of X to their nearest centroids."""
        return float(self.transform(X).min(1).sum())

    def to_sklearn(self) -> Any:
        """A fitted ``KMeans`` of scikit-learn, for rows of features; see `FittedModel`."""
        return exports.sklearn_kmeans(self.params["centers"])

    def evaluate(self, data: Any) -> dict[str, float]:
        """Inertia, and the mean squared distance to the nearest centroid, of a dataset's rows; see `FittedModel`."""
        _, squares = self.predicted(data, lambda X: self.transform(X).min(1), needs_labels=False)
        return {"mean squared distance": float(squares.mean()), "inertia": float(squares.sum())}

    def __repr__(self) -> str:
        k, n_features = self.params["centers"].shape
        return f"<KMeansModel {count(k, 'cluster')}, {count(n_features, 'feature')}>"


@register_model
@specification
@dataclass(frozen=True)
class KMeans(Model):
    """k-means: k centroids that minimise the mean squared distance of the rows to the nearest one.

    Labels are neither needed nor used. The table has one row for each feature with that feature of all centroids, then
    a row with the number of rows of each cluster. The statistics of `EM` have the same layout: sums of the rows of each
    cluster, then counts. A cluster without rows keeps its centroid. The metric is the inertia divided by n.

    Parameters
    ----------
    k : int
        Number of clusters, at most 65,535.
    init : {"k-means++", "random"}
        How the first centroids are drawn from the training rows, see `kmeans_start.first_centers`. The driver draws
        them once, and every worker reads them.

    References
    ----------
    LambdaML, section 3.1 (EM for k-means).
    """

    k: int
    init: str = "k-means++"  # type: ignore[assignment]  # the parameter's usual name; see `first`
    kind: ClassVar[str] = "k-means"
    metric: ClassVar[str] = "mean squared distance"
    data_kind: ClassVar[str] = "csr"
    fitted_type: ClassVar[Any] = KMeansModel
    algorithm: ClassVar[str | None] = "em"
    needs_labels: ClassVar[bool] = False
    l2 = 0.0

    def __post_init__(self) -> None:
        check_positive_integer("KMeans.k", self.k)
        check_width("KMeans.k", self.k, self.k)
        check_choice("KMeans.init", self.init, ("k-means++", "random"))

    def table_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """(n_features + 1, k)."""
        return shape[0] + 1, self.k

    def rows(self, minibatch: Any, shape: tuple[int, ...]) -> Int32:
        """The rows of the minibatch's features, then the counts'."""
        return rows_with_last(minibatch.ids, shape[0])

    def n_touched(self, n_ids: int) -> int:
        """One more than the ids, for the counts."""
        return n_ids + 1

    def first(self, shape: tuple[int, ...], mean: float, seed: int) -> Float32:
        """Zeros, until the centroids of `start_of` are read."""
        return np.zeros(self.table_shape(shape), np.float32)

    def start_of(self, dataset: Any, seed: int) -> Float32 | None:
        """The first centroids, drawn from the training rows."""
        table = np.zeros(self.table_shape(dataset.shape), np.float32)
        table[:-1] = first_centers(dataset, self.k, str(self.init), seed).T
        return table

    def nothing_to_learn(self, dataset: Any) -> str:
        """Nothing is known: labels play no role."""
        return ""

    def check_data(self, dataset: Any, field: str = "data") -> None:
        """See `Model`; there must be as many training rows as clusters."""
        super().check_data(dataset, field)
        if field == "data" and dataset.n < self.k:
            raise JobError("KMeans.k", self.k, f"at most {dataset.n}, the number of rows")

    # -- expectation and maximisation

    def gather(self, params: Float32, minibatch: Any, sums: Float64) -> float:
        """Add the statistics of the minibatch's rows to ``sums``, float64 (n_features + 1, k); returns the inertia.

        The expectation step: each row belongs to the cluster with the nearest centroid, the lowest in a tie.
        """
        nearest, squares = self._assigned(params, minibatch)
        flat, k = sums.reshape(-1), self.k
        places = minibatch.ids.astype(np.intp) * k
        row = np.repeat(nearest, np.diff(minibatch.indptr))
        values = minibatch.values if len(minibatch.values) else np.ones(len(minibatch.indices), np.float32)
        np.add.at(flat, places[minibatch.indices] + row, values.astype(np.float64))
        for column, entries in zip(minibatch.columns, minibatch.dense, strict=True):
            at = int(places[column])
            flat[at : at + k] += np.bincount(nearest, entries, k)
        sums[-1] += np.bincount(nearest, minlength=k)
        return float(squares.sum())

    def maximise(self, params: Float32, sums: Float32) -> None:
        """Overwrite ``params`` with the centroids of the statistics ``sums``, float32 (n_features + 1, k)."""
        counts = sums[-1]
        is_used = counts > 0
        params[:-1, is_used] = sums[:-1, is_used] / counts[is_used]
        params[-1] = counts

    def _assigned(self, params: Float32, minibatch: Any) -> tuple[NDArray[np.intp], Float64]:
        """The nearest centroid of each row, and the squared distance to it; both (n,)."""
        width = padded_width(self.k)
        centers = np.zeros((len(minibatch.ids), width))
        centers[:, : self.k] = params[minibatch.ids]
        lengths = np.square(params[:-1], dtype=np.float64).sum(0)
        nearest, squares = np.empty(minibatch.n, np.intp), _squared_lengths(minibatch)
        for begin, end, entries in _blocks(minibatch, max(MOST_DISTANCES // width, 1)):
            products = np.zeros((end - begin, width))
            rows_product(**entries, weights=centers, out=products)
            distances = lengths - 2.0 * products[:, : self.k]
            nearest[begin:end] = distances.argmin(1)
            squares[begin:end] += distances.min(1)
        # NaN stays NaN; rounding errors below 0 do not.
        return nearest, np.maximum(squares, 0.0)

    def gradient(self, params: Float32, minibatch: Any, mean: float, divisor: float, grad: Float32) -> float:
        """Not defined: `algorithm` names the only algorithm that trains the model."""
        raise TypeError("KMeans has no gradient: EM trains it")

    def evaluate(self, params: Float32, minibatch: Any, mean: float) -> float:
        """Sum of the squared distances to the nearest centroids."""
        return float(self._assigned(params, minibatch)[1].sum())

    def fitted(self, params: Float32, shape: tuple[int, ...], mean: float) -> KMeansModel:
        """The trained model; its arrays are copies."""
        return KMeansModel({"centers": params[:-1].T.copy(), "counts": params[-1].copy()})

    def table_of(self, model: KMeansModel) -> Float32:
        """The table of a fitted model."""
        return np.concatenate([model.params["centers"].T, model.params["counts"][None]]).astype(np.float32)

    def baseline_loss(self, train: Any, held_out: Any) -> float | None:
        """Mean squared distance to the training mean; None for rows that are read from a file."""
        if not hasattr(train, "X") or not hasattr(held_out, "X"):
            return None
        mean = np.asarray(train.X.sum(0, dtype=np.float64)).reshape(-1) / train.n
        squares = float(np.square(held_out.X.data, dtype=np.float64).sum())
        total = np.asarray(held_out.X.sum(0, dtype=np.float64)).reshape(-1)
        return max(float((squares - 2.0 * total @ mean) / held_out.n + mean @ mean), 0.0)

    def __str__(self) -> str:
        return f"k-means, k = {self.k}"


def _squared_lengths(minibatch: Any) -> Float64:
    """``|x|^2`` of each row, float64 (n,)."""
    values = np.square(minibatch.values, dtype=np.float64) if len(minibatch.values) else None
    row = np.repeat(np.arange(minibatch.n), np.diff(minibatch.indptr))
    lengths = np.bincount(row, values, minibatch.n).astype(np.float64)
    for entries in minibatch.dense:
        lengths += np.square(entries, dtype=np.float64)
    return lengths


def _blocks(minibatch: Any, n_most: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(begin, end, entries) of at most ``n_most`` rows each; entries as `rows_product` takes them."""
    n, indptr = minibatch.n, minibatch.indptr
    if n <= n_most:
        yield 0, n, entries_of(minibatch)
        return
    for begin in range(0, n, n_most):
        end = min(begin + n_most, n)
        first, last = int(indptr[begin]), int(indptr[end])
        yield (
            begin,
            end,
            {
                "columns": minibatch.columns,
                "dense": np.ascontiguousarray(minibatch.dense[:, begin:end]),
                "indptr": indptr[begin : end + 1] - np.int32(first),
                "indices": minibatch.indices[first:last],
                "values": minibatch.values[first:last],
            },
        )
