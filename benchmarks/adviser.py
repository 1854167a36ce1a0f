"""What `mlless_nb.advise` predicts for runs on this machine, and what they take: seconds and dollars.

python benchmarks/adviser.py [--workers 1 2 4 8 12] [--runs 3] [--quick]
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from report import Report, median, parser, runs_of
from sets import criteo, ml1m

import mlless_nb
from mlless_nb import PMF, SGD, AdaGrad, LogisticRegression, ScaleIn, Stop, TrainingJob
from mlless_nb.adviser.here import here
from mlless_nb.adviser.probe import probe
from mlless_nb.money import Rates, price_profile

#: Numbers of epochs, R of LambdaML's figure 13.
EPOCHS = (1, 3, 10, 30, 100)
#: A prediction is near if it is off by at most this share.
NEAR = 0.2


def jobs(quick: bool) -> dict[str, TrainingJob]:
    """The jobs whose time is predicted: of twelve workers, which have a minibatch each in every step."""
    common: dict[str, Any] = {"scale_in": ScaleIn.off(), "validation": None, "schedule": "constant", "workers": 12}
    ratings, clicks = ml1m().train, criteo().train
    found = {
        "PMF, MovieLens-1M": TrainingJob(
            PMF(rank=20, l2=0.05), SGD(30.0, 0.9, nesterov=True), ratings, minibatch=6250, **common
        ),
        "the same, rows sharded": TrainingJob(
            PMF(rank=20, l2=0.05), SGD(30.0, 0.9, nesterov=True), ratings, minibatch=6250, partition="rows", **common
        ),
        "logistic regression, Criteo shape": TrainingJob(
            LogisticRegression(l2=1e-6), AdaGrad(0.05), clicks, minibatch=2500, **common
        ),
    }
    return dict(list(found.items())[:1]) if quick else found


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
    rows, ratios, figures = [], [], []
    for name, job in jobs(options.quick).items():
        for workers in options.workers:
            one = dataclasses.replace(job, workers=workers)
            sizes = probe(dataclasses.replace(one, stop=Stop(epochs=1))).sizes
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
        "Runs on this machine",
        ["job", "workers", "epochs", "predicted, s", "actual, s", "predicted / actual", "predicted, $", "actual, $"],
        rows,
    )
    share = float(np.mean(np.abs(np.array(ratios) - 1.0) <= NEAR))
    report.remark(f"{share:.0%} of {len(ratios)} predicted times are within {NEAR:.0%} of the actual ones.")
    report.end(near=share, figures=figures)


if __name__ == "__main__":
    main()
