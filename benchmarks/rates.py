"""The learning rates that PyTorch DDP is given: for each held-out quality the one of a grid that is soonest there.

    python benchmarks/rates.py [--data ml1m criteo] [--sets FOLDER] [--quick]

P processes that average the gradients of minibatches of B rows take the steps of one process with minibatches of P x B,
which is what is trained here: epochs and losses are the same, and the machine's load does not matter to them. The best
rates are written to rates.json, where `accuracy.py` reads them (not with ``--quick``).
"""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import ddp
import numpy as np
from contenders import CHOSEN, DDP_KINDS, DDP_WORKERS, TARGETS, ddp_label, ddp_task, grid
from libraries import THREADS
from report import NOT_INSTALLED, Report, number, parser, version
from sets import folder_of_sets, named

QUICK_EPOCHS = 1
#: Evaluations are so many times fewer than where seconds are measured.
FEWER = 3
#: Rates beyond the grid that are tried one after the other.
MOST_BEYOND = 2

#: Epochs to each target, NaN where it is not reached, and the best held-out loss.
Outcome = tuple[list[float], float]


def outcome(asked: tuple[str, str, int, float], sets: str | None, quick: bool) -> Outcome:
    """(epochs to each target, NaN where it is not reached; the best held-out loss) at one rate."""
    name, kind, workers, rate = asked
    task = ddp_task(name, kind, workers, rate)
    task["eval_every"] *= FEWER
    task.update(minibatch=task["minibatch"] * workers, workers=1, epochs=QUICK_EPOCHS if quick else task["epochs"])
    ranks = ddp.train(named(name, folder_of_sets(sets)), **task)
    if isinstance(ranks, str):
        raise SystemExit(f"{asked}: {ranks}")
    losses = np.array([loss for _, _, loss in ranks[0]["curve"]], float)
    epochs = np.arange(1, len(losses) + 1) * task["epochs"] / len(losses)
    reached = [np.flatnonzero(losses <= target) for target in TARGETS[name]]
    return [float(epochs[there[0]]) if there.size else float("nan") for there in reached], float(np.nanmin(losses))


def best_for(found: dict[float, Outcome], target: int) -> float | None:
    """The rate that is soonest at the target of this number; None where no rate reaches it."""
    there = {rate: epochs[target] for rate, (epochs, _) in found.items() if epochs[target] == epochs[target]}
    return min(there, key=lambda rate: there[rate]) if there else None


def best_of(found: dict[float, Outcome]) -> float:
    """The rate that is soonest at the hardest target that any of them reaches; else that with the least loss."""
    for target in reversed(range(len(next(iter(found.values()))[0]))):
        best = best_for(found, target)
        if best is not None:
            return best
    return min(found, key=lambda rate: found[rate][1])


def chosen_of(found: dict[float, Outcome], targets: tuple[float, ...], epochs: float) -> dict[str, dict[str, float]]:
    """By target that any rate reaches, the best rate and the epochs that it needs; if there is none, by the hardest."""
    chosen = {}
    for number_, target in enumerate(targets):
        best = best_for(found, number_)
        if best is not None:
            chosen[f"{target:g}"] = {"rate": best, "epochs": round(found[best][0][number_], 3)}
    return chosen or {f"{targets[-1]:g}": {"rate": best_of(found), "epochs": epochs}}


def outcomes_of(name: str, sets: str | None, quick: bool) -> dict[tuple[str, int], dict[float, Any]]:
    """By kind of gradients and processes: by rate, its `outcome`. Where the best rate is the least or the largest of
    the grid, one beyond it is tried as well."""
    found: dict[tuple[str, int], dict[float, Any]] = {one: {} for one in itertools.product(DDP_KINDS, DDP_WORKERS)}
    asked = [(one, rate) for one in found for rate in grid(name, *one)[: 1 if quick else None]]
    with ProcessPoolExecutor(THREADS) as pool:
        for _ in range(1 + MOST_BEYOND):
            tasks = [(name, *one, rate) for one, rate in asked]
            n = len(tasks)
            for (one, rate), outcome_ in zip(asked, pool.map(outcome, tasks, [sets] * n, [quick] * n), strict=True):
                found[one][rate] = outcome_
            beyond = [(one, rate) for one, tried in found.items() if (rate := beyond_of(tried)) is not None]
            if quick or not beyond:
                break
            asked = beyond
    return {one: dict(sorted(tried.items())) for one, tried in found.items()}


def beyond_of(tried: dict[float, Any]) -> float | None:
    """The next rate to try, where the best one is at the edge of those that were."""
    best = best_of(tried)
    factor = 2.0 if best == max(tried) else 0.5 if best == min(tried) else 0.0
    return float(f"{best * factor:.3g}") if factor else None


def main() -> None:
    """Try all and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--data", choices=list(TARGETS), nargs="+", default=list(TARGETS))
    options = arguments.parse_args()
    report = Report("rates", "Which learning rate is the best for PyTorch DDP?")
    if version("torch") is None:
        report.remark(f"PyTorch: {NOT_INSTALLED}.")
        report.end(skipped=NOT_INSTALLED)
        return
    figures: dict[str, Any] = {}
    chosen = json.loads(CHOSEN.read_text(encoding="utf-8")) if CHOSEN.is_file() else {}
    for name in options.data:
        chosen[name] = {kind: {} for kind in DDP_KINDS}
        outcomes = outcomes_of(name, options.sets, options.quick)
        rows = []
        for kind in DDP_KINDS:
            for workers in DDP_WORKERS:
                found = outcomes[kind, workers]
                chosen_here = chosen_of(found, TARGETS[name], ddp_task(name, kind, workers, 1.0)["epochs"])
                chosen[name][kind][str(workers)] = chosen_here
                for rate, (epochs, loss) in found.items():
                    mark = ", ".join(target for target, one in chosen_here.items() if one["rate"] == rate) or "-"
                    cells = [number(one) if one == one else "not reached" for one in epochs]
                    rows.append([ddp_label(name, kind, workers), f"{rate:g}", *cells, f"{loss:.4f}", mark])
                    figures[f"{rows[-1][0]}, {rate:g}"] = {"epochs": epochs, "best": loss, "mark": mark}
        heads = [f"epochs to {target:g}" for target in TARGETS[name]]
        label, epochs = named(name, folder_of_sets(options.sets)).label, ddp_task(name, "dense", 1, 1.0)["epochs"]
        report.table(
            f"{label}, {QUICK_EPOCHS if options.quick else epochs} epochs",
            ["contender", "rate", *heads, "best held-out loss", "chosen for"],
            rows,
        )
    if not options.quick:
        CHOSEN.write_text(json.dumps(chosen, indent=2) + "\n", encoding="utf-8")
    report.remark(
        "For each target the rate is chosen that is soonest there; `accuracy.py` trains with all that are chosen. "
        "Where the best one for the hardest target is at a grid's edge, rates beyond it are tried. P processes are "
        "stood for by one with minibatches P times as large."
    )
    report.end(rates=figures)


if __name__ == "__main__":
    main()
