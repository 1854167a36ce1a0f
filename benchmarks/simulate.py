"""What the simulator says: steps against those measured here, the paper's settings, growth to thousands of workers.

python benchmarks/simulate.py [--only calibration paper growth probe] [--workers 8 64 256] [--quick]
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from report import Report, parser, times
from sets import ml1m

from mlless_nb import BSP, ISP, PMF, SGD, Adam, LogisticRegression, ScaleIn, Stop, TrainingJob
from mlless_nb.money import Rates, price_profile
from mlless_nb.simulate import (
    CLOUD,
    TWO_CORES,
    Link,
    Machine,
    RecordedCurve,
    SentFraction,
    SimulatedRun,
    Workload,
    simulate,
)
from mlless_nb.simulate.calibrate import calibrate
from mlless_nb.simulate.workload import SPARSE_VALUE_BYTES

RESULTS = Path(__file__).with_name("RESULTS.md")
WORKERS = (2, 4, 8, 12, 16, 24)
PATTERNS = ("broadcast", "scatter-reduce")
#: PMF of rank 20 on MovieLens-1M, minibatches of 6,250: rows of the table that one touches.
ML1M_TOUCHED = 4870
#: 1 Gbit/s in front of every Redis server, as in the paper.
PAPER = dataclasses.replace(CLOUD, link=Link(500e-6, 125e6, 125e6), lifetime_s=7200.0)
#: The paper's PMF workloads, by their sizes; kernel_s by the measured 62 ns a rating of the 10M shape.
ML10M = {"shape": (69_878, 10_681), "n": 9_000_000, "n_held_out": 1_000_000, "n_touched": 9_070, "kernel_s": 0.389e-3}
ML20M = {"shape": (138_493, 26_744), "n": 18_000_000, "n_held_out": 2_000_000, "n_touched": 14_000, "minibatch": 12_000}
ML20M |= {"kernel_s": 0.75e-3}
#: The paper's sparse LR: Adam moves all of the 100,013 weights; 0.473 ms for 6,250 rows was measured.
CLICKS = {"model": LogisticRegression(), "optimizer": Adam(0.01), "shape": (100_013,), "n_touched": 100_014}
CLICKS |= {"n": 40_000_000, "n_held_out": 0}
#: What is asked about growth.
GROWTH, GROWN, SERVERS = (8, 64, 256, 1024, 4096), (BSP(), ISP(0.7)), (1, 16, 64)


def measured() -> dict[tuple[str, str, int, int], tuple[float, float]]:
    """(step ms, bytes out) by protocol, pattern, servers and workers, from the table of growth in RESULTS.md."""
    section = RESULTS.read_text("utf-8").split("(`growth.py`)")[1].split("\n## ")[0]
    found, sync = {}, ""
    for line in section.splitlines():
        if line.startswith("**"):
            sync = "ISP" if "ISP" in line else "BSP"
        row = re.match(r"\| (\d+), ([\w-]+), (\d) servers? \| ([\d.,]+)[^|]*\|[^|]*\| ([\d.]+) (kB|MB) ", line)
        if row:
            workers, pattern, servers, step_ms, size, unit = row.groups()
            n_bytes = float(size) * (1e3 if unit == "kB" else 1e6)
            found[sync, pattern, int(servers), int(workers)] = float(step_ms.replace(",", "")), n_bytes
    return found


def local_step_ms(
    sync: str,
    pattern: str,
    servers: int,
    workers: int,
    sent_bytes: float,
    machine: Machine = TWO_CORES,
    steps: int = 40,
) -> float:
    """The simulated step here, where a worker that filters publishes ``sent_bytes`` of its update."""
    share = sent_bytes / (SPARSE_VALUE_BYTES * ML1M_TOUCHED * 21)
    workload = Workload(
        workers,
        n_touched=ML1M_TOUCHED,
        sync=BSP() if sync == "BSP" else ISP(0.7),
        sent=SentFraction(share, 0.0),
        pattern=pattern,
        stop=Stop(steps=steps),
        n_held_out=0,
    )
    return 1e3 * simulate(workload, dataclasses.replace(machine, shards=servers)).step_s


def calibration(report: Report) -> list[dict[str, Any]]:
    """Simulated step times beside those measured here."""
    known, cases = measured(), []
    for servers in (1, 2):
        rows = []
        for sync in ("BSP", "ISP"):
            for pattern in PATTERNS:
                cells: list[Any] = [f"{sync}, {pattern}"]
                for workers in WORKERS:
                    step_ms, _ = known[sync, pattern, servers, workers]
                    sent = known[sync, "broadcast", 1, workers][1]
                    ours = local_step_ms(sync, pattern, servers, workers, sent)
                    cells.append(f"{ours:.3g} / {step_ms:.3g} ({100 * (ours / step_ms - 1):+.0f} %)")
                    case = {"sync": sync, "pattern": pattern, "servers": servers, "P": workers}
                    cases.append(case | {"simulated_ms": ours, "measured_ms": step_ms})
                rows.append(cells)
        role = "fitted to" if servers == 1 else "not seen by the fit"
        columns = ["step, ms: simulated / measured", *(f"P={workers}" for workers in WORKERS)]
        report.table(f"Two shared cores, {servers} Redis server{'s' * (servers > 1)}, {role}", columns, rows)
    for servers in (1, 2):
        off = [abs(c["simulated_ms"] / c["measured_ms"] - 1) for c in cases if c["servers"] == servers]
        report.remark(
            f"{servers} server{'s' * (servers > 1)}: {sum(one <= 0.15 for one in off)} of {len(off)} within 15 %; "
            f"median {100 * float(np.median(off)):.0f} %, largest {100 * max(off):.0f} %."
        )
    return cases


def recorded(sync: BSP | ISP, workers: int, steps: int) -> SimulatedRun:
    """Real training on MovieLens-1M, in virtual time."""
    split = ml1m()
    job = TrainingJob(
        PMF(rank=20, l2=0.02),
        SGD(8.0, 0.8, nesterov=True, lazy=True),
        split.train,
        sync=sync,
        workers=workers,
        validation=split.held_out,
        stop=Stop(steps=steps),
        eval_every=5,
        pattern="broadcast",
        scale_in=ScaleIn.off(),
    )
    return simulate(job, PAPER)


def curve_of(run: SimulatedRun, workers: int, stretch: float) -> RecordedCurve:
    """The held-out losses of ``run`` by step, as if an epoch were ``stretch`` times as long."""
    history = run.history
    seen = ~np.isnan(history["validation_loss"])
    steps, losses = history["step"][seen] * stretch, history["validation_loss"][seen]
    grid = np.arange(int(steps[-1]) + 1)
    return RecordedCurve(np.interp(grid, np.r_[0.0, steps], np.r_[history["loss"][0], losses]).tolist(), 0.0, workers)


def sent_of(run: SimulatedRun) -> SentFraction:
    """The share that ISP published in ``run``, as a power of the step."""
    steps, shares = run.history["step"][2:], run.history["sent_fraction"][2:]
    power, first = np.polyfit(np.log(steps), np.log(np.maximum(shares, 1e-6)), 1)
    return SentFraction(math.exp(first), -power)


def paper(report: Report, quick: bool) -> dict[str, Any]:
    """The settings of the MLLess paper on functions of 1 vCPU and Redis behind 1 Gbit/s."""
    workers, steps = 24, 60 if quick else 200
    runs = {str(sync): recorded(sync, workers, steps) for sync in (BSP(), ISP(0.7))}
    sent = sent_of(runs["ISP 0.7"])
    # What both protocols come down to in these steps.
    target = 1.001 * max(float(np.nanmin(run.history["validation_loss"])) for run in runs.values())
    rows, cases = [], []
    for name, sizes, said in (("ML-10M", ML10M, (140.0, 0.0948)), ("ML-20M", ML20M, (115.0, 0.1348))):
        stretch = sizes["n"] / 900_000 * 6250 / sizes.get("minibatch", 6250)
        step_s = {}
        for sync, pattern, shards in (
            (BSP(), "broadcast", 1),
            (BSP(), "scatter-reduce", 1),
            (ISP(0.7), "broadcast", 1),
            (ISP(0.7), "broadcast", 2),
        ):
            workload = Workload(
                workers,
                curve=curve_of(runs[str(sync)], workers, stretch),
                sync=sync,
                sent=sent,
                pattern=pattern,
                stop=Stop(target=target, steps=int(steps * stretch)),
                prices="ibm-paper",
                **sizes,
            )
            run = simulate(workload, dataclasses.replace(PAPER, shards=shards))
            step_s[str(sync), pattern, shards] = run.time_s
            label = f"{name}, {sync}, {pattern}, {shards} server{'s' * (shards > 1)}"
            base = step_s["BSP", "broadcast", 1]
            rows.append(
                [label, run.history.n_steps, 1e3 * run.step_s, run.time_s, run.cost.total, times(base, run.time_s)]
            )
            rows[-1] += [run.status, *(said if sync != BSP() else ("334" if name == "ML-20M" else None, None))]
            cases.append({"workload": label, "steps": run.history.n_steps, "time_s": run.time_s, "usd": run.cost.total})
            cases[-1] |= {"step_ms": 1e3 * run.step_s, "status": run.status, "reason": run.reason}
    columns = ["P=24", "steps", "step, ms", "time, s", "$", "quicker than BSP", "ended", "paper, s", "paper, $"]
    report.table("PMF to a held-out RMSE (simulated; curve of MovieLens-1M, sizes of the others)", columns, rows)
    report.remark(
        f"The target, {target:.4f}, is 0.1 % above what BSP and ISP both reach in {steps} steps; ISP publishes "
        f"{sent.first:.2g} * t^-{sent.power:.2g} of an update."
    )
    return {"to_target": cases, "target": target, "sent": dataclasses.asdict(sent), **lr_settings(report)}


def lr_settings(report: Report) -> dict[str, Any]:
    """LR on Criteo's shape: a constant global batch, and a second Redis server at 64 workers."""
    constant, rows = [], []
    ways = ((BSP(), "broadcast"), (BSP(), "scatter-reduce"), (ISP(0.7), "broadcast"))
    for workers, said in ((12, 437), (24, 395), (48, 426)):
        minibatch = 6250 * 24 // workers
        step_ms = []
        for sync, pattern in ways:
            workload = dataclasses.replace(
                _clicks(workers, minibatch, pattern), sync=sync, sent=SentFraction(0.05, 0.0)
            )
            step_ms.append(1e3 * simulate(workload, PAPER).step_s)
            constant.append({"P": workers, "sync": str(sync), "pattern": pattern, "step_ms": step_ms[-1]})
        rows.append([f"{workers} workers, minibatches of {minibatch:,}", *step_ms, said])
    report.table(
        "LR, constant global batch of 150,000 (simulated; ISP publishing a twentieth)",
        ["step, ms", *(f"{sync}, {pattern}" for sync, pattern in ways), "paper, s to the target"],
        rows,
    )
    shards, rows = [], []
    for sync in (BSP(), ISP(0.7)):
        step_ms = []
        for servers in (1, 2, 4):
            workload = dataclasses.replace(_clicks(64, 6250, "broadcast"), sync=sync, sent=SentFraction(0.2, 0.0))
            step_ms.append(1e3 * simulate(workload, dataclasses.replace(PAPER, shards=servers)).step_s)
            shards.append({"sync": str(sync), "servers": servers, "step_ms": step_ms[-1]})
        rows.append([str(sync), *step_ms, times(step_ms[0], step_ms[1])])
    columns = ["64 workers, broadcast", "1 server: step, ms", "2", "4", "1 / 2 (paper: 1.4x)"]
    report.table("LR, Redis servers (simulated; ISP publishing a fifth)", columns, rows)
    return {"constant_batch": constant, "shards_at_64": shards}


def _clicks(workers: int, minibatch: int, pattern: str) -> Workload:
    kernel_s = 0.473e-3 * minibatch / 6250
    return Workload(
        workers, minibatch=minibatch, kernel_s=kernel_s, pattern=pattern, stop=Stop(steps=12), eval_every=1000, **CLICKS
    )


def growth(report: Report, counts: list[int]) -> list[dict[str, Any]]:
    """PMF of the 10M shape on a cloud, by protocol, pattern, servers and workers."""
    ways = [(sync, pattern, servers) for sync in GROWN for pattern in PATTERNS for servers in SERVERS]
    with ProcessPoolExecutor() as pool:
        waiting = [pool.submit(_grown, workers, *way) for workers in counts for way in ways]
        cases = [one.result() for one in waiting]
    found = {(case["sync"], case["pattern"], case["servers"], case["P"]): case for case in cases}
    for title, name in (
        ("Seconds of a step", "step_s"),
        ("Dollars a billion rows", "usd_per_billion"),
        ("Seconds from the last step to the end", "end_s"),
    ):
        rows: list[list[Any]] = []
        for sync, pattern, servers in ways:
            one_by_one = [found[str(sync), pattern, servers, workers] for workers in counts]
            cells = [f"{case[name]:.3g}" if case[name] is not None else "-" for case in one_by_one]
            marks = [" *" if case["fails"] else "" for case in one_by_one]
            label = f"{sync}, {pattern}, {servers} server{'s' * (servers > 1)}"
            rows.append([label, *(cell + mark for cell, mark in zip(cells, marks, strict=True))])
        report.table(f"{title} (simulated)", ["on a cloud", *(f"P={workers:,}" for workers in counts)], rows)
    report.remark(
        "PMF, MovieLens-10M's shape, minibatches of 6,250; ISP publishes a twentieth of its updates. * The run fails "
        "there; what is told is what the servers' lines alone take for a step."
    )
    for case in cases:
        if case["fails"]:
            report.remark(f"P={case['P']:,}, {case['sync']}, {case['pattern']}, {case['servers']}: {case['fails']}.")
    return cases


def _grown(workers: int, sync: BSP | ISP, pattern: str, servers: int) -> dict[str, Any]:
    steps = 10 if workers < 1000 else 3
    began = time.process_time()
    sizes = {**ML10M, "n": 6250 * workers * 20, "n_held_out": 0}
    sent = SentFraction(0.05, 0.0)
    workload = Workload(
        workers, sync=sync, sent=sent, pattern=pattern, stop=Stop(steps=steps), eval_every=1000, **sizes
    )
    machine: Machine = dataclasses.replace(CLOUD, shards=servers)
    run = simulate(workload, machine)
    history = run.history
    case = {"P": workers, "sync": str(sync), "pattern": pattern, "servers": servers, "step_s": run.step_s}
    case |= {"end_s": None, "fails": ""}
    if run.status == "finished":
        case["end_s"] = run.time_s - float(history["time_s"][-1])
        case["out_bytes"] = float(np.median(history["received_bytes"]))
    else:
        assert pattern == "broadcast", run.reason
        case["fails"] = run.reason
        case["out_bytes"] = workers * (workers - 1) * workload.update_bytes(0.05 if sync.filters else 1.0)
        case["step_s"] = case["out_bytes"] / servers / machine.link.server_bytes_s
    # A whole second of a server is more than some of these runs: so the bill is not asked.
    rates = Rates(price_profile(workload.prices), workload.memory_mb, servers)
    usd_s = (workers + 1) * rates.function_usd_s + rates.servers_usd_s
    read_usd = rates.profile.storage.get_usd / workload.minibatch
    case["usd_per_billion"] = 1e9 * (usd_s * case["step_s"] / (workers * workload.minibatch) + read_usd)
    case["simulated_in_s"] = time.process_time() - began
    print(case, file=sys.stderr, flush=True)
    return case


def probe(report: Report) -> dict[str, float]:
    """What `calibrate` finds here, beside the constants in use."""
    found, used = dataclasses.asdict(calibrate()), dataclasses.asdict(TWO_CORES.costs)
    rows = [[name, 1e6 * found[name], 1e6 * used[name]] for name in found]
    rows = [[name, f"{one:.4g}", f"{other:.4g}"] for name, one, other in rows]
    report.table("Costs, microseconds of a core", ["", "probed now", "in use"], rows)
    return found


def main() -> None:
    """Simulate and report."""
    arguments = parser(__doc__)
    parts = ["calibration", "paper", "growth", "probe"]
    arguments.add_argument("--only", choices=parts, nargs="+", default=parts)
    arguments.add_argument("--workers", type=int, nargs="+", default=list(GROWTH), help="for growth")
    options = arguments.parse_args()
    report = Report("simulate", "What does the simulator say, here and where we cannot run?")
    figures: dict[str, Any] = {}
    if "calibration" in options.only:
        figures["calibration"] = calibration(report)
    if "paper" in options.only:
        figures["paper"] = paper(report, options.quick)
    if "growth" in options.only:
        figures["growth"] = growth(report, [8, 64, 256] if options.quick else options.workers)
    if "probe" in options.only:
        figures["probe_us"] = {name: 1e6 * value for name, value in probe(report).items()}
    report.end(**figures)


if __name__ == "__main__":
    main()
