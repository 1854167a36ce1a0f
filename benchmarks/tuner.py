"""The scale-in auto-tuner against none: time, dollars and Perf/$ to the same held-out loss, and what a decision takes.

python benchmarks/tuner.py [--data ml1m criteo imdb syn10m] [--runs 5] [--sets FOLDER] [--quick]
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
from report import Report, median, number, parser, runs_of, span, times
from runs import packing_s
from sets import Split, folder_of_sets, named
from workloads import WORKERS, WORKLOADS, Workload

import mlless_nb
from mlless_nb import PMF, ScaleIn, Stop, TrainingJob
from mlless_nb.supervisor.policy.policy import Policy
from mlless_nb.supervisor.policy.projection import Prices
from mlless_nb.telemetry.live import COLUMNS

#: Steps after which a run that did not reach its target is given up.
MOST_STEPS, QUICK_STEPS = 6000, 60
#: Records, and decisions that are timed at their end.
N_RECORDS, N_TIMED = 10_000, 200
#: The workloads of ten million ratings are run so often at most: each of their runs is half a minute.
MOST_LARGE = 1


def job_of(split: Split, work: Workload, seed: int, scale_in: ScaleIn, most_steps: int) -> TrainingJob:
    """A job that ends at the target."""
    return TrainingJob(
        data=split.train,
        validation=split.held_out,
        workers=WORKERS,
        stop=Stop(target=work.target, steps=most_steps),
        scale_in=scale_in,
        seed=seed,
        **work.fields,
    )


def train(split: Split, work: Workload, seed: int, scale_in: ScaleIn, most_steps: int = MOST_STEPS) -> dict[str, Any]:
    """One run to the target: seconds, dollars, loss, steps and the workers at its end."""
    job = job_of(split, work, seed, scale_in, most_steps)
    run = mlless_nb.train(job)
    run.wait()
    if run.status != "finished":
        raise SystemExit(f"{job!r} ended as {run.status}: {run.reason}")
    history = run.history
    first = np.flatnonzero(history["n_workers"] < WORKERS)
    return {
        "time_s": float(history["time_s"][-1]),
        "startup_s": float(history["time_s"][0]),
        "usd": run.cost.total,
        "perf_usd": 1 / (float(history["time_s"][-1]) * run.cost.total),
        "loss": float(run.telemetry.state.validation_loss or np.nan),
        "steps": history.n_steps,
        "workers": int(history["n_workers"][-1]),
        "first_removal": int(history["step"][first[0]]) if first.size else None,
        "reached": run.reason.startswith("target reached"),
    }


def latency_ms(has_validation: bool) -> list[float]:
    """Processor time of decisions over 10,000 records, none of which removes anyone."""
    rng = np.random.default_rng(0)
    # A threshold of 0 refuses every removal, after all the work of looking at it.
    advice = Policy(ScaleIn(threshold=0.0).to_json(), WORKERS, {"target": 0.51}, Prices(3e-5, 7e-5))
    known = dict.fromkeys(COLUMNS, 0.0)
    found = []
    for step in range(1, N_RECORDS + 1):
        loss = 0.5 + 1 / (0.05 * step**0.6 + 2)
        known.update(step=step, time_s=0.01 * step, n_workers=WORKERS, epoch=step / 20, spent_usd=3e-6 * step)
        known["loss"] = loss + rng.normal(0, 0.003)
        known["validation_loss"] = loss if has_validation and step % 10 == 0 else float("nan")
        advice.append([known[name] for name in COLUMNS])
        if step % 13 == 0:
            began = time.process_time()
            advice.decide({}, ())
            found.append(1e3 * (time.process_time() - began))
    return found[-N_TIMED:]


def cases_of(names: list[str]) -> dict[str, Workload]:
    """The workloads, and factorisations once more with rows sharded across the workers instead of users."""
    cases = {}
    for name in names:
        cases[name] = work = WORKLOADS[name]
        if isinstance(work.fields["model"], PMF):
            cases[f"{name}, by rows"] = dataclasses.replace(work, fields={**work.fields, "partition": "rows"})
    return cases


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--data", choices=list(WORKLOADS), nargs="+", default=list(WORKLOADS))
    options = arguments.parse_args()
    report = Report("tuner", "What does letting workers go save, to the same held-out loss?")
    figures: dict[str, Any] = {}
    rows, most_steps = [], QUICK_STEPS if options.quick else MOST_STEPS
    cases = cases_of(options.data)
    optimizers = ", ".join(dict.fromkeys(str(work.fields["optimizer"]) for work in cases.values()))
    for name, work in cases.items():
        split = named(name.partition(",")[0], folder_of_sets(options.sets))
        seen: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
        # They take turns, so that other load meets both alike.
        packed_s = packing_s(job_of(split, work, 0, ScaleIn.off(), MOST_STEPS))
        for seed in range(runs_of(options, MOST_LARGE if name.startswith("syn10m") else None)):
            train(split, work, seed, ScaleIn.off(), most_steps=1)  # packs the data, for which neither is to pay
            for is_on in (False, True):
                seen[is_on].append(train(split, work, seed, ScaleIn() if is_on else ScaleIn.off(), most_steps))
        off, on = seen[False], seen[True]
        gains = [b["perf_usd"] / a["perf_usd"] for a, b in zip(off, on, strict=True)]
        slower = [b["time_s"] / a["time_s"] for a, b in zip(off, on, strict=True)]
        figures[name] = {"off": off, "on": on, "perf_usd_gain": median(gains), "time_ratio": median(slower)}
        rows.append(
            [
                f"{split.label}{name[len(name.partition(',')[0]) :]}, to {work.target:g}",
                span(run["time_s"] for run in off),
                span(run["time_s"] for run in on),
                times(median(run["usd"] for run in off), median(run["usd"] for run in on)),
                span(gains),
                max(slower),
                f"{median(run['loss'] for run in off):.4f}, {median(run['loss'] for run in on):.4f}",
                f"{median(run['steps'] for run in off):.0f}, {median(run['steps'] for run in on):.0f}",
                number(median(run["workers"] for run in on)),
                median(run["startup_s"] for run in on + off),
                packed_s,
                work.paper,
            ]
        )
    report.table(
        f"P={WORKERS}, tuner off and on, the same seeds; users of ratings sharded but for *by rows*; by workload, "
        f"{optimizers}",
        [
            "workload",
            "off, s (range)",
            "on, s (range)",
            "dollars, off / on",
            "Perf/$, on / off (range)",
            "time on / off, worst",
            "held-out loss, off, on",
            "steps, off, on",
            "workers at the end",
            "of these seconds, to the first step",
            "packing, s",
            "the paper (P=24)",
        ],
        rows,
    )
    decisions = {kind: latency_ms(kind == "held-out rows") for kind in ("held-out rows", "training loss only")}
    report.table(
        f"A decision over {N_RECORDS:,} records, processor time",
        ["judged by", "median, ms", "95 %, ms"],
        [[kind, median(taken), float(np.percentile(taken, 95))] for kind, taken in decisions.items()],
    )
    report.remark(
        "Perf/$ = 1 / time x 1 / price of the whole run, its start-up included, from the functions' invocation on; the "
        "data was packed before, which takes the same seconds, and next to no dollars, either way. Workers share this "
        "machine's cores, so fewer of them make quicker steps here; where every worker has a core of its own, their "
        f"price is what is saved. What has no range was run {MOST_LARGE}x."
    )
    report.end(
        workers=WORKERS, sets=figures, decision_ms={kind: float(np.median(taken)) for kind, taken in decisions.items()}
    )


if __name__ == "__main__":
    main()
