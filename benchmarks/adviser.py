"""What `mlless_nb.advise` predicts for runs on this machine, and what they take: seconds and dollars.

The constants of `mlless_nb.adviser.here` were fitted to the first four jobs. The predictions are judged on the others.

python benchmarks/adviser.py [--workers 1 2 4 8 12] [--runs 3] [--quick]
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from report import Report, median, parser, runs_of
from search_sets import a9a, ml100k, mnist
from sets import criteo, imdb, ml1m

import mlless_nb
from mlless_nb import (
    ISP,
    PMF,
    SGD,
    AdaGrad,
    LinearSVM,
    LogisticRegression,
    ScaleIn,
    SoftmaxRegression,
    Stop,
    TrainingJob,
)
from mlless_nb.adviser.here import here
from mlless_nb.adviser.probe import probe
from mlless_nb.money import Rates, price_profile

#: Numbers of epochs, R of LambdaML's figure 13.
EPOCHS = (1, 3, 10, 30, 100)
#: A prediction is near if it is off by at most this share.
NEAR = 0.2
#: What the paper reports of its analytic model.
PAPER = (
    "LambdaML (figure 13) runs logistic regression on Higgs with ten workers for 1 to 100 epochs and finds that its "
    "analytic model approximates the time reasonably well; its text gives no error."
)
#: Of the two groups of jobs.
TITLES = {"fitted": "to which the constants were fitted", "judged": "to which they were not"}
#: What all jobs share: twelve workers have a minibatch each in every step.
COMMON: dict[str, Any] = {"scale_in": ScaleIn.off(), "validation": None, "schedule": "constant", "workers": 12}


def fitted() -> dict[str, TrainingJob]:
    """The jobs to which the constants were fitted."""
    ratings, clicks, common = ml1m().train, criteo().train, COMMON
    return {
        "PMF, MovieLens-1M": TrainingJob(
            PMF(rank=20, l2=0.05), SGD(30.0, 0.9, nesterov=True), ratings, minibatch=6250, **common
        ),
        "the same, rows sharded": TrainingJob(
            PMF(rank=20, l2=0.05), SGD(30.0, 0.9, nesterov=True), ratings, minibatch=6250, partition="rows", **common
        ),
        "logistic regression, Criteo shape": TrainingJob(
            LogisticRegression(l2=1e-6), AdaGrad(0.05), clicks, minibatch=2500, **common
        ),
        "logistic regression, a9a": TrainingJob(
            LogisticRegression(l2=1e-5), SGD(0.5), a9a().train, minibatch=500, **common
        ),
    }


def judged() -> dict[str, TrainingJob]:
    """The jobs on which the predictions are judged; no constant was fitted to them."""
    return {
        "PMF, MovieLens-100K": TrainingJob(
            PMF(rank=10, l2=0.05), AdaGrad(0.05), ml100k().train, minibatch=1000, **COMMON
        ),
        "linear SVM, IMDb": TrainingJob(LinearSVM(l2=1e-5), SGD(0.1), imdb().train, minibatch=500, **COMMON),
        "logistic regression, MNIST, ISP": TrainingJob(
            LogisticRegression(l2=1e-5), AdaGrad(0.01), mnist().train, minibatch=1000, sync=ISP(0.7), **COMMON
        ),
        "softmax regression, MNIST": TrainingJob(
            SoftmaxRegression(n_classes=10, l2=1e-5), SGD(0.1), mnist(10).train, minibatch=600, **COMMON
        ),
        "PMF, MovieLens-1M, rank 8, ISP": TrainingJob(
            PMF(rank=8, l2=0.05), AdaGrad(0.05), ml1m().train, minibatch=2500, sync=ISP(0.7), **COMMON
        ),
    }


def actual(job: TrainingJob, epochs: float) -> list[tuple[float, float, float]]:
    """(epochs, seconds, dollars) of a run at those of `EPOCHS` that it reaches."""
    run = mlless_nb.train(dataclasses.replace(job, stop=Stop(epochs=epochs)))
    if run.wait() != "finished":
        raise SystemExit(f"{run.status}: {run.reason}")
    history = run.history
    rows = [(wanted, int(np.searchsorted(history["epoch"], wanted - 1e-6))) for wanted in EPOCHS if wanted <= epochs]
    return [(wanted, float(history["time_s"][row]), float(history["spent_usd"][row])) for wanted, row in rows]


def main() -> None:
    """Predict, run and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 12])
    options = arguments.parse_args()
    runs, most = runs_of(options, 3), 3 if options.quick else max(EPOCHS)
    report = Report("adviser", "How near are the predictions of `mlless_nb.advise` for runs on this machine?")
    near = {}
    for group, jobs in {"fitted": fitted(), "judged": judged()}.items():
        chosen = dict(list(jobs.items())[:1]) if options.quick else jobs
        near[group] = compare(report, group, chosen, options.workers, runs, most)
    report.remark(PAPER)
    report.end(**near)


def compare(
    report: Report, group: str, jobs: dict[str, TrainingJob], counts: list[int], runs: int, most: float
) -> dict[str, Any]:
    """Predict and run ``jobs`` with each of ``counts`` workers; returns the share of near predictions, and figures."""
    rows, ratios, figures = [], [], []
    for name, job in jobs.items():
        for workers in counts:
            one = dataclasses.replace(job, workers=workers)
            sizes = probe(dataclasses.replace(one, stop=Stop(epochs=1)))
            rates = Rates(price_profile(one.prices), one.memory_mb)
            taken = [actual(one, most) for _ in range(runs)]
            for at in range(len(taken[0])):
                epochs = taken[0][at][0]
                seconds, dollars = (median([run[at][column] for run in taken]) for column in (1, 2))
                told = here(workers, dataclasses.replace(sizes, epochs=epochs), rates)
                ratios.append(told.time_s / seconds)
                figures.append((name, workers, epochs, told.time_s, seconds, told.usd, dollars))
                rows.append(
                    [name, workers, epochs, told.time_s, seconds, ratios[-1], f"{told.usd:.5f}", f"{dollars:.5f}"]
                )
    report.table(
        f"Runs on this machine: jobs {TITLES[group]}",
        ["job", "workers", "epochs", "predicted, s", "actual, s", "predicted / actual", "predicted, $", "actual, $"],
        rows,
    )
    near_s, near_usd = near_share(ratios), near_share([usd / actual_usd for *_, usd, actual_usd in figures])
    report.remark(
        f"Of {len(ratios)} predictions, {near_s:.0%} of the times and {near_usd:.0%} of the bills are within "
        f"{NEAR:.0%} of the actual ones."
    )
    return {"near": near_s, "near_usd": near_usd, "figures": figures}


def near_share(ratios: list[float]) -> float:
    """The share of ``ratios`` that are within `NEAR` of one."""
    return float(np.mean(np.abs(np.array(ratios) - 1.0) <= NEAR))


if __name__ == "__main__":
    main()
