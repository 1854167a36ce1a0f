"""Matrix factorisation as an estimator of scikit-learn: rows are pairs of a user and an item, labels are ratings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ..data.checks import checked_floats
from ..data.rating_tables import ratings_of_table
from ..errors import DataError
from ..frames.coding import n_rows, no_missing
from ..frames.sources import CODED, source_of
from ..models import PMF, PMFModel
from ..plurals import count
from .training import MLLessEstimator


class MLLessPMF(RegressorMixin, MLLessEstimator):  # type: ignore[misc]
    """Predicts ratings of pairs; see `PMF`.

    Rows are pairs: a table (pandas, Polars, NumPy) whose first two columns are the users' and the items' ids, of any
    kind. For a user or an item without ratings in training, the prediction is the mean plus the other one's bias, so
    that any folds can be cross-validated.

    Parameters
    ----------
    rank : int
        Number of factors.
    l2 : float, optional
        Penalty of each rating on its user and its item; None: by the numbers of ratings.
    epochs, workers, budget, random_state, job
        See `MLLessEstimator`.

    Attributes
    ----------
    model_ : PMFModel
        Answers in the ids of the rows: ``model_.recommend(user)``.
    cost_usd_, n_features_in_
        See `MLLessEstimator`.
    """

    def __init__(
        self,
        rank: int = 20,
        l2: float | None = None,
        epochs: float = 25,
        workers: int | None = None,
        budget: float | None = None,
        random_state: int | None = None,
        job: Mapping[str, Any] | None = None,
    ) -> None:
        self.rank, self.l2, self.epochs, self.workers = rank, l2, epochs, workers
        self.budget, self.random_state, self.job = budget, random_state, job

    def fit(self, X: Any, y: Any) -> Self:
        """Train on pairs X, a table (n, 2), and their ratings y, array_like (n,)."""
        users, items = _pairs(X, are_all_there=True)
        ratings = checked_floats("y", y)
        if ratings.shape != users.shape:
            raise DataError("y", f"shape {ratings.shape}", f"a rating for each of the {count(len(users), 'row')} of X")
        table = {"user": users, "item": items, "rating": ratings}
        self._train(PMF(self.rank, self.l2), ratings_of_table(table, *table))
        self.n_features_in_ = 2
        return self

    def predict(self, X: Any) -> NDArray[np.float32]:
        """Predicted ratings of pairs, float32 (n,)."""
        check_is_fitted(self)
        assert isinstance(self.model_, PMFModel)
        return self.model_.predict(*_pairs(X), unknown="mean")


def _pairs(X: Any, *, are_all_there: bool = False) -> tuple[NDArray[Any], NDArray[Any]]:
    """The ids of users and items of the rows of a table, each (n,); None where one is missing, or DataError."""
    source = source_of(X, "X")
    if len(source.columns) < 2:
        raise DataError(
            "X", f"columns {', '.join(source.columns)}", "a table whose first two columns are user and item"
        )
    names = list(source.columns)[:2]
    # a table without rows may have no batch
    parts: dict[str, list[NDArray[Any]]] = {name: [np.empty(0, object)] for name in names}
    first = 0
    for batch in source.batches(dict.fromkeys(names, CODED)):
        for name in names if are_all_there else ():
            no_missing(name, batch[name], first, "leave such rows out")
        first += n_rows(batch)
        for name in names:
            found = batch[name].values
            values = np.array([*(found.tolist() if isinstance(found, np.ndarray) else found), None], object)
            parts[name].append(values[batch[name].codes])
    users, items = (np.concatenate(parts[name]) for name in names)
    return users, items
