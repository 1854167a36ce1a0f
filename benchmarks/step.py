"""Step time of PMF on MovieLens-1M over the embedded default, as one JSON line.

    python benchmarks/step.py [--workers 8] [--sync isp|bsp] [--threshold 0.7] [--steps 300] [--runs 1]

The peer is the published MLLess code, measured on two cores of the same kind: 109-139 ms a step at P=8 with ISP(0.7).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time

import numpy as np

import mlless_nb
from mlless_nb import BSP, ISP, PMF, SGD, Stop, TrainingJob, datasets


def measure(workers: int, sync: BSP | ISP, minibatch: int, steps: int, lazy: bool) -> dict[str, object]:
    """One run: step times by the step log's clock, bytes from the frames, start-up from the call to the first step."""
    try:
        ratings = datasets.movielens("1m")
    except mlless_nb.MllessError:
        ratings = datasets.synthetic_ratings(6040, 3706, 1_000_209)
    job = TrainingJob(
        PMF(rank=20, l2=0.05),
        SGD(learning_rate=8.0, momentum=0.9, nesterov=True, lazy=lazy),
        ratings,
        sync=sync,
        workers=workers,
        minibatch=minibatch,
        stop=Stop(steps=steps),
        eval_every=50,
    )
    called = time.perf_counter()
    run = mlless_nb.train(job)
    returned = time.perf_counter()
    while run.telemetry.n_rows == 0 and run.telemetry.state.is_live:
        time.sleep(0.002)
    first_row = time.perf_counter()
    run.wait()
    if run.status != "finished":
        raise SystemExit(f"the run ended as {run.status}: {run.reason}")
    history = run.history
    step_ms = np.diff(history["time_s"])[5:] * 1e3
    return {
        "P": workers,
        "B": minibatch,
        "sync": str(sync),
        "lazy": lazy,
        "data": ratings.name,
        "steps": len(history["step"]),
        "median_step_ms": round(float(np.median(step_ms)), 2),
        "p90_step_ms": round(float(np.percentile(step_ms, 90)), 2),
        "sent_bytes_per_worker": int(np.median(history["sent_bytes"]) / workers),
        "received_bytes_per_worker": int(np.median(history["received_bytes"]) / workers),
        "sent_fraction": round(float(np.median(history["sent_fraction"])), 4),
        "compute_ms": round(float(np.nanmedian(history["compute_s"])) * 1e3, 2),
        "exchange_ms": round(float(np.nanmedian(history["exchange_s"])) * 1e3, 2),
        "wait_ms": round(float(np.nanmedian(history["wait_s"])) * 1e3, 2),
        "call_s": round(returned - called, 3),
        "startup_s": round(float(history["time_s"][0]), 3),
        "cell_to_first_step_s": round(first_row - called, 3),
        "validation_rmse": round(float(run.telemetry.state.validation_loss or float("nan")), 4),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
    }


def main() -> None:
    """Parse the command line, measure, print one JSON line a run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--sync", choices=["isp", "bsp"], default="isp")
    parser.add_argument("--threshold", type=float, default=0.7)
    parser.add_argument("--minibatch", type=int, default=6250)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--exact", action="store_true", help="exact momentum instead of the lazy variant")
    options = parser.parse_args()
    sync = ISP(options.threshold) if options.sync == "isp" else BSP()
    for _ in range(options.runs):
        print(
            json.dumps(measure(options.workers, sync, options.minibatch, options.steps, not options.exact)), flush=True
        )


if __name__ == "__main__":
    main()
