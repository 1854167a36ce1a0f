"""How well the mind's curves see ahead: both fits 50 to 200 steps ahead, and the forecast at half of the run.

python benchmarks/curves.py [--data ml1m criteo imdb syn10m] [--runs 5] [--sets FOLDER] [--quick]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from report import Report, median, number, parser, runs_of
from sets import folder_of_sets, named
from workloads import WORKERS, WORKLOADS, Workload

import mlless_nb
from mlless_nb import ScaleIn, Stop, TrainingJob
from mlless_nb.mind.advice import Advice
from mlless_nb.mind.curves import fit
from mlless_nb.mind.knee import find_knee
from mlless_nb.mind.outlook import Prices
from mlless_nb.telemetry import COLUMNS

AHEAD = (50, 100, 200)
#: Steps between two predictions.
EVERY = 10
#: Records around a step whose mean stands for its training loss.
AROUND = 10

Rows = NDArray[np.float64]


def record(split: Any, work: Workload, seed: int, quick: bool) -> tuple[Rows, Prices]:
    """The rows of a run with all its workers, and its prices."""
    stop = Stop(steps=work.steps // 2 if quick else work.steps)
    job = TrainingJob(
        data=split.train,
        validation=split.held_out,
        workers=WORKERS,
        stop=stop,
        scale_in=ScaleIn.off(),
        seed=seed,
        **work.fields,
    )
    run = mlless_nb.train(job)
    run.wait()
    if run.status != "finished":
        raise SystemExit(f"{job!r} ended as {run.status}: {run.reason}")
    rows = run.telemetry.rows_since(0)
    usd_s = np.diff(rows[[5, -1], COLUMNS.index("spent_usd")])[0] / np.diff(rows[[5, -1], COLUMNS.index("time_s")])[0]
    # The split between workers and the rest does not matter while nobody leaves.
    return rows, Prices(usd_s / WORKERS, 0.0)


def errors(rows: Rows, family: str, judged: str) -> dict[int, list[float]]:
    """Relative errors by steps ahead, predicted every `EVERY` steps from the knee on."""
    steps, training = rows[:, 0], rows[:, COLUMNS.index("loss")]
    values = rows[:, COLUMNS.index(judged)]
    known = np.isfinite(values)
    at, losses = steps[known], values[known]
    knee = next((n for n in range(50, len(steps), EVERY) if find_knee(steps[:n], training[:n])), len(steps))
    found: dict[int, list[float]] = {ahead: [] for ahead in AHEAD}
    for now in range(knee, len(steps), EVERY):
        seen = at <= now
        curve = fit(at[seen], losses[seen], family)
        if curve is None:
            continue
        for ahead in AHEAD:
            around = np.abs(at - now - ahead) <= (AROUND / 2 if judged == "loss" else 0)
            if now + ahead <= steps[-1] and around.any():
                truth = float(losses[around].mean())
                found[ahead].append(abs(curve.at(now + ahead) / truth - 1))
    return found


def backtest(rows: Rows, prices: Prices, target: float) -> dict[str, float] | None:
    """The forecast made at half of the way to the target, against what it took; None where it was not reached."""
    held_out = rows[:, COLUMNS.index("validation_loss")]
    there = np.flatnonzero(held_out <= target)
    if not there.size:
        return None
    advice = Advice(ScaleIn().to_json(), WORKERS, {"target": target}, prices)
    for row in rows[: there[0] // 2]:
        advice.append(row.tolist())
    forecast = advice.forecast(None)
    if forecast is None or forecast["usd_to_target"] is None:
        return {"error": float("inf"), "inside": 0.0}
    took = rows[there[0], COLUMNS.index("spent_usd")]
    low, expected, high = forecast["usd_to_target"]
    return {"error": abs(expected / took - 1), "inside": float(low <= took <= (high or np.inf))}


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--data", choices=list(WORKLOADS), nargs="+", default=list(WORKLOADS))
    options = arguments.parse_args()
    report = Report("curves", "How far off are the curves, 50 to 200 steps ahead, and the forecast at half of a run?")
    figures: dict[str, Any] = {}
    rows, forecasts = [], []
    for name in options.data:
        split, work = named(name, folder_of_sets(options.sets)), WORKLOADS[name]
        runs = [record(split, work, seed, options.quick) for seed in range(runs_of(options))]
        figures[name] = {}
        for judged in ("validation_loss", "loss"):
            for family in ("reference", "current"):
                found = [errors(run, family, judged) for run, _ in runs]
                cells = []
                for ahead in AHEAD:
                    all_errors = [100 * error for one in found for error in one[ahead]]
                    middle = median(all_errors)
                    high = float(np.percentile(all_errors, 95)) if all_errors else float("nan")
                    figures[name][f"{judged} {family} {ahead}"] = [middle, high]
                    cells.append(f"{number(middle)}, {number(high)}")
                label = "held-out" if judged == "validation_loss" else "training"
                rows.append([f"{name}, {label} loss, {family}", *cells, "below 1.5"])
        tested = [one for run, prices in runs if (one := backtest(run, prices, work.target)) is not None]
        figures[name]["forecast"] = tested
        within = sum(one["error"] <= 0.15 for one in tested)
        forecasts.append(
            [
                f"{name}, to {work.target:g}",
                f"{within} of {len(tested)}",
                100 * median(one["error"] for one in tested),
                f"{sum(one['inside'] for one in tested):.0f} of {len(tested)}",
            ]
        )
    report.table(
        "Error of the projected loss, %: median, 95 %; predicted every 10 steps from the knee on",
        ["workload, what is fitted, family", *(f"{ahead} steps ahead" for ahead in AHEAD), "the paper, to 200"],
        rows,
    )
    report.table(
        "Dollars to the target as forecast half-way there",
        ["workload", "within 15 %", "median error, %", "inside the 80 % interval"],
        forecasts,
    )
    report.end(workers=WORKERS, sets=figures)


if __name__ == "__main__":
    main()
