"""k-means as an estimator of scikit-learn, trained on functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..data.checks import checked_features
from ..data.csr import Csr
from ..models import KMeans, KMeansModel
from .training import MLLessEstimator


class MLLessKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, MLLessEstimator):  # type: ignore[misc]
    """k-means of dense or sparse rows.

    Parameters
    ----------
    n_clusters : int
    init : {"k-means++", "random"}
    epochs : float
        Iterations, at most.
    workers, budget, random_state, job
        See `MLLessEstimator`.

    Attributes
    ----------
    cluster_centers_ : float64 (n_clusters, n_features)
    labels_ : int32 (n,)
        The clusters of the training rows.
    inertia_ : float
        Sum of their squared distances to the nearest centroids.
    model_, cost_usd_, n_features_in_
        See `MLLessEstimator`.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        init: str = "k-means++",
        epochs: float = 20,
        workers: int | None = None,
        budget: float | None = None,
        random_state: int | None = None,
        job: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_clusters, self.init, self.epochs, self.workers = n_clusters, init, epochs, workers
        self.budget, self.random_state, self.job = budget, random_state, job

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the centroids of the rows of X, array_like or scipy sparse (n, n_features); y is not used."""
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32)
        model = self._train(KMeans(self.n_clusters, self.init), Csr(checked_features("X", X), None))
        assert isinstance(model, KMeansModel)
        self.cluster_centers_ = model.cluster_centers_.astype(np.float64)
        squares = model.transform(X)
        self.labels_, self.inertia_ = squares.argmin(1).astype(np.int32), float(squares.min(1).sum())
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Distances to the centroids, float64 (n, n_clusters)."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=False)
        assert isinstance(self.model_, KMeansModel)
        distances: NDArray[Any] = np.sqrt(self.model_.transform(X))
        return distances

    def predict(self, X: Any) -> NDArray[Any]:
        """The cluster of each row, int32 (n,)."""
        nearest: NDArray[Any] = self.transform(X).argmin(1).astype(np.int32)
        return nearest

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
