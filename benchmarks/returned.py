"""What a budget alone buys: the held-out loss of the model that a run returns, by its cap and by what is switched off.

python benchmarks/returned.py [--budgets 0.002 0.004 0.01] [--workers 4 8] [--only default ...] [--runs 5]
    [--others 1] [--quick]
"""

from __future__ import annotations

import json
import sys
from typing import Any

from libraries import rmse
from report import Report, median, parser, runs_of
from runs import lazy
from sets import Split, named

import mlless_nb
from mlless_nb import ISP, PMF, SGD, ScaleIn, TrainingJob

#: The README's cell with nothing but a budget, and what is asked of it otherwise.
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "all workers stay": {"scale_in": ScaleIn.off()},
    "constant rate": {"schedule": "constant"},
    "all stay, constant rate": {"scale_in": ScaleIn.off(), "schedule": "constant"},
    "the global minibatch shrinks": {"scale_in": ScaleIn(global_minibatch="shrink"), "schedule": "constant"},
}
#: Runs of one budget are as many as together cost so much at most: what many dollars buy varies little.
MOST_RUNS_USD = 0.012
#: Rows that are held out to know the best model by: a tenth of the training rows, or the very rows of the table.
HELD_OUT = ("a tenth of the training rows", "the 100,203 rows themselves")


def train(split: Split, budget: float, workers: int, seed: int, is_told: bool, way: dict[str, Any]) -> dict[str, Any]:
    """One run: the held-out RMSE of the model that it returns and of its last one, steps, dollars, workers left."""
    job = TrainingJob(
        PMF(rank=20, l2=0.05),
        SGD(30.0, momentum=0.9, nesterov=True),
        split.train,
        sync=ISP(0.7),
        workers=workers,
        budget=budget,
        seed=seed,
        validation=split.held_out if is_told else 0.1,
        **way,
    )
    run = mlless_nb.train(job)
    run.wait()
    if run.status != "capped" or not run.history.n_steps:
        raise SystemExit(f"{job!r} ended as {run.status}: {run.reason}")
    held_out = split.held_out
    losses = [
        rmse(model.predict(held_out.users, held_out.items), held_out.ratings) for model in (run.model, run.last_model)
    ]
    return {
        "lazy": lazy(run),
        "returned": losses[0],
        "last": losses[1],
        "steps": run.history.n_steps,
        "spent": run.cost.total / budget,
        "workers": int(run.history["n_workers"][-1]),
    }


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--budgets", type=float, nargs="+", default=[0.002, 0.004, 0.01])
    arguments.add_argument("--workers", type=int, nargs="+", default=[4, 8])
    arguments.add_argument("--only", choices=list(WAYS), nargs="+", default=list(WAYS))
    arguments.add_argument("--held-out", choices=range(2), type=int, nargs="+", default=[0, 1])
    arguments.add_argument("--others", type=int, default=1, help="runs of each way but the default")
    options = arguments.parse_args()
    report = Report("returned", "How good is the model that a budget alone buys?")
    split, figures = named("ml1m"), []
    budgets = options.budgets[:1] if options.quick else options.budgets
    for number in options.held_out:
        rows = []
        # The rows of the table as validation: one budget of the default is enough to know what better advice buys.
        asked = budgets if number == 0 else budgets[:1]
        for budget in asked:
            # What is switched off is seen at the least of the budgets; with more of them all come to the same.
            ways = options.only if number == 0 and budget == budgets[0] else options.only[:1]
            most = max(round(MOST_RUNS_USD / budget), 1)
            for workers in options.workers:
                found = {}
                for name in ways:
                    runs = []
                    for seed in range(runs_of(options, most) if name == "default" else options.others):
                        runs.append(train(split, budget, workers, seed, number == 1, WAYS[name]))
                        one = {"held_out": HELD_OUT[number], "budget": budget, "P": workers, "way": name, "seed": seed}
                        figures.append(one | runs[-1])
                        print(json.dumps(figures[-1]), file=sys.stderr, flush=True)
                    found[name] = runs
                cells = [
                    f"{median(run['returned'] for run in runs):.4f} (last {median(run['last'] for run in runs):.4f})"
                    for runs in found.values()
                ]
                first = found[ways[0]]
                worst, spent = max(run["returned"] for run in first), min(run["spent"] for run in first)
                best = min(median(run["returned"] for run in runs) for runs in found.values())
                behind = median(run["returned"] for run in first) / best - 1
                cells += ["-"] * (len(options.only) - len(cells)) if number == 0 else []
                rows.append([f"${budget:g}, P={workers}", *cells, len(first), f"{worst:.4f}", f"{100 * spent:.1f} %"])
                rows[-1].append(f"{100 * behind:.2f} %")
        ways = options.only if number == 0 else options.only[:1]
        heads = [
            "budget",
            *ways,
            f"runs, {ways[0]}",
            f"worst, {ways[0]}",
            "of the cap spent, least",
            f"{ways[0]} behind the best",
        ]
        report.table(f"{split.label}: RMSE of the model returned; to know the best by: {HELD_OUT[number]}", heads, rows)
    laziness = dict.fromkeys(f"P={one['P']}: {one['lazy']}" for one in figures)
    report.remark(
        "PMF of rank 20, l2 0.05, SGD with rate 30 and Nesterov momentum 0.9, ISP(0.7), no rule but the budget; "
        f"medians of the runs of the default (as many as the column says: ${MOST_RUNS_USD:g} together at most), and of "
        f"{options.others} of the others. {'; '.join(laziness)}. "
        "Dollars are of AWS Lambda's list prices for the time that runs take here: a slower machine buys fewer steps."
    )
    report.end(runs=runs_of(options), cases=figures)


if __name__ == "__main__":
    main()
