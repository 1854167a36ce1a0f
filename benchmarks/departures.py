"""Workers that leave under ISP: is it better to average in their replicas, or to keep what was held back?

    python benchmarks/departures.py [--workers 8] [--runs 5] [--quick]

Either way a leaving worker publishes its residual. Averaging in its replica, as in the paper, then takes half of every
other worker's residual back.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from report import Report, median, parser, runs_of
from sets import ml1m

import mlless_nb
from mlless_nb import ISP, PMF, SGD, ScaleIn, Stop, TrainingJob

STEPS, QUICK_STEPS = 260, 100
#: Shares of the run after which a worker leaves.
SCHEDULES = {
    "nobody leaves": (),
    "four leave": (0.23, 0.38, 0.54, 0.69),
    "five leave early": (0.08, 0.12, 0.15, 0.19, 0.23),
}
EVERY = 5


def train(split: Any, steps: int, workers: int, leaves: tuple[float, ...], seed: int, *, averages: bool) -> list[float]:
    """Held-out losses of a run, one an evaluation, from which a worker goes after each share in ``leaves``."""
    job = TrainingJob(
        PMF(rank=20, l2=0.05),
        SGD(30.0, 0.9, nesterov=True),
        split.train,
        sync=ISP(0.7, averages=averages),
        validation=split.held_out,
        workers=workers,
        stop=Stop(steps=steps),
        eval_every=EVERY,
        pattern="broadcast",
        scale_in=ScaleIn(enabled=False, global_minibatch="shrink"),
        schedule="constant",
        seed=seed,
    )
    run = mlless_nb.train(job)

    def dismiss() -> None:
        seen = 0
        for slot, share in enumerate(leaves, 1):
            while run.telemetry.n_rows < share * steps and run.telemetry.state.is_live:
                seen = run.telemetry.wait_for_change(seen, 1.0)
            if run.telemetry.state.is_live:
                run.scale_in(worker_id=workers - slot)

    thread = threading.Thread(target=dismiss, daemon=True)
    thread.start()
    run.wait()
    thread.join()
    if run.status != "finished":
        raise SystemExit(f"{job!r} ended as {run.status}: {run.reason}")
    held_out = run.history["validation_loss"]
    return [float(loss) for loss in held_out[np.isfinite(held_out)]]


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, default=8)
    options = arguments.parse_args()
    report = Report("departures", "Is a leaving worker's replica better averaged in under ISP?")
    split, steps = ml1m(), QUICK_STEPS if options.quick else STEPS
    moments = [round(share * steps / EVERY) - 1 for share in (0.25, 0.5, 0.75, 1.0)]
    rows, cases = [], []
    for schedule, leaves in SCHEDULES.items():
        for averages in (False, True) if leaves else (False,):
            runs = [
                train(split, steps, options.workers, leaves, seed, averages=averages)
                for seed in range(runs_of(options))
            ]
            cases.append(
                {"schedule": schedule, "averages": averages}
                | {f"after {(moment + 1) * EVERY}": median(losses[moment] for losses in runs) for moment in moments}
            )
            rows.append(
                [
                    schedule + (", averaged in" if averages else ""),
                    *(f"{median(losses[moment] for losses in runs):.4f}" for moment in moments),
                    f"{min(losses[-1] for losses in runs):.4f} to {max(losses[-1] for losses in runs):.4f}",
                ]
            )
    report.table(
        f"{split.label}, P={options.workers} at first, ISP(0.7): held-out RMSE after so many steps",
        ["departures", *(f"{(moment + 1) * EVERY}" for moment in moments), "range"],
        rows,
    )
    report.end(steps=steps, workers=options.workers, cases=cases)


if __name__ == "__main__":
    main()
