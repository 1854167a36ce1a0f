"""What a sweep saves that stops weak trials, beside the same trials run to their ends.

python benchmarks/sweep.py [--trials 20] [--budget 0.02] [--runs 2] [--quick]
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from report import Report, median, number, parser, runs_of
from runs import lazy
from sets import ml1m

import mlless_nb
from mlless_nb import BSP, PMF, SGD, ScaleIn, Stop, TrainingJob, choice

#: Epochs of a trial, long enough for the loss of good settings to settle.
EPOCHS = 180
#: LambdaML searches rates of one decade on a grid. Here the penalty has a grid of its own: 5 x 4 = 20 trials.
SPACE = {"learning_rate": choice(1.0, 3.0, 10.0, 30.0, 60.0), "l2": choice(0.02, 0.04, 0.06, 0.1)}


@dataclass(frozen=True)
class Found:
    """What one search found: the best loss, and what the search cost and took; how many trials were stopped early."""

    loss: float
    usd: float
    seconds: float
    n_pruned: int
    settings: Mapping[str, Any]


def searched(job: TrainingJob, budget_usd: float, trials: int, halving: int | None, seed: int) -> Found:
    """Search on the grid, in an order that the seed draws.

    Raises
    ------
    SystemExit
        When the budget was passed, or not all trials were run.
    """
    began = time.perf_counter()
    found = mlless_nb.sweep(
        job, SPACE, budget=budget_usd, trials=trials, sampler="grid", halving=halving, seed=seed, name="search"
    )
    found.wait()
    best = found.best_so_far
    if found.status != "finished" or best is None or best.loss is None or found.spent > budget_usd:
        raise SystemExit(f"{found!r} spent ${found.spent} of ${budget_usd}: {found.reason}")
    n_pruned = sum(trial.status == "pruned" for trial in found.trials)
    return Found(best.loss, found.spent, time.perf_counter() - began, n_pruned, best.settings)


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--trials", type=int, default=20)
    arguments.add_argument("--budget", type=float, default=0.02, help="of a search, US dollars")
    arguments.add_argument("--epochs", type=float, default=EPOCHS)
    options = arguments.parse_args()
    split, trials = ml1m(), 6 if options.quick else options.trials
    job = TrainingJob(
        PMF(rank=20),
        SGD(momentum=0.9, nesterov=True),
        split.train,
        validation=split.held_out,
        sync=BSP(),
        workers=1,
        minibatch=6250,
        stop=Stop(epochs=options.epochs),
        scale_in=ScaleIn.off(),
    )
    report = Report("sweep", "What does a search cost that stops weak trials early, and what does it miss?")
    packed = mlless_nb.train(replace(job, stop=Stop(steps=1)))  # packs the data
    packed.wait()
    rows, cases = [], []
    for seed in range(runs_of(options, 3)):
        early = searched(job, options.budget, trials, 3, seed)
        whole = searched(job, 10 * options.budget, trials, None, seed)
        behind, share = early.loss / whole.loss - 1, early.usd / whole.usd
        settings = ", ".join(f"{name} {value:g}" for name, value in early.settings.items())
        rows.append(
            [
                f"order {seed}",
                f"{early.loss:.4f}",
                f"{whole.loss:.4f}",
                f"{100 * behind:+.2f} %",
                f"{early.usd * 1e3:.3g}",
                f"{whole.usd * 1e3:.3g}",
                f"{100 * share:.0f} %",
                early.n_pruned,
                f"{number(early.seconds)} s",
                f"{number(whole.seconds)} s",
                settings,
            ]
        )
        cases.append({"seed": seed, "loss": early.loss, "whole_loss": whole.loss, "behind": behind, "share": share})
        cases[-1] |= {"mUSD": early.usd * 1e3, "whole_mUSD": whole.usd * 1e3, "pruned": early.n_pruned}
    report.table(
        f"{split.label}, {trials} trials of {options.epochs:g} epochs, cap ${options.budget:g}, {lazy(packed)}: "
        "held-out RMSE and cost",
        [
            *("trials in", "best", "best of whole trials", "behind", "thousandths of a dollar", "whole trials"),
            *("share", "stopped early", "time", "whole trials' time", "the best settings"),
        ],
        rows,
    )
    report.remark(
        "The same trials in the same order, one after the other: once with successive halving (comparisons after 1/27, "
        "1/9 and 1/3 of the epochs, the best third goes on), once all to their ends. Every trial is a run with a start "
        "and an end of its own, which are in its cost. The benchmark fails where a search passes its cap."
    )
    report.end(
        trials=trials,
        share=median(case["share"] for case in cases),
        behind=max(case["behind"] for case in cases),
        cases=cases,
    )


if __name__ == "__main__":
    main()
