"""How well the policy's curves see ahead: both fits 50 to 200 steps ahead, and the forecast at half of the run.

python benchmarks/curves.py [--data ml1m criteo imdb syn10m] [--runs 5] [--sets FOLDER] [--records FOLDER] [--quick]
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from report import Report, median, number, parser, runs_of
from sets import folder_of_sets, named
from workloads import WORKERS, WORKLOADS, Workload

import mlless_nb
import mlless_nb.supervisor.policy as policy_folder
from mlless_nb import ScaleIn, Stop, TrainingJob
from mlless_nb.supervisor.policy.efficiency import StatisticalEfficiency
from mlless_nb.supervisor.policy.knee import knee_of
from mlless_nb.supervisor.policy.loss_history import History
from mlless_nb.supervisor.policy.policy import Policy
from mlless_nb.supervisor.policy.projection import Prices, Projection, StepTimes
from mlless_nb.telemetry.live import COLUMNS

AHEAD = (50, 100, 200)
FAMILIES = ("reference", "current")
#: Steps between two predictions.
EVERY = 10
#: Records around a step whose mean stands for its training loss: one minibatch's alone is mostly noise.
AROUND = 40
#: The long workload is recorded so often at most.
MOST_LARGE = 1
#: What the forecast may be off by.
WITHIN = 0.15

Rows = NDArray[np.float64]


def first_seed() -> int:
    """The first seed of the recorded runs, drawn from the policy's sources: who changes a constant gets other runs.

    So nothing of the policy can have been chosen on the runs that it is judged by.
    """
    sources = (path.read_bytes() for folder in policy_folder.__path__ for path in sorted(Path(folder).glob("*.py")))
    return int.from_bytes(hashlib.sha256(b"".join(sources)).digest()[:3], "big")


def record(split: Any, work: Workload, seed: int, quick: bool) -> tuple[Rows, Prices]:
    """The rows of a run with all its workers, and its prices."""
    stop = Stop(steps=work.steps // 10 if quick else work.steps)
    job = TrainingJob(
        data=split.train,
        validation=split.held_out,
        workers=WORKERS,
        stop=stop,
        scale_in=ScaleIn.off(),
        eval_every=10,
        partition="rows",
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


def recorded(name: str, options: Any) -> list[tuple[Rows, Prices]]:
    """The runs of a workload, one a seed: read from the folder of records where they are, else made and kept there."""
    folder = Path(options.records) if options.records else None
    split, runs = None, []
    for seed in range(first_seed(), first_seed() + runs_of(options, MOST_LARGE if name == "syn10m" else None)):
        path = folder / f"{name}-{seed}.npz" if folder is not None else None
        if path is not None and path.is_file():
            with np.load(path) as file:
                runs.append((file["rows"], Prices(*file["prices"].tolist())))
            continue
        split = split or named(name, folder_of_sets(options.sets))
        rows, prices = record(split, WORKLOADS[name], seed, options.quick)
        runs.append((rows, prices))
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, rows=rows, prices=[prices.worker_usd_s, prices.fixed_usd_s])
    return runs


class Errors(NamedTuple):
    """Relative errors of predictions from the knee on, by steps ahead: those that are relied on, and all."""

    relied_on: dict[int, list[float]]
    all: dict[int, list[float]]


def first_knee(rows: Rows) -> float:
    """The step at which the tuner would find the knee, looking every `EVERY` steps; infinity where it would not."""
    history = History(has_held_out=True)
    for row in rows:
        history.append(row.tolist())
        if row[0] % EVERY == 0 and knee_of(history) is not None:
            return float(row[0])
    return float("inf")


def errors(rows: Rows, judged: str) -> dict[str, Errors]:
    """The errors of one run by family, predicted every `EVERY` steps from what the tuner would then know."""
    steps = rows[:, 0]
    values = rows[:, COLUMNS.index(judged)]
    known = np.isfinite(values)
    at, losses = steps[known], values[known]
    knee = first_knee(rows)
    around = AROUND / 2 if judged == "loss" else 0
    found = {family: Errors({ahead: [] for ahead in AHEAD}, {ahead: [] for ahead in AHEAD}) for family in FAMILIES}
    history = History()
    for row in rows:
        told = row.copy()
        if judged == "loss":
            told[COLUMNS.index("validation_loss")] = np.nan
        history.append(told.tolist())
        now = row[0]
        if now < knee or (now - knee) % EVERY:
            continue
        projection = Projection(history, {}, Prices(1.0, 0.0), StepTimes(), StatisticalEfficiency(WORKERS))
        for family, curve in zip(FAMILIES, (projection.curve, projection.current(0)), strict=True):
            if curve is None:
                continue
            for ahead in AHEAD:
                there = np.abs(at - now - ahead) <= around
                if now + ahead + around <= steps[-1] and there.any():
                    error = abs(curve.at(now + ahead) / float(losses[there].mean()) - 1)
                    found[family].all[ahead].append(error)
                    if projection.is_reliable(ahead, WORKERS):
                        found[family].relied_on[ahead].append(error)
    return found


def backtest(rows: Rows, prices: Prices, target: float) -> dict[str, float] | None:
    """The forecast made at half of the way to the target, against what it took; None where it was not reached."""
    held_out = rows[:, COLUMNS.index("validation_loss")]
    there = np.flatnonzero(held_out <= target)
    if not there.size:
        return None
    advice = Policy(ScaleIn().to_json(), WORKERS, {"target": target}, prices, has_held_out=True)
    half = rows[: there[0] // 2]
    for row in half:
        advice.append(row.tolist())
    forecast = advice.forecast(None)
    if forecast is None or forecast["usd_to_target"] is None:
        return {"error": float("inf"), "rest_error": float("inf")}
    spent = COLUMNS.index("spent_usd")
    took, rest = rows[there[0], spent], rows[there[0], spent] - half[-1, spent]
    low, expected, high = forecast["usd_to_target"]
    return {
        "error": abs(expected / took - 1),
        "rest_error": abs(expected - took) / rest,
        "inside": float(low <= took <= (high or np.inf)),
    }


def _cell(found: list[float]) -> tuple[str, list[float]]:
    """Median and 95 % of errors, per cent: as a cell, and as figures."""
    figures = [100 * median(found), 100 * float(np.percentile(found, 95))] if found else [float("nan")] * 2
    return f"{number(figures[0])}, {number(figures[1])}", figures


def curve_rows(name: str, runs: list[tuple[Rows, Prices]], figures: dict[str, Any]) -> list[list[Any]]:
    """The lines of a workload in the table of errors."""
    lines = []
    for judged, label in (("validation_loss", "held-out"), ("loss", "training")):
        by_family = [errors(rows, judged) for rows, _ in runs]
        for family in FAMILIES:
            found = [one[family] for one in by_family]
            relied_on = {ahead: [error for one in found for error in one.relied_on[ahead]] for ahead in AHEAD}
            every = [error for one in found for error in one.all[AHEAD[-1]]]
            cells = [_cell(relied_on[ahead]) for ahead in AHEAD]
            share = 100 * len(relied_on[AHEAD[-1]]) / max(len(every), 1)
            whole, whole_figures = _cell(every)
            figures[f"{judged} {family}"] = {
                "relied_on": {ahead: cell[1] for ahead, cell in zip(AHEAD, cells, strict=True)},
                "share_relied_on": share,
                "all": whole_figures,
            }
            texts = [cell[0] for cell in cells]
            lines.append([f"{name}, {label} loss, {family}", *texts, f"{share:.0f} %", whole, "below 1.5"])
    return lines


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--data", choices=list(WORKLOADS), nargs="+", default=list(WORKLOADS))
    arguments.add_argument("--records", metavar="FOLDER", help="of recorded runs: read where they are, else kept there")
    options = arguments.parse_args()
    report = Report("curves", "How far off are the curves, 50 to 200 steps ahead, and the forecast at half of a run?")
    figures: dict[str, Any] = {}
    lines: list[list[Any]] = []
    forecasts: list[list[Any]] = []
    every: list[dict[str, float]] = []
    for name in options.data:
        runs, work = recorded(name, options), WORKLOADS[name]
        figures[name] = {}
        lines += curve_rows(name, runs, figures[name])
        tested = [one for rows, prices in runs if (one := backtest(rows, prices, work.target)) is not None]
        figures[name][f"forecast to {work.target:g}"] = tested
        every += tested
        forecasts.append(_forecast_row(f"{name}, to {work.target:g}", tested))
    forecasts.append(_forecast_row("all", every))
    optimizers = ", ".join(dict.fromkeys(str(WORKLOADS[name].fields["optimizer"]) for name in options.data))
    report.table(
        "Error of the projected loss, %: median, 95 %; predicted every 10 steps from the knee on; by workload, "
        f"{optimizers}",
        [
            "workload, what is fitted, family",
            *(f"{ahead} steps ahead, relied on" for ahead in AHEAD),
            "relied on, of 200 ahead",
            "200 ahead, relied on or not",
            "the paper, to 200",
        ],
        lines,
    )
    report.remark(
        "Errors are shares of the loss that came: of held-out rows, by which the policy decides if there are any, or "
        "the mean training loss of 40 steps. The reference is the tuner's own curve; the current one it fits once "
        "somebody has left, here it is fitted to the same records. Relied on are the losses that removals are decided "
        'by and that are told without an "about": no further ahead than the curve has seen and, while the losses fall '
        "faster than before, than the newest fifth of the steps; and only where the 80 % interval of all curves that "
        "go with the losses is within 1.5 %. The last column but one has all predictions. Both factorisations come to "
        "a plateau before their main descent, of which nothing in a loss tells while it lasts: there the knee waits "
        "until what the factors make of the predictions has grown. The training loss of a few small minibatches is "
        "mostly noise, in what is fitted and in what it is compared with; it is judged by only where no rows are held "
        "out, and "
        "is here predicted from the same knee on."
    )
    report.table(
        "Dollars to the target as forecast half-way there",
        ["workload", "within 15 %", "median error, %", "of what was still to come, %", "inside the 80 % interval"],
        forecasts,
    )
    report.remark(
        "The dollars are those of the whole run, the part before the first step among them. A run of which nothing was "
        "told yet has no interval. The seeds of the runs, "
        f"from {first_seed()} on, are drawn from the sources of the policy, so that none of its constants can have "
        "been chosen on them."
    )
    report.end(workers=WORKERS, sets=figures)


def _forecast_row(label: str, tested: list[dict[str, float]]) -> list[Any]:
    """A line of the table of forecasts."""
    middle = [100 * median(one[which] for one in tested) for which in ("error", "rest_error")]
    inside = [one["inside"] for one in tested if "inside" in one]
    return [
        label,
        f"{sum(one['error'] <= WITHIN for one in tested)} of {len(tested)}",
        *("no forecast" if error == float("inf") else error for error in middle),
        f"{sum(inside):.0f} of {len(inside)}",
    ]


if __name__ == "__main__":
    main()
