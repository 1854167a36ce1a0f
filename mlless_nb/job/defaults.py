"""Defaults: what a job leaves open is chosen by rules on its data: without trial runs, and the same every time.

The constants were found on MovieLens-100K and -1M and parts of them, a9a, IMDb's reviews, MNIST and scikit-learn's
small sets; `benchmarks/defaults.py` holds what they give against a search.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.csr import Csr
from ..data.dataset import Dataset
from ..data.ratings import Ratings
from ..data.stream import CsrStream
from ..models import Model
from .optimizers import FTRL, SGD, AdaGrad, Adam, Optimizer

if TYPE_CHECKING:
    from .job import TrainingJob

#: Workers where the data is large, and the training rows that each should have.
WORKERS, WORKER_ROWS = 4, 10_000
#: Steps of an epoch, and of a run whose epochs are given, at least.
EPOCH_STEPS, RUN_STEPS = 36, 400
#: Rows of a minibatch, at least and at most.
LEAST_ROWS, MOST_ROWS = 16, 6250
#: Epochs or steps, whichever are more, of a run that is to end by itself and has held-out rows; and of one without.
MOST_EPOCHS, MOST_STEPS, BLIND_EPOCHS, BLIND_STEPS = 50, 2000, 10, 400
#: Rows of a minibatch may have values in this share of the columns before sums of squares, which forget nothing, learn
#: too slowly: then it is Adam.
DENSE_ROWS = 0.1
#: The penalty on a rating's user and item times the root of the ratings that there are for each of them.
PMF_PENALTY = 0.52
#: SGD of ratings: the step along a row's own gradient, as a share of the longest one that is stable, for the row that
#: has most ratings; and the longest step for a single rating.
SGD_STEP, RATING_STEP = 2.0, 0.05
#: Rates of the others for ratings; "per sample" is SGD's after every rating.
PMF_RATES = {"adam": 0.005, "adagrad": 0.1, "per sample": 0.05}
#: Rates for features, times the root of a row's squared length; SGD's times that itself, and FTRL's as it is.
LOGISTIC_RATES = {"adam": 0.05, "adagrad": 0.4, "ftrl": 0.5, "sgd": 20.0}
#: The table is much larger than what a minibatch touches from so many times on: what it does not touch is left alone.
LAZY_FROM = 4.0
#: Rows of features whose length is taken, where they are read from a file.
SAMPLE_ROWS = 100_000


def workers(n_train: int, most: int) -> int:
    """Workers for so many training rows, at least one and at most ``most``."""
    return max(min(n_train // WORKER_ROWS, WORKERS, most), 1)


def minibatch(n_train: int, n_workers: int, local_steps: int, epochs: float | None) -> int:
    """Rows of a worker's minibatch, so that there are enough steps, and one for every worker."""
    steps = max(EPOCH_STEPS, RUN_STEPS / epochs) if epochs is not None else EPOCH_STEPS
    rows = max(round(n_train / (steps * n_workers)), LEAST_ROWS)
    return max(min(rows, MOST_ROWS, n_train // (n_workers * local_steps)), 1)


def epochs(steps_in_epoch: float, *, has_validation: bool) -> float:
    """Passes over the data of a run that nothing else ends."""
    least, steps = (MOST_EPOCHS, MOST_STEPS) if has_validation else (BLIND_EPOCHS, BLIND_STEPS)
    return float(max(least, math.ceil(steps / steps_in_epoch)))


def optimizer(model: Model, data: Dataset) -> Optimizer:
    """The optimiser of a job that names none."""
    if model.data_kind == "ratings":
        return SGD(momentum=0.9, nesterov=True)
    n_values = data.X.nnz if isinstance(data, Csr) else data.n_values if isinstance(data, CsrStream) else 0
    return Adam() if n_values >= DENSE_ROWS * data.n * data.shape[0] else AdaGrad()


def resolved(job: TrainingJob, train: Dataset) -> TrainingJob:
    """``job`` with the penalty and the learning rate that it leaves open.

    Parameters
    ----------
    train : Dataset
        Its training rows, in the units of training.
    """
    model, chosen = job.model, job.optimizer
    if isinstance(train, Ratings):
        n_user, n_item = np.bincount(train.users), np.bincount(train.items)
        if model.l2 is None:
            n_rated = np.count_nonzero(n_user) + np.count_nonzero(n_item)
            model = _replaced(model, l2=_rounded(PMF_PENALTY * math.sqrt(n_rated / train.n)))
        if chosen.learning_rate is None:
            share = max(int(n_user.max()), int(n_item.max())) / train.n
            rows = min(job.minibatch, train.n) * (job.workers if job.aggregate == "mean" else 1)
            chosen = chosen.resolved(_rounded(_pmf_rate(chosen, share, rows)))
    else:
        if model.l2 is None:
            model = _replaced(model, l2=_rounded(1.0 / train.n))
        if chosen.learning_rate is None:
            chosen = chosen.resolved(_rounded(_logistic_rate(chosen, _squared_length(train))))
    return dataclasses.replace(job, model=model, optimizer=chosen)


def decided(optimizer: Optimizer, n_rows: int, n_touched: int) -> Optimizer:
    """``optimizer`` with ``lazy`` decided, for a table of ``n_rows`` of which a minibatch touches ``n_touched``."""
    if isinstance(optimizer, FTRL) or optimizer.lazy != "auto":
        return optimizer
    return dataclasses.replace(optimizer, lazy=n_rows > LAZY_FROM * n_touched)


def told(job: TrainingJob, chosen: TrainingJob) -> str:
    """One sentence on what ``job`` left open and ``chosen`` has; "" where that is nothing."""
    parts = []
    if job.optimizer.learning_rate is None:
        parts.append(f"learning rate {chosen.optimizer.learning_rate:g}")
    if job.model.l2 is None:
        parts.append(f"l2 {chosen.model.l2:g}")
    if chosen.optimizer.moves_untouched(chosen.model.dense_l2) != job.optimizer.moves_untouched(chosen.model.dense_l2):
        parts.append("lazy, which leaves the many rows alone that a minibatch does not touch")
    return f"Chosen for these data: {'; '.join(parts)}" if parts else ""


def _pmf_rate(optimizer: Optimizer, share: float, rows: int) -> float:
    """For ratings of which the most rated user or item has ``share``, ``rows`` to a step of all workers."""
    if isinstance(optimizer, (Adam, AdaGrad)):
        return PMF_RATES[optimizer.kind]
    # A row's curvature is its share of the ratings. FTRL begins as SGD does, and its rates only fall.
    rate = min(SGD_STEP / share, RATING_STEP * rows)
    if isinstance(optimizer, FTRL):
        return rate
    # Momentum m makes steps 1 / (1 - m) times as long.
    return PMF_RATES["per sample"] if optimizer.per_sample else (1.0 - optimizer.momentum) * rate


def _logistic_rate(optimizer: Optimizer, squared_length: float) -> float:
    """For rows of features whose mean squared length, with 1 for the intercept, is given."""
    rate = LOGISTIC_RATES[optimizer.kind]
    if isinstance(optimizer, FTRL):
        return rate
    if isinstance(optimizer, SGD):
        return (1.0 - optimizer.momentum) * rate / squared_length
    return rate / math.sqrt(squared_length)


def _squared_length(train: Dataset) -> float:
    """The mean squared length of the rows, with 1 for the intercept."""
    if isinstance(train, Csr):
        blocks: Any = iter([train.X])
    elif isinstance(train, CsrStream):
        blocks = (X for X, _ in train.blocks())
    else:
        return 1.0
    total, n = 0.0, 0
    for X in blocks:
        total, n = total + float(np.square(X.data, dtype=np.float64).sum()), n + X.shape[0]
        if n >= SAMPLE_ROWS:
            break
    return total / max(n, 1) + 1.0


def _replaced(model: Model, **changes: float) -> Model:
    replaced: Model = dataclasses.replace(model, **changes)  # type: ignore[type-var]
    return replaced


def _rounded(value: float) -> float:
    """Three significant digits: what is shown is what is meant."""
    return float(f"{value:.3g}")
