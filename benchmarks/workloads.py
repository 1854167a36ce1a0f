"""The four workloads that the supervisor's policy is measured on: jobs of eight workers, with the loss to reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlless_nb import PMF, SGD, Adam, LogisticRegression

WORKERS = 8


@dataclass(frozen=True)
class Workload:
    """A job on one of the data sets.

    Attributes
    ----------
    fields : dict
        Of `TrainingJob`.
    target : float
        Held-out loss to reach: near where a run with all its workers settles, as where the paper's runs end.
    steps : int
        Of a run that shows the whole curve.
    paper : str
        What the paper says of its tuner on the nearest of its workloads (journal, P=24).
    """

    fields: dict[str, Any]
    target: float
    steps: int
    paper: str


#: On the data as they are, at a rate that stays: the targets are of these.
FACTORS = PMF(rank=20, l2=0.05, init_scale=0.1, standardize=False)
LINEAR = LogisticRegression(l2=0.0, scale=False)
STAYS = {"schedule": "constant"}

WORKLOADS = {
    "ml1m": Workload(
        {"model": FACTORS, "optimizer": SGD(30.0, 0.9, nesterov=True, lazy=True), "minibatch": 6250} | STAYS,
        0.855,
        1000,
        "PMF ML-20M: Perf/$ up to 1.6x",
    ),
    "criteo": Workload(
        {"model": LINEAR, "optimizer": Adam(0.005, lazy=True), "minibatch": 1250} | STAYS,
        0.497,
        1000,
        "sparse LR: Perf/$ 1.4x to 1.5x",
    ),
    "imdb": Workload(
        {"model": LINEAR, "optimizer": Adam(0.01, lazy=True), "minibatch": 250} | STAYS,
        0.3,
        1000,
        "sparse LR: Perf/$ 1.4x to 1.5x",
    ),
    "syn10m": Workload(
        {"model": FACTORS, "optimizer": SGD(100.0, 0.9, nesterov=True, lazy=True), "minibatch": 12_500} | STAYS,
        0.8,
        2500,
        "PMF ML-10M: 7.1 % slower, Perf/$ better all the same",
    ),
}
