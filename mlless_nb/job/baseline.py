"""The baseline: the loss of predicting one constant for every row, which a model has to beat."""

from __future__ import annotations

import math

import numpy as np

from ..data.csr import Csr
from ..data.dataset import Dataset
from ..data.ratings import Ratings
from ..data.stream import CsrStream
from ..telemetry.live import RunState


def baseline_loss(train: Dataset, held_out: Dataset | None) -> float | None:
    """Loss of the best constant prediction of ``train`` on ``held_out``, in the metric of their models.

    Of ratings it is the RMSE of predicting the mean rating, of labels the log loss (nats) of the share of ones.

    Returns
    -------
    float or None
        None where nothing is held out, or the training labels are all the same.
    """
    if isinstance(train, Ratings) and isinstance(held_out, Ratings):
        return float(np.sqrt(np.mean((held_out.ratings - train.mean) ** 2, dtype=np.float64)))
    if isinstance(train, (Csr, CsrStream)) and isinstance(held_out, (Csr, CsrStream)):
        told, share = train.share_of_ones, held_out.share_of_ones
        if 0 < told < 1:
            return -share * math.log(told) - (1 - share) * math.log1p(-told)
    return None


def shortfall(state: RunState) -> str:
    """That a run which has ended has no model worth having, "" where it has or nobody can tell."""
    loss = state.best_loss if state.best_loss is not None else state.validation_loss
    if state.is_live or loss is None or state.baseline_loss is None or loss < state.baseline_loss:
        return ""
    return f"no better than predicting the {constant_of(state)} ({state.baseline_loss:.4g})"


def constant_of(state: RunState) -> str:
    """What the best constant prediction is called."""
    return "mean" if state.metric == "RMSE" else "base rate"
