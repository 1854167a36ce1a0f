"""What the simulator says: steps against those measured here, growth to thousands of workers.

python benchmarks/simulate.py [--only calibration growth probe] [--workers 8 64 256] [--quick]
"""

from __future__ import annotations

import dataclasses
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from report import Report, number, parser

from mlless_nb import BSP, ISP, Stop
from mlless_nb.money import Rates, price_profile
from mlless_nb.simulate import (
    CLOUD,
    TWO_CORES,
    Machine,
    SentFraction,
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
#: PMF on MovieLens-10M, by its sizes; kernel_s by the measured 62 ns a rating of this shape.
ML10M = {"shape": (69_878, 10_681), "n_touched": 9_070, "kernel_s": 0.389e-3}
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
                    if (sync, pattern, servers, workers) not in known:
                        cells.append("")
                        continue
                    step_ms, _ = known[sync, pattern, servers, workers]
                    sent = known[sync, "broadcast", 1, workers][1]
                    ours = local_step_ms(sync, pattern, servers, workers, sent)
                    cells.append(f"{ours:.3g} / {step_ms:.3g} ({100 * (ours / step_ms - 1):+.0f} %)")
                    case = {"sync": sync, "pattern": pattern, "servers": servers, "P": workers}
                    cases.append(case | {"simulated_ms": ours, "measured_ms": step_ms})
                rows.append(cells)
        columns = ["step, ms: simulated / measured", *(f"P={workers}" for workers in WORKERS)]
        report.table(f"Two shared cores, {servers} Redis server{'s' * (servers > 1)}", columns, rows)
    for servers in (1, 2):
        off = [abs(c["simulated_ms"] / c["measured_ms"] - 1) for c in cases if c["servers"] == servers]
        report.remark(
            f"{servers} server{'s' * (servers > 1)}: {sum(one <= 0.15 for one in off)} of {len(off)} within 15 %; "
            f"median {100 * float(np.median(off)):.0f} %, largest {100 * max(off):.0f} %."
        )
    return cases


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
            cells = [number(case[name]) for case in one_by_one]
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
    read_usd = rates.profile.requests["storage"].usd["get"] / workload.minibatch
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
    parts = ["calibration", "growth", "probe"]
    arguments.add_argument("--only", choices=parts, nargs="+", default=parts)
    arguments.add_argument("--workers", type=int, nargs="+", default=list(GROWTH), help="for growth")
    options = arguments.parse_args()
    report = Report("simulate", "What does the simulator say, here and with thousands of workers?")
    figures: dict[str, Any] = {}
    if "calibration" in options.only:
        figures["calibration"] = calibration(report)
    if "growth" in options.only:
        figures["growth"] = growth(report, [8, 64, 256] if options.quick else options.workers)
    if "probe" in options.only:
        figures["probe_us"] = {name: 1e6 * value for name, value in probe(report).items()}
    report.end(**figures)


if __name__ == "__main__":
    main()
