"""A fitted matrix factorisation: predictions, recommendations and similar items, in the user's own ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import DataError, JobError
from ..frames.ids import INTEGERS, Ids, array_of
from ..frames.names import RatingNames
from ..frames.sources import described
from ..kernels import pmf_predict
from ..validation import check_choice
from . import exports
from .fitted import FittedModel
from .metrics import errors, ranking
from .rankings import best_of, check_count, items_by_user

Float32 = NDArray[np.float32]
Ranking = tuple[NDArray[Any], Float32]

#: Scores that are in memory at a time.
MOST_SCORES = 1 << 23


class PMFModel(FittedModel):
    """A fitted matrix factorisation.

    Users and items are named by their ids in the training data: numbers from 0, or the ids that a table had.

    Attributes
    ----------
    params : dict
        user_factors (n_users, rank), item_factors (n_items, rank), user_bias (n_users,), item_bias (n_items,), mean ();
        float32. If known, also which users and items had ratings in training: seen_users (n_users,) and seen_items
        (n_items,); bool; and the number of ratings of each item: item_counts (n_items,), int64.
    names : RatingNames or None
        The users' and items' ids.
    """

    kind: ClassVar[str] = "pmf"

    def __init__(self, params: dict[str, NDArray[Any]]) -> None:
        n_users, n_items = params["user_bias"].size, params["item_bias"].size
        rank = params["user_factors"].shape[-1:]
        shapes = {
            "user_factors": (n_users, *rank),
            "item_factors": (n_items, *rank),
            "user_bias": (n_users,),
            "item_bias": (n_items,),
            "mean": (),
        }
        self.params: dict[str, NDArray[Any]] = {}
        for name, shape in shapes.items():
            if params[name].shape != shape:
                raise ValueError(f"{name} has shape {params[name].shape}: must be {shape}")
            self.params[name] = np.asarray(params[name], np.float32)
        if "seen_users" in params and "seen_items" in params:  # files of older versions lack them
            self._note("seen_users", params["seen_users"], n_users, bool)
            self._note("seen_items", params["seen_items"], n_items, bool)
        if "item_counts" in params:
            self._note("item_counts", params["item_counts"], n_items, np.int64)

    def _note(self, name: str, values: NDArray[Any], n: int, dtype: type) -> None:
        if values.shape != (n,):
            raise ValueError(f"{name} has shape {values.shape}: must be ({n},)")
        self.params[name] = np.asarray(values, dtype)

    def with_seen(self, users: NDArray[np.bool_], items: NDArray[np.bool_]) -> Self:
        """The same model with the users and items that had ratings in training.

        Parameters
        ----------
        users, items : bool (n_users,), (n_items,)
        """
        return type(self)({**self.params, "seen_users": users, "seen_items": items}).with_names(self.names)

    @property
    def n_users(self) -> int:
        """Number of users; their ids are 0 to ``n_users - 1``, if they have no names."""
        return len(self.params["user_bias"])

    @property
    def n_items(self) -> int:
        """Number of items; their ids are 0 to ``n_items - 1``, if they have no names."""
        return len(self.params["item_bias"])

    @property
    def shape(self) -> tuple[int, ...]:
        """(n_users, n_items)."""
        return self.n_users, self.n_items

    def to_parquet(self, folder: str | Path) -> None:
        """Write users.parquet and items.parquet into ``folder``, which is made: "id", "bias", "factors", "mean".

        The prediction of a pair is the mean, which is the same in all rows, plus both biases and the scalar product of
        the factors (`ImplicitModel`: the sigmoid of it). ServiceError if pyarrow is missing.
        """
        place, table, mean = Path(folder), self._table(), float(self.params["mean"])
        place.mkdir(parents=True, exist_ok=True)
        sides = ("users", self._user_ids, table[: self.n_users]), ("items", self._item_ids, table[self.n_users :])
        for name, ids, rows in sides:
            numbers = np.arange(len(rows))
            named = numbers if ids is None else ids[numbers]
            exports.parquet_factors(place / f"{name}.parquet", named, rows[:, :-1].copy(), rows[:, -1], mean)

    @property
    def _user_ids(self) -> Ids | None:
        return self.names.users if isinstance(self.names, RatingNames) else None

    @property
    def _item_ids(self) -> Ids | None:
        return self.names.items if isinstance(self.names, RatingNames) else None

    def predict(self, users: ArrayLike, items: ArrayLike, *, unknown: str = "error") -> Float32:
        """Predicted ratings of pairs.

        For a user or an item without ratings in training, the prediction is the mean plus the other one's bias.

        Parameters
        ----------
        users, items : ids (n,)
        unknown : {"error", "mean"}
            What ids are that the training data did not have: an error, or users and items without ratings.

        Returns
        -------
        float32 (n,)

        Raises
        ------
        ValueError
            When an id is unknown or the lengths differ.
        """
        check_choice("unknown", unknown, ("error", "mean"))
        find: Callable[..., NDArray[Any]] = _numbers if unknown == "error" else _found
        user = find("users", users, self.n_users, self._user_ids)
        item = find("items", items, self.n_items, self._item_ids)
        if len(user) != len(item):
            raise DataError("lengths of users and items", (len(user), len(item)), "equal")
        return self._predicted(user, item) if unknown == "error" else self._predicted_any(user, item)

    def _predicted_any(self, user: NDArray[Any], item: NDArray[Any]) -> Float32:
        """Predictions of pairs, -1 for an unknown user or item."""
        table = np.concatenate([self._table(), np.zeros((1, len(self._table()[0])), np.float32)])
        own = table[np.where(user < 0, len(table) - 1, user)]
        other = table[np.where(item < 0, len(table) - 1, item + self.n_users)]
        products = np.einsum("ij,ij->i", own[:, :-1], other[:, :-1])
        found: Float32 = products + own[:, -1] + other[:, -1] + self.params["mean"]
        return found

    def _predicted(self, user: NDArray[np.int32], item: NDArray[np.int32]) -> Float32:
        out = np.empty(len(user), np.float32)
        pmf_predict(self._table(), user, item + np.int32(self.n_users), float(self.params["mean"]), True, out)
        return out

    def recommend(
        self, user: Any, n: int = 10, exclude: Any = (), *, seen: Any = None, least_ratings: int = 0
    ) -> Ranking | list[Ranking]:
        """The ``n`` items with the highest prediction for a user, best first; only items rated in training.

        Parameters
        ----------
        user : id, or array_like of ids (m,)
            Several users are answered at once.
        n : int
            Number of items; fewer are returned if fewer are left.
        exclude : id, or iterable of ids
            Items not to recommend to anybody.
        seen : Ratings, optional
            Ratings, e.g. the training data, whose items are not recommended to those who rated them.
        least_ratings : int
            Only items with at least as many ratings in training.

        Returns
        -------
        items : (n,)
            Ids: int64, or those that the items have in the training data.
        scores : float32 (n,)
            Predicted ratings. For several users: a list of such pairs, in the order of the users.

        Raises
        ------
        ValueError
            When an id is unknown.
        """
        is_one = np.ndim(user) == 0
        rows = _numbers("user" if is_one else "users", [user] if is_one else user, self.n_users, self._user_ids)
        check_count("n", n)
        is_named = self._counted(least_ratings)
        excluded = list(exclude) if isinstance(exclude, Iterable) and not isinstance(exclude, str) else [exclude]
        is_named[_numbers("exclude", excluded, self.n_items, self._item_ids)] = False
        found = [(self._named(best), scores) for best, scores in self._ranking(rows, n, seen, is_named)]
        return found[0] if is_one else found

    def _ranking(
        self, users: NDArray[np.int32], n: int, seen: Any, is_named: NDArray[np.bool_] | bool = True
    ) -> Iterator[tuple[NDArray[np.int64], Float32]]:
        """The numbers of the best items rated in training, and their scores, user by user."""
        is_named = self.params.get("seen_items", np.ones(self.n_items, bool)) & is_named
        begins = rated = None
        if seen is not None:
            self._check_ratings("seen", seen)
            begins, rated = items_by_user(seen.users, seen.items, self.n_users)
        for start in range(0, len(users), step := max(MOST_SCORES // max(self.n_items, 1), 1)):
            block = users[start : start + step]
            for user, row in zip(block.tolist(), self._scores(block), strict=True):
                is_open = is_named
                if begins is not None and rated is not None:
                    is_open = is_named.copy()
                    is_open[rated[begins[user] : begins[user + 1]]] = False
                yield best_of(row, is_open, n)

    def _named(self, items: NDArray[np.int64]) -> NDArray[Any]:
        return items if self._item_ids is None else self._item_ids[items]

    def similar_items(self, item: Any, n: int = 10, *, least_ratings: int = 0) -> Ranking:
        """The ``n`` items whose factors have the largest cosine with those of ``item``, best first, without itself.

        Parameters
        ----------
        item : id
        n, least_ratings : int
            See `recommend`.

        Returns
        -------
        items : (n,)
        cosines : float32 (n,)
        """
        (place,) = _numbers("item", [item], self.n_items, self._item_ids)
        check_count("n", n)
        factors = self.params["item_factors"].astype(np.float64)
        lengths = np.maximum(np.linalg.norm(factors, axis=1), 1e-30)
        cosines = (factors @ factors[place] / (lengths * lengths[place])).astype(np.float32)
        is_named = self.params.get("seen_items", np.ones(self.n_items, bool)) & self._counted(least_ratings)
        is_named[place] = False
        best, found = best_of(cosines, is_named, n)
        return self._named(best), found

    def evaluate(self, data: Any, k: int = 10, *, seen: Any = None, relevant: float | None = None) -> dict[str, float]:
        """Measures of ratings, and of rankings of all items rated in training.

        Parameters
        ----------
        data : Ratings
            Held-out ratings; made with ``like=`` the model or its training data, if these had names.
        k : int
            Places of a ranking, at least 1.
        seen : Ratings, optional
            Ratings whose items are left out of a user's ranking, e.g. the training data.
        relevant : float, optional
            The least rating of a relevant item; by default the mean of the training ratings. Users without one are
            left out of the measures of rankings.

        Returns
        -------
        dict of float
            RMSE, MAE and R2; precision@k, recall@k and NDCG@k.
        """
        check_count("k", k)
        self._check_ratings("data", data)
        least = float(self.params["mean"]) if relevant is None else relevant
        measures = self._errors(data)
        is_relevant = data.ratings >= least
        return measures if k == 0 or not is_relevant.any() else {**measures, **self._ranked(data, is_relevant, k, seen)}

    def _errors(self, data: Any) -> dict[str, float]:
        return errors(data.ratings, self._predicted(data.users, data.items))

    def _ranked(self, data: Any, is_relevant: NDArray[np.bool_], k: int, seen: Any) -> dict[str, float]:
        begins, wanted = items_by_user(data.users[is_relevant], data.items[is_relevant], self.n_users)
        users = np.flatnonzero(np.diff(begins)).astype(np.int32)
        is_wanted = np.zeros(self.n_items, bool)
        hits = np.zeros((len(users), k), bool)
        for place, (found, _) in enumerate(self._ranking(users, k, seen)):
            own = wanted[begins[users[place]] : begins[users[place] + 1]]
            is_wanted[own] = True
            hits[place, : len(found)] = is_wanted[found]
            is_wanted[own] = False
        return ranking(hits, np.diff(begins)[users])

    def _scores(self, users: NDArray[np.int32]) -> Float32:
        """Predictions for all items, float32 (len(users), n_items)."""
        if len(users) == 1:
            every = np.arange(self.n_items, dtype=np.int32)
            return self._predicted(np.full(self.n_items, users[0], np.int32), every)[None]
        table = self._table()
        own, items = table[users], table[self.n_users :]
        scores: Float32 = own[:, :-1] @ items[:, :-1].T
        scores += own[:, -1:] + (items[:, -1] + self.params["mean"])
        return scores

    def _counted(self, least: int) -> NDArray[np.bool_]:
        """Which items have at least so many ratings."""
        check_count("least_ratings", least)
        if not least:
            return np.ones(self.n_items, bool)
        if "item_counts" not in self.params:
            raise JobError("least_ratings", least, "0 for a model that does not know how often items were rated")
        enough: NDArray[np.bool_] = self.params["item_counts"] >= least
        return enough

    def _check_ratings(self, field: str, ratings: Any) -> None:
        if getattr(ratings, "kind", None) != "ratings" or ratings.shape != self.shape:
            call = "datasets.ratings(frame, ..., like=model)" if self.names else "datasets.ratings"
            valid = f"ratings of {self.n_users} users x {self.n_items} items, by {call}"
            raise DataError(field, described(ratings), valid)
        self.check_names(ratings)

    def _table(self) -> Float32:
        params = self.params
        table = np.concatenate(
            [
                np.column_stack([params["user_factors"], params["user_bias"]]),
                np.column_stack([params["item_factors"], params["item_bias"]]),
            ]
        )
        if "seen_users" in params:  # the factors of unseen ones are still their random start
            table[~np.concatenate([params["seen_users"], params["seen_items"]])] = 0
        return table

    def __repr__(self) -> str:
        rank = self.params["user_factors"].shape[1]
        return f"<{type(self).__name__} rank {rank}, {self.n_users} users x {self.n_items} items>"


def _numbers(field: str, ids: Any, n: int, known: Ids | None) -> NDArray[np.int32]:
    """The numbers of ids, int32 (m,)."""
    if known is not None:
        return known.numbers(field, ids)
    array = np.atleast_1d(np.asarray(ids))
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(field, ids, f"ids, whole numbers from 0 to {n - 1}")
    if array.min() < 0 or array.max() >= n:
        wrong = array[(array < 0) | (array >= n)][0]
        raise DataError(field, int(wrong), f"an id from 0 to {n - 1}")
    return array.astype(np.int32)


def _found(field: str, ids: Any, n: int, known: Ids | None) -> NDArray[np.int64]:
    """The numbers of ids, int64 (m,); -1 for unknown ones."""
    return (known or Ids(np.arange(n), INTEGERS)).find_any(np.atleast_1d(array_of(field, ids)))
