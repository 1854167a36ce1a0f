"""Probabilistic matrix factorisation with biases, and its fitted form."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import JobError
from ..kernels import pmf_gradient, pmf_predict, pmf_sgd_pass, pmf_squared_error
from ..validation import check_flag, check_number, specification
from .base import FittedModel, Model, check_table, register_model
from .leave_one_out import leave_one_out
from .storage import write_arrays

Float32 = NDArray[np.float32]

#: Most ratings from which `PMF.interaction` is estimated.
N_SAMPLED = 512
#: The factors have emerged once their mean square is this many times that of their random start. It falls to 0.7 at
#: first. The validation loss may still rise at 3, and falls at 5; on MovieLens the ratio grows to 13 to 24.
EMERGED = 5.0
#: Mean square of the factors' products, for standardised ratings, that is more than a random start gives.
STRONG = 0.05


class PMFModel:
    """A fitted matrix factorisation.

    Attributes
    ----------
    params : dict
        user_factors (n_users, rank), item_factors (n_items, rank), user_bias (n_users,), item_bias (n_items,), mean ();
        float32. If known, also which users and items had ratings in training: seen_users (n_users,) and seen_items
        (n_items,); bool.
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
            self._note("seen_users", params["seen_users"], n_users)
            self._note("seen_items", params["seen_items"], n_items)

    def _note(self, name: str, flags: NDArray[Any], n: int) -> None:
        if flags.shape != (n,):
            raise ValueError(f"{name} has shape {flags.shape}: must be ({n},)")
        self.params[name] = np.asarray(flags, bool)

    def with_seen(self, users: NDArray[np.bool_], items: NDArray[np.bool_]) -> PMFModel:
        """The same model with the users and items that had ratings in training.

        Parameters
        ----------
        users, items : bool (n_users,), (n_items,)
        """
        return PMFModel({**self.params, "seen_users": users, "seen_items": items})

    @property
    def n_users(self) -> int:
        """Number of users; their ids are 0 to ``n_users - 1``."""
        return len(self.params["user_bias"])

    @property
    def n_items(self) -> int:
        """Number of items; their ids are 0 to ``n_items - 1``."""
        return len(self.params["item_bias"])

    def predict(self, users: ArrayLike, items: ArrayLike) -> Float32:
        """Predicted ratings of pairs.

        For a user or an item without ratings in training, the prediction is the mean plus the other one's bias.

        Parameters
        ----------
        users, items : integer (n,)
            0-based ids.

        Returns
        -------
        float32 (n,)

        Raises
        ------
        ValueError
            When an id is out of range or the lengths differ.
        """
        user, item = _ids("users", users, self.n_users), _ids("items", items, self.n_items)
        if len(user) != len(item):
            raise ValueError(f"users and items have lengths {len(user)}, {len(item)}: must be equal")
        out = np.empty(len(user), np.float32)
        pmf_predict(self._table(), user, item + np.int32(self.n_users), float(self.params["mean"]), True, out)
        return out

    def recommend(self, user: int, n: int = 10, exclude: Iterable[int] = ()) -> tuple[NDArray[np.int64], Float32]:
        """The ``n`` items with the highest predicted rating for ``user``, best first; only items rated in training.

        Parameters
        ----------
        user : int
            0-based id.
        n : int
            Number of items; fewer are returned if fewer are left.
        exclude : iterable of int
            Items not to recommend, such as those that the user has rated.

        Returns
        -------
        items : int64 (n,)
        scores : float32 (n,)
        """
        (row,) = _ids("user", [user], self.n_users)
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
            raise ValueError(f"n={n!r}: must be a whole number >= 0")
        scores = self.predict(np.full(self.n_items, row), np.arange(self.n_items))
        ranked = scores.copy()
        is_named = self.params.get("seen_items", np.ones(self.n_items, bool)).copy()
        is_named[_ids("exclude", list(exclude), self.n_items)] = False
        ranked[~is_named] = -np.inf
        best = np.argsort(-ranked, kind="stable")[:n]
        best = best[is_named[best]]
        return best, scores[best]

    def save(self, path: str | Path) -> None:
        """Write the model to ``path`` as .npz; :func:`mlless_nb.models.load_model` reads it."""
        write_arrays(path, self.kind, self.params)

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
        return f"<PMFModel rank {self.params['user_factors'].shape[1]}, {self.n_users} users x {self.n_items} items>"


def _ids(field: str, ids: ArrayLike, n: int) -> NDArray[np.int32]:
    array = np.atleast_1d(np.asarray(ids))
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{field} has type {array.dtype} and shape {array.shape}: must be whole numbers (n,)")
    if array.min() < 0 or array.max() >= n:
        wrong = array[(array < 0) | (array >= n)][0]
        raise ValueError(f"{field} contains {wrong}: must be ids from 0 to {n - 1}")
    return array.astype(np.int32)


@register_model
@specification
@dataclass(frozen=True)
class PMF(Model):
    """Matrix factorisation of ratings: ``mean + b_u + b_i + p_u.q_i``, with squared error.

    Minimises the sum over the ratings of ``e^2/2 + l2/2 * (|p_u|^2 + |q_i|^2 + b_u^2 + b_i^2)``. The table has one row
    for each user, then one for each item: the factors, then the bias.

    Parameters
    ----------
    rank : int
        Number of factors of a user and of an item.
    l2 : float, optional
        Penalty that each rating puts on its user and its item. None: chosen when a run starts, from the numbers of
        ratings of a user and of an item; fewer ratings need a larger penalty.
    biases : bool
        Whether users and items have a bias.
    init_scale : float
        Standard deviation of the factors at the start; biases start at 0.
    standardize : bool
        Train on ``(rating - mean) / deviation``, so that learning rate, penalty and start suit ratings on any scale.
        ``e`` above is then in standardised units; losses, targets and the fitted model are in the original units.

    References
    ----------
    Salakhutdinov and Mnih 2007; MLLess (journal), section 6.
    """

    rank: int = 20
    l2: float | None = None
    biases: bool = True
    init_scale: float = 0.05
    standardize: bool = True
    kind: ClassVar[str] = "pmf"
    metric: ClassVar[str] = "RMSE"
    data_kind: ClassVar[str] = "ratings"
    fitted_type: ClassVar[type[FittedModel]] = PMFModel

    def __post_init__(self) -> None:
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or not 1 <= self.rank <= 4096:
            raise JobError("PMF.rank", self.rank, "a whole number from 1 to 4096")
        check_number("PMF.l2", self.l2, least=0.0, or_none=True)
        check_number("PMF.init_scale", self.init_scale, least=0.0)
        check_flag("PMF.biases", self.biases)
        check_flag("PMF.standardize", self.standardize)

    def check_data(self, dataset: Any, field: str = "data") -> None:
        """Raise JobError unless ``dataset`` holds ratings and the table they need is not too large."""
        if dataset.kind == self.data_kind:
            check_table("PMF.rank", self.rank, self.table_shape(dataset.shape))
        super().check_data(dataset, field)

    def baseline_loss(self, train: Any, held_out: Any) -> float:
        """RMSE of predicting the training mean."""
        return float(np.sqrt(np.mean((held_out.ratings - train.mean) ** 2, dtype=np.float64)))

    def table_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """(n_users + n_items, rank + 1); without biases, the width is rank."""
        return shape[0] + shape[1], self.rank + self.biases

    def init(self, shape: tuple[int, ...], mean: float, seed: int) -> Float32:
        """Normal factors with standard deviation ``init_scale``, biases 0; equal arguments give equal tables."""
        n_rows, width = self.table_shape(shape)
        table = np.zeros((n_rows, width), np.float32)
        draws = np.random.default_rng([seed, 1]).standard_normal((n_rows, self.rank), np.float32)
        np.multiply(draws, np.float32(self.init_scale), out=table[:, : self.rank])
        return table

    def gradient(self, params: Float32, minibatch: Any, mean: float, divisor: float, grad: Float32) -> float:
        """Overwrite ``grad`` (m, width); returns the sum of squared errors before any update."""
        return pmf_gradient(
            params,
            minibatch.ids,
            minibatch.user,
            minibatch.item,
            minibatch.rating,
            mean,
            self.penalty,
            divisor,
            self.biases,
            grad,
        )

    def evaluate(self, params: Float32, minibatch: Any, mean: float) -> float:
        """Sum of squared errors."""
        return pmf_squared_error(
            params, minibatch.ids, minibatch.user, minibatch.item, minibatch.rating, mean, self.biases
        )

    def evaluate_common(self, params: Float32, minibatch: Any, mean: float) -> tuple[float, float]:
        """See `Model` and `leave_one_out`."""
        return leave_one_out(params, minibatch, mean, self.penalty, has_biases=self.biases)

    def sgd_pass(self, params: Float32, minibatch: Any, mean: float, rate: float) -> float:
        """One step of SGD for each rating, in place; returns the sum of squared errors, each before its step."""
        ratings = minibatch.user, minibatch.item, minibatch.rating
        return pmf_sgd_pass(params, minibatch.ids, *ratings, mean, self.penalty, rate, self.biases)

    def interaction(self, params: Float32, minibatch: Any) -> float:
        """Mean of ``(p_u.q_i)^2`` over at most `N_SAMPLED` ratings."""
        every = max(-(-minibatch.n // N_SAMPLED), 1)
        users, items = (params[minibatch.ids[ids[::every]], : self.rank] for ids in (minibatch.user, minibatch.item))
        scores = np.einsum("ij,ij->i", users, items)
        return float(scores @ scores) / max(len(scores), 1)

    def has_emerged(self, params: Float32, shape: tuple[int, ...]) -> bool:
        """Whether the items' factors have `EMERGED` times the mean square of their start, or are `STRONG` anyway.

        Every worker has all items' factors.
        """
        items = params[shape[0] :, : self.rank]
        square = float(np.mean(items * items))
        return square >= EMERGED * self.init_scale**2 or self.rank * square**2 >= STRONG

    def metric_value(self, loss_sum: float, count: float) -> float:
        """RMSE."""
        return math.sqrt(loss_sum / count) if loss_sum >= 0 else math.nan

    @property
    def penalty(self) -> float:
        """``l2``, 0.0 if it is None."""
        return self.l2 or 0.0

    @property
    def dense_l2(self) -> float:
        """0.0: the penalty is in the gradient of each rating."""
        return 0.0

    def dense_l2_rows(self, shape: tuple[int, ...]) -> int:
        """0."""
        return 0

    def fitted(self, params: Float32, shape: tuple[int, ...], mean: float) -> PMFModel:
        """The trained model; its arrays are copies."""
        users, items = params[: shape[0]], params[shape[0] :]
        return PMFModel(
            {
                "user_factors": users[:, : self.rank].copy(),
                "item_factors": items[:, : self.rank].copy(),
                "user_bias": users[:, -1].copy() if self.biases else np.zeros(shape[0], np.float32),
                "item_bias": items[:, -1].copy() if self.biases else np.zeros(shape[1], np.float32),
                "mean": np.array(mean, np.float32),
            }
        )

    def table_of(self, model: PMFModel) -> Float32:
        """The table of a fitted model of the same rank."""
        params = model.params
        sides = ((params[f"{side}_factors"], params[f"{side}_bias"]) for side in ("user", "item"))
        return np.concatenate([np.column_stack([*side][: 1 + self.biases]) for side in sides])

    def __str__(self) -> str:
        return f"PMF rank {self.rank}"
