"""ISP against BSP: what publishing only significant updates saves, and what it costs in quality, by threshold.

python benchmarks/significance.py [--workers 4] [--runs 5] [--quick]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from report import Report, amount, median, number, parser, runs_of, span, times
from runs import STARTS_ALIKE, measure, packing_s
from sets import folder_of_sets, named

from mlless_nb import BSP, ISP, PMF, SGD, Adam, LogisticRegression, Stop

THRESHOLDS = (0.0, 0.1, 0.3, 0.7, 1.0)
CODECS = ("bf16", "int8")
#: One job a data set; the loss that all are to reach.
JOBS: dict[str, dict[str, Any]] = {
    "ml1m": {
        "model": PMF(rank=20, l2=0.05),
        "optimizer": SGD(30.0, 0.9, nesterov=True, lazy=True),
        "minibatch": 6250,
        "epochs": 20,
        "target": 0.87,
    },
    "ml1m, by rows": {
        "model": PMF(rank=20, l2=0.05),
        "optimizer": SGD(30.0, 0.9, nesterov=True, lazy=True),
        "minibatch": 6250,
        "partition": "rows",
        "epochs": 20,
        "target": 0.87,
    },
    "criteo": {
        "model": LogisticRegression(),
        "optimizer": Adam(0.01, lazy=True),
        "minibatch": 1250,
        "epochs": 6,
        "target": 0.50,
    },
}
#: What the paper reports in figure 5, as far as its text has numbers.
PAPER = (
    "MLLess (journal, figure 5): to the same loss PMF on MovieLens-20M is up to 3 times as quick under ISP as under "
    "BSP, and ISP brings more to dense logistic regression than to sparse; its text has no other speed-up of this "
    "figure. There updates go over a cloud's network. Here Redis is on the workers' machine, where bytes cost little "
    "time; `link.py` has ISP behind a slow link."
)


def variants() -> list[tuple[str, dict[str, Any]]]:
    """(name, fields of `TrainingJob`), BSP first."""
    found: list[tuple[str, dict[str, Any]]] = [("BSP", {"sync": BSP()})]
    found += [(f"ISP({v:g})", {"sync": ISP(v)}) for v in THRESHOLDS]
    return found + [(f"ISP(0.7), {codec}", {"sync": ISP(0.7), "codec": codec}) for codec in CODECS]


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, default=4)
    arguments.add_argument("--data", choices=list(JOBS), nargs="+", default=list(JOBS))
    options = arguments.parse_args()
    report = Report(
        "significance", "What does ISP save over BSP in bytes and time, and does it reach the same held-out loss?"
    )
    figures: dict[str, Any] = {}
    for name in options.data:
        split = named(name.partition(",")[0], folder_of_sets(options.sets))
        job = dict(JOBS[name])
        epochs, target = job.pop("epochs"), job.pop("target")
        epochs = 2 if options.quick else epochs
        steps = int(epochs * split.train.n / job["minibatch"] / options.workers)
        seen: dict[str, list[dict[str, float]]] = {label: [] for label, _ in variants()}
        # They take turns, so that other load meets all alike.
        for _ in range(runs_of(options)):
            for label, fields in variants():
                fields = {**job, **fields, "stop": Stop(epochs=epochs), "eval_every": 5}
                done = measure(split, steps, options.workers, **fields)
                history = done.run.history
                there = np.flatnonzero(history["validation_loss"] <= target)
                trained_s = history["time_s"] - history["time_s"][0]
                seen[label].append(
                    {
                        "sent_bytes": float(history["sent_bytes"].sum()) / options.workers,
                        "step_ms": done.step_ms,
                        "trained_s": float(trained_s[-1]),
                        "startup_s": done.startup_s,
                        "packed_s": packing_s(done.run.job),
                        "target_s": float(trained_s[there[0]]) if there.size else float("nan"),
                        "held_out": float(done.run.telemetry.state.validation_loss or float("nan")),
                    }
                )
        figures[name] = {
            label: {key: median(run[key] for run in runs) for key in runs[0]} for label, runs in seen.items()
        }
        bsp = figures[name]["BSP"]
        report.table(
            f"{split.label}{name[len(name.partition(',')[0]) :]}, P={options.workers}, {epochs} epochs, "
            f"minibatches of {job['minibatch']:,}, {job['optimizer']}",
            [
                "protocol",
                "published by a worker",
                "fewer than BSP",
                "step, ms (range)",
                "training, s",
                f"to {target:g}, s",
                "start-up, s",
                "packing, s",
                "final held-out loss",
                "against BSP",
            ],
            [
                [
                    label,
                    amount(values["sent_bytes"]),
                    times(bsp["sent_bytes"], values["sent_bytes"]),
                    span(run["step_ms"] for run in seen[label]),
                    values["trained_s"],
                    number(values["target_s"]) if values["target_s"] == values["target_s"] else "not reached",
                    values["startup_s"],
                    values["packed_s"],
                    f"{values['held_out']:.4f}",
                    f"{(values['held_out'] / bsp['held_out'] - 1) * 100:+.2f} %",
                ]
                for label, values in figures[name].items()
            ],
        )
    report.remark(
        'Users of MovieLens are sharded across the workers (`partition="auto"`), and but for its end only items are '
        "exchanged; by rows, users are exchanged too."
    )
    report.remark(PAPER)
    report.remark("ISP(0) is BSP bit for bit, in sparse frames; the held-out loss is the run's, of the final model.")
    report.remark(STARTS_ALIKE)
    report.end(workers=options.workers, sets=figures)


if __name__ == "__main__":
    main()
