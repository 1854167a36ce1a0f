"""Stateless runs beside workers: seconds and dollars of a step, measured to 12 workers and modelled beyond.

python benchmarks/stateless.py [--workers 2 4 8 12] [--runs 3] [--quick]
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from report import Report, median, parser, runs_of, span
from sets import Split, ml1m
from stateless_model import LINK_BYTES_S, Uneven, iteration, resnet50

import mlless_nb
from mlless_nb import BSP, PMF, SGD, ScaleIn, Stop, TrainingJob
from mlless_nb.money import Rates, price_profile
from mlless_nb.simulate import CLOUD, Workload, simulate

EXECUTIONS = ("workers", "map-reduce", "events")
OPTIMIZER = SGD(8.0, 0.8, nesterov=True, lazy=True)
#: Workers of the model, and workers for each reducer.
MODELLED, EACH_REDUCER = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), 4
#: Workers of the simulated runs, and for how many of them there is a Redis server.
SIMULATED, EACH_SERVER = (16, 64, 256), 16
#: Images an iteration: the global minibatches of slsML.
IMAGES = (8192, 32768)


def measured(split: Split, execution: str, workers: int, steps: int) -> dict[str, Any]:
    """One run: medians of a step, without the first ones, which pack the data and fill caches."""
    job = TrainingJob(
        model=PMF(rank=20, l2=0.02),
        optimizer=OPTIMIZER,
        data=split.train,
        validation=split.held_out,
        sync=BSP(),
        workers=workers,
        minibatch=6250,
        stop=Stop(steps=steps),
        eval_every=10**6,
        partition="rows",
        scale_in=ScaleIn.off(),
        execution=execution,
        pattern="broadcast" if execution == "workers" else "auto",  # which adds in the same order
    )
    run = mlless_nb.train(job)
    run.wait()
    if run.status != "finished":
        raise SystemExit(f"{job!r} ended as {run.status}: {run.reason}")
    history = run.history
    first = min(2, steps // 3)
    step_s = float(np.median(np.diff(history["time_s"])[first:]))
    # Servers are billed by the second, which is longer than a step.
    rates = Rates(price_profile(job.prices), job.memory_mb)
    functions_usd = float(np.median(np.diff(history["spent_usd"] - history["servers_usd"])[first:]))
    n_requests = sum(len(entry.get("objects", ())) for entry in run.trace if entry["stage"] != "evaluate")
    return {
        "step_s": step_s,
        "step_microusd": 1e6 * (functions_usd + step_s * rates.servers_usd_s),
        "requests": n_requests / steps,
        "storage_percent": 100 * run.cost.storage / run.cost.total,
        "loss": float(history["loss"][3]),
    }


def over(value: float, base: float) -> str:
    """How many times ``base`` it is, as a cell."""
    return f"{value / base:,.0f}x"


def compare(report: Report, options: Any, runs: int) -> list[dict[str, Any]]:
    """Measure all executions for all numbers of workers."""
    split = ml1m()
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for _ in range(runs):
        for workers in options.workers:
            for execution in EXECUTIONS:
                steps = (4 if options.quick else 10) if execution != "workers" else 60
                found.setdefault((workers, execution), []).append(measured(split, execution, workers, steps))
    rows, cases = [], []
    for (workers, execution), each in found.items():
        case = {name: median(one[name] for one in each) for name in each[0]}
        base = median(one["step_s"] for one in found[workers, "workers"])
        base_usd = median(one["step_microusd"] for one in found[workers, "workers"])
        cases.append({"P": workers, "execution": execution, **case})
        rows.append(
            [
                f"{workers}, {execution}",
                span(1e3 * one["step_s"] for one in each),
                over(case["step_s"], base),
                case["step_microusd"],
                over(case["step_microusd"], base_usd),
                case["requests"] if execution != "workers" else "-",
                case["storage_percent"],
                f"{case['loss']:.6f}",
            ]
        )
    report.table(
        f"{split.label}, PMF of rank 20, {OPTIMIZER}, BSP, partition='rows', minibatches of 6,250 for each worker",
        [
            "P, execution",
            "step, ms (range)",
            "/ workers",
            "a step, 1e-6 $",
            "/ workers",
            "requests a step",
            "% of the bill requests",
            "loss of step 4",
        ],
        rows,
    )
    return cases


def model(report: Report) -> list[dict[str, Any]]:
    """The event-driven iteration beyond this machine."""
    rows, cases = [], []
    for workers in MODELLED:
        reducers = max(workers // EACH_REDUCER, 1)
        row: list[Any] = [f"{workers}, {reducers}"]
        for images in IMAGES:
            alone, one = (iteration(resnet50(images), *counts) for counts in ((1, 1), (workers, reducers)))
            cases.append({"images": images, "w": workers, "r": reducers, "s": one.seconds, "usd": one.usd})
            row += [one.seconds, alone.seconds / one.seconds, one.usd, 100 * one.requests_usd / one.usd]
        rows.append([*row, one.requests])
    columns = [f"{images:,} images: {what}" for images in IMAGES for what in ("s", "speed-up", "$", "% requests")]
    report.table(
        "Modelled: an iteration of ResNet50, a core and 75 MB/s for each function, S3 at 80 ms",
        ["w workers, r reducers", *columns, "requests"],
        rows,
    )
    return cases


def simulated(report: Report, counts: tuple[int, ...]) -> list[dict[str, Any]]:
    """The same iteration as a step of workers that stay, in the simulator; start-up is not in it."""
    rows, cases = [], []
    for workers in counts:
        servers = max(workers // EACH_SERVER, 1)
        link = dataclasses.replace(CLOUD.link, function_bytes_s=LINK_BYTES_S)
        fields = {"speed": 1.0, "shards": servers, "link": link, "stragglers": Uneven(), "lifetime_s": 86_400.0}
        machine = dataclasses.replace(CLOUD, **fields)
        row: list[Any] = [f"{workers}, {servers}"]
        for images in IMAGES:
            load = resnet50(images)
            n_rows = int(load.model_bytes / 84)  # of 20 factors and a bias, all of which a minibatch touches
            job = Workload(
                workers,
                optimizer=OPTIMIZER,
                stop=Stop(steps=4),
                minibatch=images // workers,
                memory_mb=load.memory_mb,
                pattern="scatter-reduce",
                shape=(n_rows // 2, n_rows - n_rows // 2),
                n=4 * images,
                n_held_out=0,
                n_touched=n_rows,
                kernel_s=load.compute_s / workers,
                minibatch_bytes=int(load.data_bytes / workers),
            )
            run, stateless = simulate(job, machine), iteration(load, workers, max(workers // EACH_REDUCER, 1))
            seconds, usd = run.step_s, float(np.median(np.diff(run.history["spent_usd"])))
            cases.append({"images": images, "w": workers, "servers": servers, "s": seconds, "usd": usd})
            row += [seconds, f"{stateless.seconds / seconds:.2f}x", usd, f"{stateless.usd / usd:.2f}x"]
        rows.append(row)
    whats = ("s", "events / this", "$", "events / this, $")
    report.table(
        "Simulated: the same iteration by workers that stay, scatter-reduce over Redis",
        ["w workers, Redis servers", *(f"{images:,} images: {what}" for images in IMAGES for what in whats)],
        rows,
    )
    report.remark(
        "*Events* is the table above. Workers keep the model and the optimiser's state in memory and have the same "
        "core, 75 MB/s and stragglers; their updates go through Redis servers of 10 Gbit/s, half a millisecond there "
        "and back, which the dollars include. The real loops run on a virtual clock; it is not a measurement. Workers "
        "that wait for a straggler are billed meanwhile; functions that have ended are not."
    )
    return cases


def main() -> None:
    """Measure, model and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8, 12])
    options = arguments.parse_args()
    runs = runs_of(options, 3)
    report = Report("stateless", "What does a step cost where no function outlives it, in seconds and dollars?")
    cases = compare(report, options, runs)
    report.remark(
        "All three have the same bits after the same step. Every map of map-reduce starts an interpreter on this "
        "machine (a cold start, twice a step); events are forks of one that is warm. Both read and write the model, "
        "the updates and the optimiser's state in the object storage, here a folder; what a request costs is as on S3, "
        "with the three that Lithops itself makes for a function."
    )
    modelled = model(report)
    stay = simulated(report, SIMULATED[:1] if options.quick else SIMULATED)
    report.remark(
        "slsML reports a time that falls like 1/w up to about 32 workers and is flat at about 256, and a cost that is "
        "flat up to 32 (128 with the larger minibatch) and then rises with the requests, about 2 w r an iteration. The "
        "model's latency and bandwidth are those of LambdaML's Table 6, the 0.35 s of an image are our guess, and the "
        "spread of workers' seconds is drawn: the slowest one decides, so that time falls less than by 1/w from four "
        "workers on, and dollars rise by a fifth to 32 workers. It is not a measurement."
    )
    report.end(runs=runs, cases=cases, modelled=modelled, simulated=stay)


if __name__ == "__main__":
    main()
