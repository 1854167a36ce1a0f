"""Seconds to a held-out quality: ours against PyTorch DDP and the libraries one would pick on one machine.

python benchmarks/accuracy.py [--data ml1m criteo] [--runs 5] [--sets FOLDER] [--quick]
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import ddp
import libraries
import numpy as np
from report import Report, median, number, parser, runs_of
from runs import measure
from sets import Split, folder_of_sets, named

from mlless_nb import ISP, PMF, SGD, AdaGrad, Adam, LogisticRegression, Stop

#: Held-out RMSE and log loss to reach, and the mean squared error on training minibatches.
TARGETS = {"ml1m": (0.87, 0.86, 0.855), "criteo": (0.51, 0.50, 0.497)}
TRAINING_MSE = 0.74
#: Ours: fields of `TrainingJob`, `workers` and `epochs` among them.
OURS: dict[str, dict[str, dict[str, Any]]] = {
    "ml1m": {
        "ours, P=2, rating by rating, by user": {
            "model": PMF(rank=20, l2=0.04, init_scale=0.02),
            "optimizer": SGD(0.08, decay=0.016, per_sample=True),
            "schedule": "constant",
            "sync": ISP(0.7),
            "minibatch": 2500,
            "local_steps": 18,
            "aggregate": "sum",
            "partition": "user",
            "workers": 2,
            "epochs": 20,
            "eval_every": 10,
        },
        "ours, P=1, rating by rating": {
            "model": PMF(rank=20, l2=0.04, init_scale=0.02),
            "optimizer": SGD(0.08, decay=0.008, per_sample=True),
            "schedule": "constant",
            "minibatch": 2500,
            "local_steps": 36,
            "workers": 1,
            "epochs": 20,
            "eval_every": 10,
        },
        "ours, P=4, minibatches, ISP(0.7)": {
            "model": PMF(rank=20, l2=0.05),
            "optimizer": SGD(30.0, 0.9, nesterov=True, lazy=True),
            "sync": ISP(0.7),
            "minibatch": 6250,
            "workers": 4,
            "epochs": 25,
            "eval_every": 6,
        },
    },
    "criteo": {
        "ours, P=2, AdaGrad, 10 local steps": {
            "model": LogisticRegression(),
            "optimizer": AdaGrad(0.1),
            "sync": ISP(0.7),
            "minibatch": 500,
            "local_steps": 10,
            "workers": 2,
            "epochs": 3,
            "eval_every": 3,
        },
        "ours, P=4, Adam": {
            "model": LogisticRegression(),
            "optimizer": Adam(0.01, lazy=True),
            "sync": ISP(0.7),
            "minibatch": 1250,
            "workers": 4,
            "epochs": 6,
            "eval_every": 4,
        },
    },
}
#: PyTorch DDP: fields of its task; processes in ``workers``.
DDP: dict[str, dict[str, dict[str, Any]]] = {
    "ml1m": {
        f"PyTorch DDP, P={workers}": {
            "workers": workers,
            "learning_rate": 30.0,
            "momentum": 0.9,
            "rank": 20,
            "l2": 0.05,
            "minibatch": 6250,
            "epochs": 20,
            "eval_every": 12 // workers,
        }
        for workers in (1, 4)
    },
    "criteo": {
        f"PyTorch DDP, P={workers}": {
            "workers": workers,
            "learning_rate": 0.01,
            "minibatch": 1250,
            "epochs": 5,
            "eval_every": 8 // workers,
        }
        for workers in (1, 4)
    },
}

#: A curve: rows of (seconds of training, training loss, held-out loss); NaN where it was not measured.
Curve = np.ndarray


def ours(split: Split, job: dict[str, Any]) -> tuple[Curve, dict[str, float]]:
    """The run's own history as a curve, and what else came of it; the model is judged here, on the held-out rows."""
    fields = dict(job)
    epochs, workers = fields.pop("epochs"), fields.pop("workers")
    rows_a_step = fields["minibatch"] * fields.get("local_steps", 1) * workers
    steps = math.ceil(epochs * split.train.n / rows_a_step)
    done = measure(split, steps, workers, **{**fields, "stop": Stop(epochs=epochs)})
    history, model = done.run.history, done.run.model
    if split.train.kind == "csr":
        final = libraries.log_loss(model.predict_proba(split.held_out.X)[:, 1], split.held_out.y)
        loss = history["loss"]
    else:
        final = libraries.rmse(model.predict(split.held_out.users, split.held_out.items), split.held_out.ratings)
        loss = history["loss"] ** 2
    window = np.ones(min(ddp.SMOOTHED_STEPS, len(loss)))
    smoothed = np.convolve(loss, window / window.size)[: len(loss)]
    smoothed[: window.size - 1] = np.nan
    # The first step began a step before it ended.
    trained_s = history["time_s"] - history["time_s"][0] + done.step_ms / 1e3
    return np.column_stack([trained_s, smoothed, history["validation_loss"]]), {
        "returned_model": final,
        "startup_s": done.startup_s,
    }


def peer(split: Split, task: dict[str, Any]) -> Curve | str:
    """PyTorch DDP's curve, or why there is none; evaluations are not in its seconds."""
    ranks = ddp.train(split, **task)
    if isinstance(ranks, str):
        return ranks
    curves = np.array([rank["curve"] for rank in ranks])
    return np.column_stack([curves[0, :, 0], curves[:, :, 1].mean(0), curves[0, :, 2]])


def reached_s(curve: Curve, column: int, target: float) -> float:
    """Seconds of training until ``column`` was at ``target``; NaN where it never was."""
    there = np.flatnonzero(curve[:, column] <= target)
    return float(curve[there[0], 0]) if there.size else float("nan")


def contenders(name: str, split: Split, quick: bool) -> Iterator[tuple[str, Any, int]]:
    """(name, function to a curve and more, or to why there is none; how often at most)."""
    for label, job in OURS[name].items():
        yield label, lambda job=job: ours(split, {**job, "epochs": 3} if quick else job), 99
    for label, task in DDP[name].items():
        yield label, lambda task=task: peer(split, {**task, "epochs": 2} if quick else task), 3
    for label, fit, most in libraries.FITS[split.train.kind]:
        yield label, lambda fit=fit: fit(split, quick), most


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--data", choices=["ml1m", "criteo"], nargs="+", default=["ml1m", "criteo"])
    options = arguments.parse_args()
    report = Report("accuracy", "How many seconds of training does a held-out quality take, here and elsewhere?")
    figures: dict[str, Any] = {}
    for name in options.data:
        split, targets, rows = named(name, folder_of_sets(options.sets)), TARGETS[name], []
        is_csr = split.train.kind == "csr"
        figures[name] = {}
        for label, run, most in contenders(name, split, options.quick):
            times, finals, extras = [], [], []
            for _ in range(min(runs_of(options), most)):
                result = run()
                if isinstance(result, str):
                    break
                curve, extra = result if isinstance(result, tuple) else (result, {})
                reached = [reached_s(curve, 2, target) for target in targets]
                times.append([*reached, reached_s(curve, 1, TRAINING_MSE) if not is_csr else float("nan")])
                held_out = curve[~np.isnan(curve[:, 2])]
                finals.append((held_out[:, 2].min(), held_out[-1, 0]))
                extras.append(extra)
            if not times:
                rows.append([label, result, *[None] * (len(targets) + 3 + (not is_csr))])
                figures[name][label] = result
                continue
            reached = [
                median(column) if not np.isnan(column).any() else float("nan") for column in zip(*times, strict=True)
            ]
            best, end_s = median(final for final, _ in finals), median(end for _, end in finals)
            returned = median(extra.get("returned_model", float("nan")) for extra in extras)
            startup_s = median(extra.get("startup_s", float("nan")) for extra in extras)
            cells = [f"{number(seconds)} s" if seconds == seconds else "not reached" for seconds in reached]
            rows.append(
                [
                    label,
                    *cells[: len(targets)],
                    *([] if is_csr else cells[-1:]),
                    f"{best:.4f}",
                    end_s,
                    four(returned),
                    startup_s,
                ]
            )
            figures[name][label] = {
                "reached_s": dict(zip(map(str, targets), reached, strict=False)),
                **({} if is_csr else {"training_mse_s": reached[-1]}),
                "best": best,
                "end_s": end_s,
                "returned_model": returned,
                "startup_s": startup_s,
                "runs": len(times),
            }
        metric = "log loss" if is_csr else "RMSE"
        report.table(
            f"{split.label}: seconds of training to a held-out {metric}",
            [
                "contender",
                *(f"{target:g}" for target in targets),
                *([] if is_csr else [f"training MSE {TRAINING_MSE:g}"]),
                f"best {metric}",
                "training, s",
                "returned model",
                "start-up, s",
            ],
            rows,
        )
    report.remark(
        "Ours: held-out figures along the way are the run's own validation history, whose evaluations are in its "
        "seconds; the returned model's is computed here, on the held-out rows. The others' are computed here, and "
        "their seconds are of fitting alone. Training MSE is a mean over 10 steps for ours and DDP, over all rows for "
        "libraries. Start-up, from the call to the end of the first step, comes on top."
    )
    report.end(sets=figures)


def four(value: float) -> str:
    """A loss as a cell."""
    return f"{value:.4f}" if value == value else "-"


if __name__ == "__main__":
    main()
