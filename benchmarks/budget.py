"""How much of a budget a run uses that has no other rule to end it, and that it never passes it.

python benchmarks/budget.py [--workers 1 4 8] [--budgets 0.004] [--runs 5] [--quick]
"""

from __future__ import annotations

import itertools
from typing import Any

from report import Report, median, parser, runs_of, span
from runs import lazy
from sets import ml1m

import mlless_nb
from mlless_nb import ISP, PMF, SGD, BudgetError, ScaleIn, Stop, TrainingJob
from mlless_nb.data.dataset import Dataset

#: So many times the least budget that allows a step is the smallest of which nearly all is promised to be used.
TIMES_LEAST = 5


def job_of(data: Dataset, workers: int, **options: Any) -> TrainingJob:
    """The README's cell."""
    return TrainingJob(
        PMF(rank=20, l2=0.05),
        SGD(learning_rate=30.0, momentum=0.9, nesterov=True),
        data,
        sync=ISP(0.7),
        workers=workers,
        **options,
    )


def least_usd(data: Dataset, workers: int) -> float:
    """The least budget that a job may have, as its refusal says; its data is packed before."""
    mlless_nb.train(job_of(data, workers, stop=Stop(steps=1))).wait()
    try:
        mlless_nb.train(job_of(data, workers, budget=1e-9))
    except BudgetError as error:
        return float(error.valid.split()[2])
    raise SystemExit("a budget of nothing was not refused")


def used(data: Dataset, workers: int, usd: float, scale_in: ScaleIn) -> dict[str, Any]:
    """The share of a budget that a run used, and how it went.

    Raises
    ------
    SystemExit
        When the budget was passed, or nothing came of the run.
    """
    run = mlless_nb.train(job_of(data, workers, budget=usd, scale_in=scale_in))
    run.wait()
    if run.cost.total > usd or run.status != "capped" or not run.history.n_steps:
        raise SystemExit(f"${run.cost.total} of ${usd} and {run.history.n_steps} steps, {run.status}: {run.reason}")
    return {
        "lazy": lazy(run),
        "share": run.cost.total / usd,
        "steps": run.history.n_steps,
        "left": run.history["n_workers"][-1],
    }


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, nargs="+", default=[1, 4, 8])
    arguments.add_argument("--budgets", type=float, nargs="+", default=[])
    options = arguments.parse_args()
    split, runs = ml1m(), runs_of(options)
    report = Report("budget", "How much of a budget does a run use that has nothing else to end it?")
    least = {workers: least_usd(split.train, workers) for workers in options.workers}
    tuners = {"ScaleIn()": ScaleIn(), "ScaleIn.off()": ScaleIn.off()}
    asked = [
        (workers, usd, tuner)
        for workers, tuner in itertools.product(options.workers, tuners)
        for usd in sorted({*options.budgets, round(TIMES_LEAST * least[workers], 6)})
        if usd > least[workers]
    ]
    found: dict[Any, list[dict[str, Any]]] = {one: [] for one in asked}
    for _ in range(runs):
        for one in asked:
            workers, usd, tuner = one
            found[one].append(used(split.train, workers, usd, tuners[tuner]))
    rows, cases = [], []
    for (workers, usd, tuner), all_of in found.items():
        shares = [one["share"] for one in all_of]
        steps = median(one["steps"] for one in all_of)
        rows.append(
            [
                f"{workers}, {tuner}, {all_of[0]['lazy']}",
                f"{usd * 1e3:.3g}",
                f"{usd / least[workers]:.2g}",
                span(100 * s for s in shares),
                steps,
            ]
        )
        cases.append({"P": workers, "tuner": tuner, "mUSD": usd * 1e3, "times_least": usd / least[workers]})
        cases[-1] |= {"shares": shares, "steps": steps}
    report.table(
        f"{split.label}, the cell of the README with a budget and no rule to end it",
        ["P, tuner, lazy rows", "budget, thousandths of a dollar", "x the least", "used, % (range)", "steps"],
        rows,
    )
    report.remark(
        "By the metered price. What is not used was kept to end in good order (to hand over, evaluate, store the "
        "models and end the functions) and not needed, or is less than the next second of the servers, which are "
        "billed by the second. No run passed its budget: the benchmark fails where one does."
    )
    report.end(runs=runs, cases=cases)


if __name__ == "__main__":
    main()
