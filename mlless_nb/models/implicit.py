"""Logistic matrix factorisation of implicit feedback: what users have done, without what they disliked."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..validation import check_number, check_positive_integer, specification
from .base import register_model
from .factors import Factorization
from .fitted import FittedModel
from .fitted_factors import PMFModel
from .metrics import auc

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]

#: Rows of the table whose parameters seed the draw of a step.
N_SEEDING = 16


class ImplicitModel(PMFModel):
    """A fitted logistic matrix factorisation; predictions are probabilities, to be compared with each other.

    They are those of a row among the pairs of training, most of which were drawn: more ``ImplicitMF.negatives`` give
    lower ones. All else is as in `PMFModel`.
    """

    kind: ClassVar[str] = "implicit"

    def _predicted(self, user: Int32, item: Int32) -> Float32:
        return _sigmoid(super()._predicted(user, item))

    def _predicted_any(self, user: NDArray[np.int64], item: NDArray[np.int64]) -> Float32:
        return _sigmoid(super()._predicted_any(user, item))

    def _scores(self, users: Int32) -> Float32:
        scores = super()._scores(users)
        return scores if len(users) == 1 else _sigmoid(scores)  # those of one user are `_predicted`

    def _errors(self, data: Any) -> dict[str, float]:
        """AUC of the pairs of the data against as many of its users with items drawn among those rated in training."""
        is_rated = self.params.get("seen_items", np.ones(self.n_items, bool))
        others = np.random.default_rng(0).choice(np.flatnonzero(is_rated), len(data.users)).astype(np.int32)
        is_new = ~np.isin(_pairs(data.users, others, self.n_items), _pairs(data.users, data.items, self.n_items))
        drawn = self._predicted(data.users[is_new], others[is_new])
        scores = np.concatenate([self._predicted(data.users, data.items), drawn])
        return {"AUC": auc(np.arange(len(scores)) < len(data.users), scores)}


@register_model
@specification
@dataclass(frozen=True)
class ImplicitMF(Factorization):
    """Weighted logistic matrix factorisation: ``P(u, i) = sigmoid(b_u + b_i + p_u.q_i)``, with sampled negatives.

    Each row of the data is something that a user did with an item. Minimises the sum over the rows of
    ``w log(1 + exp(-x_ui)) + sum_j log(1 + exp(x_uj))``, plus ``l2/2`` times the squared length of the rows used, where
    ``w = 1 + confidence * rating`` and the items j are ``negatives`` of the minibatch's other items. They are drawn
    anew in each step, with a seed from the parameters, so that equal replicas draw equally; pairs that the minibatch
    has as rows are left out. For held-out rows the draw is always the same, so that losses can be compared.

    Parameters
    ----------
    rank : int
        Number of factors of a user and of an item.
    l2 : float
        Penalty that each pair puts on its user and its item.
    confidence : float
        At least 0: weight of a row's rating, e.g. a count of plays; at 0 all rows weigh the same.
    negatives : int
        Items drawn for each row, at least 1.
    biases : bool
        Whether users and items have a bias.
    init_scale : float
        Standard deviation of the factors at the start; biases start at 0.

    References
    ----------
    Johnson 2014, "Logistic matrix factorization for implicit feedback data", with negatives sampled as in Mikolov et
    al. 2013 instead of all pairs.
    """

    rank: int = 20
    l2: float = 0.01
    confidence: float = 0.0
    negatives: int = 3
    biases: bool = True
    init_scale: float = 0.05
    kind: ClassVar[str] = "implicit"
    metric: ClassVar[str] = "log loss"
    fitted_type: ClassVar[type[FittedModel]] = ImplicitModel

    def __post_init__(self) -> None:
        self.check_fields()
        check_number("ImplicitMF.l2", self.l2, least=0.0)
        check_number("ImplicitMF.confidence", self.confidence, least=0.0)
        check_positive_integer("ImplicitMF.negatives", self.negatives)

    def check_data(self, dataset: Any, field: str = "data") -> None:
        """See `Model`; no row may weigh less than nothing: its loss would have no lower bound."""
        super().check_data(dataset, field)
        ratings = getattr(dataset, "ratings", None)  # stored files have none here
        if ratings is None or not self.confidence:
            return
        is_wrong = 1.0 + self.confidence * ratings.astype(np.float64) < 0
        if bool(is_wrong.any()):
            at = int(np.flatnonzero(is_wrong)[0])
            valid = f"at least {-1 / self.confidence:g} for ImplicitMF(confidence={self.confidence:g})"
            raise DataError(f"{field}.ratings[{at}]", float(ratings[at]), valid)

    def nothing_to_learn(self, dataset: Any) -> str:
        """Ratings may all be the same: which pairs there are is what is learnt."""
        return "" if dataset.shape[1] > 1 else "there is one item"

    def gradient(self, params: Float32, minibatch: Any, mean: float, divisor: float, grad: Float32) -> float:
        """Overwrite ``grad`` (m, width); returns the sum of losses before any update."""
        seed = zlib.crc32(params[minibatch.ids[:N_SEEDING]].tobytes())
        user, item, weight, is_row = self._drawn(minibatch, len(params), seed)
        rows = params[minibatch.ids]
        own, other = rows[user], rows[item]
        margin = self._margins(own, other)
        # The derivative of w log(1 + exp(-x)) is -w sigmoid(-x); of log(1 + exp(x)) it is sigmoid(x).
        slope = np.where(is_row, -weight * _sigmoid(-margin), weight * _sigmoid(margin))[:, None]
        penalty = np.float32(self.penalty) * (weight > 0)[:, None]
        grad[...] = 0
        for place, (mine, theirs) in ((user, (own, other)), (item, (other, own))):
            part = slope * theirs + penalty * mine
            if self.biases:
                part[:, -1] = slope[:, 0] + penalty[:, 0] * mine[:, -1]
            order = np.argsort(place, kind="stable")
            begins = np.flatnonzero(np.diff(place[order], prepend=-1))
            grad[place[order[begins]]] += np.add.reduceat(part[order], begins, axis=0)
        grad /= np.float32(divisor)
        return self._losses(margin, weight, is_row)

    def evaluate(self, params: Float32, minibatch: Any, mean: float) -> float:
        """Sum of losses, with negatives that depend on the minibatch only."""
        seed = zlib.crc32(minibatch.ids[:N_SEEDING].tobytes())
        user, item, weight, is_row = self._drawn(minibatch, len(params), seed)
        rows = params[minibatch.ids]
        return self._losses(self._margins(rows[user], rows[item]), weight, is_row)

    def _margins(self, users: Float32, items: Float32) -> Float32:
        margins: Float32 = np.einsum("ij,ij->i", users[:, : self.rank], items[:, : self.rank])
        return margins + users[:, -1] + items[:, -1] if self.biases else margins

    def _drawn(self, minibatch: Any, n_rows: int, seed: int) -> tuple[Int32, Int32, Float32, NDArray[np.bool_]]:
        """Places of users and items among the minibatch's ids, weights, and which pairs are rows; all (n (1 + k),)."""
        user, item, n = minibatch.user, minibatch.item, minibatch.n
        items = np.unique(item)
        drawn = items[np.random.default_rng(seed).integers(len(items), size=n * self.negatives)]
        of_user = np.repeat(user, self.negatives)
        n_ids = len(minibatch.ids)
        known = np.sort(_pairs(user, item, n_ids))
        pairs = _pairs(of_user, drawn, n_ids)
        at = np.minimum(np.searchsorted(known, pairs), n - 1)
        weight = np.concatenate([1.0 + self.confidence * minibatch.rating, known[at] != pairs]).astype(np.float32)
        is_row = np.arange(len(weight)) < n
        return np.concatenate([user, of_user]), np.concatenate([item, drawn]), weight, is_row

    @staticmethod
    def _losses(margin: Float32, weight: Float32, is_row: NDArray[np.bool_]) -> float:
        return float(
            weight.astype(np.float64) @ np.logaddexp(0.0, np.where(is_row, -margin, margin).astype(np.float64))
        )

    def fitted(self, params: Float32, shape: tuple[int, ...], mean: float) -> Any:
        """The trained model; its arrays are copies."""
        return super().fitted(params, shape, 0.0)

    def __str__(self) -> str:
        return f"implicit MF rank {self.rank}"


def _pairs(users: Int32, items: Int32, n_items: int) -> NDArray[np.int64]:
    """A number for each pair."""
    return users.astype(np.int64) * n_items + items


def _sigmoid(margins: Float32) -> Float32:
    small = np.exp(-np.abs(margins))
    chances = np.where(margins >= 0, np.float32(1), small) / (np.float32(1) + small)
    return chances.astype(np.float32)
