"""Defaults: fields that a job leaves open are chosen by rules on its data, without trial runs and deterministically.

The constants were found on MovieLens-100K and -1M and parts of them, a9a, IMDb's reviews, MNIST and scikit-learn's
small sets; `benchmarks/defaults.py` compares the results with those of a search.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.csr import Csr
from ..data.dataset import Dataset
from ..data.ratings import Ratings
from ..data.stored_files import StoredRows
from ..data.stream import CsrStream
from ..models import Model
from . import admm, em, model_averaging  # noqa: F401 - registers the algorithms, for messages, too
from .algorithm import Algorithm, algorithm_from_json
from .optimizers import FTRL, SGD, AdaGrad, Adam, Optimizer
from .units import stored_squared_length

if TYPE_CHECKING:
    from ..data.prepare import Manifest
    from .job import TrainingJob

#: Most workers by default, and the training rows that each should have.
WORKERS, WORKER_ROWS = 4, 10_000
#: Least steps of an epoch, and of a run whose epochs are given.
EPOCH_STEPS, RUN_STEPS = 36, 400
#: Least and most rows of a minibatch.
LEAST_ROWS, MOST_ROWS = 16, 6250
#: Limits in epochs and steps (the longer one counts) of a run without stop rule or budget: with held-out rows; without.
MOST_EPOCHS, MOST_STEPS, BLIND_EPOCHS, BLIND_STEPS = 50, 2000, 10, 400
#: Adam is used where rows have values in at least this share of the columns: AdaGrad's sums of squares only grow, and
#: learn too slowly on dense rows. Below it AdaGrad is used.
DENSE_ROWS = 0.1
#: PMF's l2 penalty times the square root of the mean number of ratings of a user or item.
PMF_PENALTY = 0.52
#: SGD on ratings: the step along a row's own gradient for the row with most ratings, relative to the longest stable
#: one; and the longest step for a single rating.
SGD_STEP, RATING_STEP = 2.0, 0.05
#: Learning rates of the other optimisers for ratings; "per sample" is SGD with a step after every rating.
PMF_RATES = {"adam": 0.005, "adagrad": 0.1, "per sample": 0.05}
#: Learning rates for features, times a row's length (Adam, AdaGrad) or squared length (SGD); FTRL's is used as it is.
LOGISTIC_RATES = {"adam": 0.05, "adagrad": 0.4, "ftrl": 0.5, "sgd": 20.0}
#: The one of SGD for squared losses: at 2 the descent is no longer stable.
SQUARED_SGD_RATE = 1.0
#: ``lazy="auto"`` is True for tables of more than this many times the rows that a minibatch touches.
LAZY_FROM = 4.0
#: Rows that a mean length is computed from, for features that are read from a file.
SAMPLE_ROWS = 100_000


def workers(n_train: int, most: int) -> int:
    """Number of workers for ``n_train`` training rows, at least one and at most ``most``."""
    return max(min(n_train // WORKER_ROWS, WORKERS, most), 1)


def minibatch(n_train: int, n_workers: int, local_steps: int, epochs: float | None) -> int:
    """Rows of a worker's minibatch, such that there are enough steps, and minibatches for every worker."""
    steps = max(EPOCH_STEPS, RUN_STEPS / epochs) if epochs is not None else EPOCH_STEPS
    rows = max(round(n_train / (steps * n_workers)), LEAST_ROWS)
    return max(min(rows, MOST_ROWS, n_train // (n_workers * local_steps)), 1)


def epochs(steps_in_epoch: float, *, has_validation: bool) -> float:
    """Most epochs of a run that has neither stop rule nor budget."""
    least, steps = (MOST_EPOCHS, MOST_STEPS) if has_validation else (BLIND_EPOCHS, BLIND_STEPS)
    return float(max(least, math.ceil(steps / steps_in_epoch)))


def algorithm(model: Model) -> Algorithm:
    """The algorithm for a job that leaves it open."""
    return algorithm_from_json({"kind": model.algorithm or "gradient-averaging"})


def optimizer(model: Model, data: Dataset) -> Optimizer:
    """The optimiser for a job that leaves it open."""
    if model.data_kind == "ratings":
        return SGD(momentum=0.9, nesterov=True)
    n_values = data.X.nnz if isinstance(data, Csr) else data.n_values if isinstance(data, CsrStream) else 0
    return Adam() if n_values >= DENSE_ROWS * data.n * data.shape[0] else AdaGrad()


def resolved(job: TrainingJob, train: Dataset) -> TrainingJob:
    """``job`` with l2 penalty and learning rate chosen where it leaves them open.

    Parameters
    ----------
    train : Dataset
        The job's training rows, in the units of training.
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
            chosen = chosen.resolved(_rounded(_linear_rate(model, chosen, train)))
    return dataclasses.replace(job, model=model, optimizer=chosen)


def adapted(job: TrainingJob, manifest: Manifest) -> TrainingJob:
    """``job`` with the choice that depends on its packed rows: whether its optimiser is lazy."""
    n_rows, _ = job.model.table_shape(manifest.shape)
    optimizer = decided(job.optimizer, n_rows, job.model.n_touched(manifest.n_touched))
    return dataclasses.replace(job, optimizer=optimizer)


def decided(optimizer: Optimizer, n_rows: int, n_touched: int) -> Optimizer:
    """``optimizer`` with ``lazy`` decided, for a table of ``n_rows`` of which a minibatch touches ``n_touched``."""
    if isinstance(optimizer, FTRL) or optimizer.lazy != "auto":
        return optimizer
    return dataclasses.replace(optimizer, lazy=n_rows > LAZY_FROM * n_touched)


def summary(job: TrainingJob, chosen: TrainingJob) -> str:
    """One sentence with the values that ``job`` left open and ``chosen`` has; "" if there are none."""
    parts = []
    if job.optimizer.learning_rate is None:
        parts.append(f"learning rate {chosen.optimizer.learning_rate:g}")
    if job.model.l2 is None:
        parts.append(f"l2 {chosen.model.l2:g}")
    if chosen.optimizer.moves_untouched(chosen.model.dense_l2) != job.optimizer.moves_untouched(chosen.model.dense_l2):
        parts.append("lazy, which skips the many rows that a minibatch does not touch")
    return f"Chosen for these data: {'; '.join(parts)}" if parts else ""


def _pmf_rate(optimizer: Optimizer, share: float, rows: int) -> float:
    """Learning rate for ratings; the most rated user or item has ``share`` of them, a step takes ``rows``."""
    if isinstance(optimizer, (Adam, AdaGrad)):
        return PMF_RATES[optimizer.kind]
    # A row's curvature is its share of the ratings. FTRL starts like SGD, and its rates only fall.
    rate = min(SGD_STEP / share, RATING_STEP * rows)
    if isinstance(optimizer, FTRL):
        return rate
    # Momentum m makes steps 1 / (1 - m) times as long.
    return PMF_RATES["per sample"] if optimizer.per_sample else (1.0 - optimizer.momentum) * rate


def _linear_rate(model: Model, optimizer: Optimizer, train: Any) -> float:
    """Learning rate for rows of features; coefficients of a squared loss are as long as the labels are spread."""
    squared_length = _squared_length(train)
    if not model.has_squared_loss:
        return _logistic_rate(optimizer, squared_length)
    if isinstance(optimizer, SGD):
        return (1.0 - optimizer.momentum) * SQUARED_SGD_RATE / squared_length
    return _logistic_rate(optimizer, squared_length) * (float(np.std(train.y, dtype=np.float64)) or 1.0)


def _logistic_rate(optimizer: Optimizer, squared_length: float) -> float:
    """Learning rate for rows of features with this mean squared length, which includes 1 for the intercept."""
    rate = LOGISTIC_RATES[optimizer.kind]
    if isinstance(optimizer, FTRL):
        return rate
    if isinstance(optimizer, SGD):
        return (1.0 - optimizer.momentum) * rate / squared_length
    return rate / math.sqrt(squared_length)


def _squared_length(train: Dataset) -> float:
    """The mean squared length of the rows, plus 1 for the intercept."""
    if isinstance(train, Csr):
        blocks: Any = iter([train.X])
    elif isinstance(train, StoredRows):
        return stored_squared_length(train) + 1.0
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
    """``value`` at three significant digits, so that the value shown is the value used."""
    return float(f"{value:.3g}")
