"""Memory of a worker beyond the model's own arrays, and of a PyTorch DDP process.

python benchmarks/memory.py [--workers 4] [--data ml1m syn10m criteo] [--runs 5] [--quick]
"""

from __future__ import annotations

import time
from typing import Any

import ddp
from report import Report, descendants, is_redis, median, memory_kib, parser, runs_of, span
from sets import Split, folder_of_sets, named

import mlless_nb
from mlless_nb import ISP, PMF, SGD, Adam, LogisticRegression, Stop, TrainingJob

RANK, L2, RATE, MOMENTUM, ADAM_RATE = 20, 0.02, 8.0, 0.8, 0.01
#: Between two looks, seconds; a look walks all pages of a process.
LOOK_S = 0.1
MIB = 2**20


def job_of(split: Split, workers: int, steps: int) -> TrainingJob:
    """The job that is looked at."""
    is_csr = split.train.kind == "csr"
    return TrainingJob(
        LogisticRegression() if is_csr else PMF(rank=RANK, l2=L2),
        Adam(ADAM_RATE, lazy=True) if is_csr else SGD(RATE, MOMENTUM, nesterov=True, lazy=True),
        split.train,
        sync=ISP(0.7),
        workers=workers,
        stop=Stop(steps=steps),
        validation=split.held_out,
    )


def peaks(job: TrainingJob) -> tuple[float, float]:
    """(peak resident set, peak proportional share) of the largest function of a run, MiB."""
    run = mlless_nb.train(job)
    resident: dict[int, int] = {}
    share: dict[int, int] = {}
    while run.telemetry.state.is_live:
        for pid, usage in descendants().items():
            seen = None if is_redis(usage) else memory_kib(pid)
            if seen is not None:
                resident[pid] = max(seen[0], resident.get(pid, 0))
                share[pid] = max(seen[1], share.get(pid, 0))
        time.sleep(LOOK_S)
    run.wait()
    if run.status != "finished":
        raise SystemExit(f"the run ended as {run.status}: {run.reason}")
    return max(resident.values(), default=0) / 1024, max(share.values(), default=0) / 1024


def arrays_mib(job: TrainingJob) -> float:
    """The model's own arrays: parameters, the optimiser's state, and what ISP holds back."""
    n_rows, width = job.model.table_shape(job.data.shape)
    return (1 + len(job.optimizer.init(1, 1)) + 1) * n_rows * width * 4 / MIB


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, default=4)
    arguments.add_argument(
        "--data", choices=["ml1m", "syn10m", "criteo"], nargs="+", default=["ml1m", "syn10m", "criteo"]
    )
    options = arguments.parse_args()
    workers, runs = options.workers, runs_of(options)
    report = Report("memory", "How much memory does a worker take beyond the model's own arrays?")
    rows, cases, optimizers = [], [], dict[str, None]()
    for name in options.data:
        split = named(name, folder_of_sets(options.sets))
        # Once through the data at least: minibatches are kept.
        job = job_of(split, workers, (40 if options.quick else max(400, split.train.n // 6250 // workers)))
        optimizers[str(job.optimizer)] = None
        seen = [peaks(job) for _ in range(runs)]
        own = arrays_mib(job)
        task: dict[str, Any] = {"learning_rate": ADAM_RATE}
        if name != "criteo":
            task = {"learning_rate": RATE, "momentum": MOMENTUM, "rank": RANK, "l2": L2}
        ranks = ddp.train(split, workers, minibatch=job.minibatch, windows=1, steps=10, **task)
        against = ranks if isinstance(ranks, str) else max(rank["peak_kib"] for rank in ranks) / 1024
        resident, share = median(one[0] for one in seen), median(one[1] for one in seen)
        rows.append(
            [split.label, span(r for r, _ in seen), span(s for _, s in seen), own, resident - own, share - own, against]
        )
        cases.append(
            {
                "data": name,
                "P": workers,
                "hwm_mib": resident,
                "pss_mib": share,
                "arrays_mib": own,
                "ddp_hwm_mib": against,
            }
        )
    report.table(
        f"MiB of the largest function, P={workers}, ISP(0.7), {', '.join(optimizers)}; users of ratings sharded",
        [
            "data",
            "peak resident",
            "peak share (PSS)",
            "model's arrays",
            "resident beyond",
            "share beyond",
            "DDP resident",
        ],
        rows,
    )
    report.remark(
        "Functions are forked from one interpreter: the resident set counts the pages they share in full in each, the "
        "proportional share divides them. Minibatches that a worker keeps (at most 256 MiB) are in both. DDP's "
        "processes are spawned, and hold all data."
    )
    report.end(runs=runs, cases=cases)


if __name__ == "__main__":
    main()
