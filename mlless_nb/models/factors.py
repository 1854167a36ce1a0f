"""The common part of factorisations: a table with a row of factors, and a bias, for each user and each item."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..validation import check_flag, check_number
from .base import Model, check_table
from .fitted import FittedModel
from .fitted_factors import PMFModel

Float32 = NDArray[np.float32]

#: Most ratings from which `PMF.interaction` is estimated.
N_SAMPLED = 512
#: The factors have emerged once their mean square is this many times that of their random start. It falls to 0.7 at
#: first. The validation loss may still rise at 3, and falls at 5; on MovieLens the ratio grows to 13 to 24.
EMERGED = 5.0
#: Mean square of the factors' products, for standardised ratings, that is more than a random start gives.
STRONG = 0.05


class Factorization(Model):
    """The table has one row for each user, then one for each item: the factors, then the bias.

    Attributes
    ----------
    rank : int
    biases : bool
        Whether users and items have a bias.
    init_scale : float
        Standard deviation of the factors at the start; biases start at 0.
    """

    rank: int
    biases: bool
    init_scale: float
    data_kind: ClassVar[str] = "ratings"
    fitted_type: ClassVar[type[FittedModel]] = PMFModel

    def check_fields(self) -> None:
        """Raise JobError unless the fields are valid."""
        name = type(self).__name__
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or not 1 <= self.rank <= 4096:
            raise JobError(f"{name}.rank", self.rank, "a whole number from 1 to 4096")
        check_number(f"{name}.l2", self.l2, least=0.0, or_none=True)
        check_number(f"{name}.init_scale", self.init_scale, least=0.0)
        check_flag(f"{name}.biases", self.biases)

    def check_data(self, dataset: Any, field: str = "data") -> None:
        """Raise JobError unless ``dataset`` holds ratings and the table they need is not too large."""
        if dataset.kind == self.data_kind:
            check_table(f"{type(self).__name__}.rank", self.rank, self.table_shape(dataset.shape))
        super().check_data(dataset, field)

    def kept_of(self, dataset: Any) -> dict[str, NDArray[Any]]:
        """The number of ratings of each item, and which users and items have some."""
        users, items = dataset.seen()
        counts = np.bincount(dataset.items, minlength=dataset.shape[1])
        return {"item_counts": counts, "seen_users": users, "seen_items": items}

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

    def fitted(self, params: Float32, shape: tuple[int, ...], mean: float) -> Any:
        """The trained model; its arrays are copies."""
        users, items = params[: shape[0]], params[shape[0] :]
        return self.fitted_type(
            {
                "user_factors": users[:, : self.rank].copy(),
                "item_factors": items[:, : self.rank].copy(),
                "user_bias": users[:, -1].copy() if self.biases else np.zeros(shape[0], np.float32),
                "item_bias": items[:, -1].copy() if self.biases else np.zeros(shape[1], np.float32),
                "mean": np.array(mean, np.float32),
            }
        )

    def table_of(self, model: Any) -> Float32:
        """The table of a fitted model of the same rank."""
        params = model.params
        sides = ((params[f"{side}_factors"], params[f"{side}_bias"]) for side in ("user", "item"))
        return np.concatenate([np.column_stack([*side][: 1 + self.biases]) for side in sides])
