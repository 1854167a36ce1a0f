"""A distributed step: ours against PyTorch DDP (gloo), by workers, protocol and data set.

python benchmarks/step.py [--workers 1 2 4 8] [--sync bsp isp] [--data ml1m criteo syn10m] [--runs 5] [--quick]
"""

from __future__ import annotations

import itertools
from typing import Any

import ddp
from report import Report, amount, median, parser, runs_of, span, times
from runs import measure, medians
from sets import Split, folder_of_sets, named

from mlless_nb import BSP, ISP, PMF, SGD, Adam, LogisticRegression

#: The same hyper-parameters on both sides; ours keeps momentum and moments on touched rows only, unless ``--exact``.
RANK, L2, RATE, MOMENTUM, ADAM_RATE = 20, 0.02, 8.0, 0.8, 0.01
#: From so many workers on a factorisation is measured a second time, its users sharded across the workers.
BY_USER_WORKERS = 4
#: DDP processes with sparse gradients at most: gloo gathers them all, so that it grows with their square.
MOST_SPARSE = 4
#: Where generated 10M-shape data is trained on: with other numbers of workers it says little more.
LARGE_WORKERS = (4,)


def options_of(split: Split, exact: bool) -> dict[str, Any]:
    """Model and optimiser for a data set."""
    if split.train.kind == "csr":
        return {"model": LogisticRegression(), "optimizer": Adam(ADAM_RATE, lazy=not exact)}
    return {"model": PMF(rank=RANK, l2=L2), "optimizer": SGD(RATE, MOMENTUM, nesterov=True, lazy=not exact)}


def peer(
    split: Split, workers: int, minibatch: int, runs: int, quick: bool, *, sparse: bool = False
) -> dict[str, Any] | str:
    """PyTorch DDP: its step, CPU and start-up, or why there is nothing; sparse gradients are of SparseAdam."""
    task: dict[str, Any] = {"learning_rate": ADAM_RATE, "sparse": sparse}
    if split.train.kind != "csr":
        task |= {"rank": RANK, "l2": L2} | ({} if sparse else {"learning_rate": RATE, "momentum": MOMENTUM})
    ranks = ddp.train(split, workers, minibatch=minibatch, windows=runs, steps=10 if quick else 40, **task)
    if isinstance(ranks, str):
        return ranks
    return {
        "step_ms": median(ranks[0]["step_ms"]),
        "step_ms_range": [min(ranks[0]["step_ms"]), max(ranks[0]["step_ms"])],
        "cpu_ms": median(median(rank["cpu_ms"]) for rank in ranks),
        "startup_s": ranks[0]["startup_s"],
    }


def main() -> None:
    """Parse the command line, measure, report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    arguments.add_argument("--sync", choices=["bsp", "isp"], nargs="+", default=["bsp", "isp"])
    arguments.add_argument("--threshold", type=float, default=0.7)
    arguments.add_argument("--minibatch", type=int, default=6250)
    arguments.add_argument("--steps", type=int, default=None, help="in a run; 2,400 by all workers together")
    arguments.add_argument("--exact", action="store_true", help="exact momentum and moments, on all rows")
    arguments.add_argument(
        "--data", choices=["ml1m", "criteo", "syn10m"], nargs="+", default=["ml1m", "criteo", "syn10m"]
    )
    arguments.add_argument("--no-peer", action="store_true", help="ours alone")
    options = arguments.parse_args()
    runs = runs_of(options)
    report = Report(
        "step",
        "How long does a distributed step take, from minibatch to updated replica on every worker, what does it cost "
        "in CPU and bytes, and how long does PyTorch DDP (gloo, data in RAM) take for the same?",
    )
    cases: list[dict[str, Any]] = []
    for name in options.data:
        split, rows = named(name, folder_of_sets(options.sets)), []
        for workers in options.workers:
            if name == "syn10m" and workers not in LARGE_WORKERS and len(options.workers) > 1:
                continue
            against = "not run" if options.no_peer else peer(split, workers, options.minibatch, runs, options.quick)
            known = against if isinstance(against, dict) else {}
            sparse: Any = "not run"
            if not options.no_peer and 1 < workers <= MOST_SPARSE:
                sparse = peer(split, workers, options.minibatch, runs, options.quick, sparse=True)
            sparse_ms = sparse["step_ms"] if isinstance(sparse, dict) else float("nan")
            by_user = split.train.kind != "csr" and workers >= BY_USER_WORKERS
            for kind, partition in itertools.product(options.sync, ["rows", "user"] if by_user else ["rows"]):
                sync = ISP(options.threshold) if kind == "isp" else BSP()
                job = {**options_of(split, options.exact), "sync": sync, "minibatch": options.minibatch}
                job["partition"] = partition
                steps = options.steps or (400 if options.quick else 2400) // workers
                measured = [measure(split, steps, workers, **job) for _ in range(runs)]
                ours = medians(measured)
                case = {
                    "data": name,
                    "P": workers,
                    "B": options.minibatch,
                    "sync": str(sync),
                    "partition": partition,
                    "lazy": not options.exact,
                    "median_step_ms": ours["step_ms"],
                    "sent_bytes_per_worker": ours["sent_bytes"],
                    "received_bytes_per_worker": ours["received_bytes"],
                    "cell_to_first_step_s": ours["startup_s"],
                    **{key: value for key, value in ours.items() if not key.endswith("_bytes")},
                    "ddp": against,
                    "ddp_sparse": sparse,
                }
                cases.append(case)
                rows.append(
                    [
                        f"{workers}, {sync}{', by user' if partition == 'user' else ''}",
                        span(one.step_ms for one in measured),
                        ours["p90_step_ms"],
                        ours["functions_cpu_ms"],
                        ours["redis_cpu_ms"],
                        known.get("step_ms", against),
                        known.get("cpu_ms"),
                        times(known.get("step_ms", float("nan")), ours["step_ms"]),
                        sparse if isinstance(sparse, str) else sparse_ms,
                        times(sparse_ms, ours["step_ms"]),
                        amount(ours["sent_bytes"]),
                        amount(ours["received_bytes"]),
                        ours["startup_s"],
                        known.get("startup_s"),
                    ]
                )
        report.table(
            f"{split.label}, minibatches of {options.minibatch:,}, {' and '.join(model_of(split, options.exact))}",
            [
                "P, protocol",
                "step, ms (range)",
                "p90",
                "CPU-ms a worker",
                "of Redis",
                "DDP step, ms",
                "DDP CPU-ms",
                "DDP / ours",
                "sparse DDP, ms",
                "sparse DDP / ours",
                "out",
                "in",
                "start-up, s",
                "DDP's",
            ],
            rows,
        )
    report.remark(
        "CPU-ms are per worker and step; ours count all functions, the supervisor too, and Redis' beside them; - where "
        "a run was too short to tell. Out and in are bytes a worker publishes and reads in a step. Start-up is from "
        "the call to the end of the first step; DDP's has the import of PyTorch in it. DDP has dense gradients and "
        "fused optimisers, sparse DDP has sparse gradients and SparseAdam. ISP publishes less as training goes on: its "
        "figures are medians over a run's steps. "
        "By user, as partition='auto' has it here: each worker has users of its own, whose rows need no exchange; "
        "minibatch, arithmetic and peer are the same."
    )
    report.end(runs=runs, cases=cases)


def model_of(split: Split, exact: bool) -> list[str]:
    """Model and optimiser, for the table's title."""
    return [str(part) for part in options_of(split, exact).values()]


if __name__ == "__main__":
    main()
