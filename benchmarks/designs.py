"""The design space of serverless training: LambdaML's tables, its figures beside ours.

Algorithms, speed-up and break-down are runs on this machine's embedded backend. Stores and patterns are run with real
servers, S3 with an object storage in memory, with the latency and the bandwidth of LambdaML's table 6 injected
(`linked.py`). Fifty workers are simulated.

python benchmarks/designs.py [--only algorithms ...] [--runs 3] [--quick]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from design_algorithms import algorithms, on_networks
from design_jobs import COMMON, finished
from design_stores import modelled, over_stores, patterns, simulated, simulated_patterns
from report import Report, least_in_bold, median, parser, runs_of, span
from runs import lazy, packing_s
from sets import ml1m

from mlless_nb import PMF, SGD, Stop, TrainingJob
from mlless_nb.simulate import CLOUD, simulate

#: What can be measured by itself.
TABLES = ("algorithms", "networks", "stores", "patterns", "simulated-patterns", "simulated", "modelled", "cost")


def cost(report: Report, runs: int, quick: bool) -> list[dict[str, Any]]:
    """LambdaML's COST: one worker against several, measured and simulated; and the break-down of the run of four."""
    split, rows, cases = ml1m(), [], []
    target, parts = 0.88 if not quick else 1.0, {}
    for workers in (1, 2, 4, 10):
        job = TrainingJob(
            PMF(rank=20, l2=0.05),
            SGD(30.0, 0.9, nesterov=True),
            split.train,
            **{**COMMON, "validation": split.held_out},
            workers=workers,
            minibatch=50_000 // workers,
            eval_every=10,
            stop=Stop(target=target, epochs=40),
        )
        found = [finished(dataclasses.replace(job, seed=seed)) for seed in range(runs)]
        seconds, usd = [run.history["time_s"][-1] for run in found], [run.cost.total for run in found]
        first_s = median(run.history["time_s"][0] for run in found)
        steps = [float(run.history["step"][-1]) for run in found]
        cases.append({"workers": workers, "seconds": median(seconds), "usd": median(usd), "steps": median(steps)})
        own = simulate(job, CLOUD)
        cases[-1] |= {"simulated_seconds": own.time_s, "simulated_usd": own.cost.total}
        here, there = (cases[0][name] / cases[-1][name] for name in ("seconds", "simulated_seconds"))
        packed_s = packing_s(job)
        rows.append([f"{workers}, {lazy(found[0])}", span(steps), span(seconds), first_s, packed_s])
        rows[-1] += [median(seconds) + packed_s, f"{here:.2f}x", f"{median(usd):.6f}"]
        rows[-1] += [own.time_s, f"{there:.2f}x", f"{own.cost.total:.6f}"]
        if workers == 4:
            history, whole = found[0].history, found[0].history["time_s"][-1]
            sums = {name: float(np.nansum(history[f"{name}_s"])) for name in ("compute", "exchange", "wait")}
            parts = {"start-up and loading": whole - sum(sums.values()), **sums}
    report.table(
        f"MovieLens-1M, PMF of rank 20 to RMSE {target:g}, global minibatch 50,000",
        [
            "workers",
            "steps",
            "s, start-up included",
            "of these, to the first step",
            "packing, s",
            "with both, s",
            "speed-up",
            "$",
            "simulated s",
            "speed-up",
            "$",
        ],
        least_in_bold(rows, 5),
    )
    report.table(
        "Where the time of a run of 4 workers goes",
        ["part", "s", "%"],
        [[name, one, f"{100 * one / sum(parts.values()):.0f}"] for name, one in parts.items()],
    )
    report.remark(
        "Two cores are shared by all workers here, so that more than two workers cannot be quicker, and one worker is "
        "the cheapest. Simulated is the same job with a core for each function, 1 Gbit/s and half a millisecond to "
        "Redis and back, and the start of cold functions: more workers are no quicker there either, since one computes "
        "this job in two seconds, and exchanging takes longer than that. The paper's jobs compute for minutes: one t2 "
        "instance takes 960 s for a logistic regression by ADMM on Higgs, ten functions 107 s (9.0x) and ten "
        "instances 98 s (9.8x); 9.4x and 9.9x for the SVM, 6.2x and 7.2x for k-means, 4.8x and 6.7x for MobileNet: "
        "ten functions bring ten cores. Of its break-down (ten epochs, ten workers) the text has the start-up, 1.3 s "
        "of functions and above two minutes of instances; loading and computing take as long on both, and exchanges "
        "are slower on functions, because they go over S3."
    )
    return cases


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, default=10, help="of the runs over injected links")
    arguments.add_argument("--only", choices=TABLES, nargs="+", default=TABLES, help="leave out the other tables")
    options = arguments.parse_args()
    runs, quick = runs_of(options, 3), options.quick
    workers = 4 if quick else options.workers
    report = Report("designs", "Which design of serverless training wins when?")
    tables: dict[str, Callable[[], Any]] = {
        "algorithms": lambda: algorithms(report, runs, quick),
        "networks": lambda: on_networks(report, runs, quick),
        "stores": lambda: over_stores(report, workers, runs, quick),
        "patterns": lambda: patterns(report, workers, min(runs, 2), quick),
        "simulated-patterns": lambda: simulated_patterns(report),
        "simulated": lambda: simulated(report),
        "modelled": lambda: modelled(report),
        "cost": lambda: cost(report, runs, quick),
    }
    figures = {name: measure() for name, measure in tables.items() if name in options.only}
    report.end(**figures)


if __name__ == "__main__":
    main()
