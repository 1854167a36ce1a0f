"""What trust costs: telemetry, leases, checkpoints and checksums as a share of a step's processor time.

python benchmarks/overhead.py [--workers 4 8] [--runs 5] [--quick]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
from report import Report, median, number, parser, runs_of
from runs import Measured, measure
from sets import folder_of_sets, named
from step import options_of

from mlless_nb import BSP, ISP
from mlless_nb.driver.embedded_redis import EmbeddedRedis
from mlless_nb.exchange.protocol import RoundRequest
from mlless_nb.exchange.redis.coordinator import RedisCoordinator
from mlless_nb.exchange.step_report import Report as WorkersReport
from mlless_nb.kernels import crc32c
from mlless_nb.money.request import BudgetRequest
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.storage.worker_state import WorkerState
from mlless_nb.supervisor.checkpoint_times import FIRST_S, SHARE

#: Calls of which one figure is the median.
CALLS = 400
#: Seconds between two renewals of a worker's lease, on this machine.
LEASED_S = 5.0 / 8
REPORT = WorkersReport(5123.456789, 6250.0, compute_s=0.000654, exchange_s=0.001234, wait_s=0.000543, n_sent=12345)


def median_us(call: Callable[[int], object]) -> float:
    """Microseconds that ``call`` takes."""
    taken = []
    for number_ in range(CALLS):
        began = time.perf_counter()
        call(number_)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


def arrival_us(url: str, workers: int) -> tuple[float, float]:
    """(what a report adds to an arrival at the coordinator, what a lease adds), client and server, microseconds.

    The workers arrive one after another, so that one in P arrivals completes the round and writes the log.
    """
    everybody, kinds = list(range(workers)), {"bare": (None, 60.0), "report": (REPORT, 60.0), "lease": (None, 1e-3)}
    logs = {
        kind: [RedisCoordinator([url], f"overhead-{kind}", "1", f"nonce{slot}") for slot in everybody] for kind in kinds
    }
    for own in logs.values():
        own[0].create(cap_nusd=None, reserved_nusd=0)
        for slot, log in enumerate(own):
            log.claim(slot)
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    # They take turns, so that other load meets all alike.
    for step in range(1, CALLS + 1):
        for kind, (report, lease_s) in kinds.items():
            began = time.perf_counter()
            for slot, log in enumerate(logs[kind]):
                log.publish(
                    RoundRequest(
                        str(step), step, slot, everybody, [slot], b"", report, BudgetRequest(), 0, lease_s, 60.0
                    )
                )
            taken[kind].append((time.perf_counter() - began) / workers * 1e6)
    for own in logs.values():
        own[0].delete()
        for log in own:
            log.close()
    medians = {kind: statistics.median(times) for kind, times in taken.items()}
    return medians["report"] - medians["bare"], medians["lease"] - medians["bare"]


def parts_of(one: Measured, report_us: float, lease_us: float) -> dict[str, float]:
    """CPU-microseconds a worker and step, by what they are spent on."""
    job = one.run.job
    table = np.random.default_rng(0).random(job.model.table_shape(job.data.shape), dtype=np.float32)
    frames = bytes(int(one.sent_bytes + one.received_bytes))
    objects = MemoryObjects()
    tables = {"params": table, "residual": table}
    facts = {"weight": 1.0}
    # Encoding stops a step; storing goes on beside the next ones, but on the same cores.
    stored_us = median_us(lambda step: objects.put("part", WorkerState(step, 0, [0], facts, tables).encode()))
    # They cost at most this share of the run's time, and the first one comes early.
    steps_apart = max(stored_us / SHARE / (1e3 * one.step_ms), FIRST_S * 1e3 / one.step_ms)
    return {
        "checksums of frames": median_us(lambda _: crc32c(frames)),
        "reports": report_us,
        "leases": lease_us * one.step_ms / 1e3 / LEASED_S,
        "checkpoints": stored_us / steps_apart,
        "supervisor": one.supervisor_cpu_ms * 1e3,
    }


def main() -> None:
    """Parse the command line, measure, report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, nargs="+", default=[4, 8])
    options = arguments.parse_args()
    report = Report(
        "overhead",
        "Of the processor time of a step, how much goes into telemetry, leases, checkpoints and checksums?",
    )
    split, rows, cases = named("ml1m", folder_of_sets(options.sets)), [], []
    for workers in options.workers:
        for sync in (BSP(), ISP(0.7)):
            steps = (2400 if options.quick else 9600) // workers
            each, steps_us = [], []
            for _ in range(runs_of(options)):
                one = measure(split, steps, workers, sync=sync, **options_of(split, False))
                steps_us.append(1e3 * (one.functions_cpu_ms + one.redis_cpu_ms))
                with EmbeddedRedis() as redis:  # at once: the machine is then as quick as it was
                    each.append(parts_of(one, *arrival_us(redis.url, workers)))
            parts = {name: median(one[name] for one in each) for name in each[0]}
            step_us = median(steps_us)
            share = median(sum(one.values()) / us for one, us in zip(each, steps_us, strict=True))
            rows.append([f"{workers}, {sync}", step_us, *parts.values(), f"{number(100 * share)} %"])
            cases.append({"P": workers, "sync": str(sync), "step_us": step_us, **parts, "share": share})
    report.table(
        f"{split.label}, CPU-microseconds a worker and step",
        ["P, protocol", "all", *parts, "together"],
        rows,
    )
    report.remark(
        "All, and the supervisor, are read from the system while a run trains. The rest is timed by itself, after each "
        "run, client and server: checksums over the bytes that a worker moves in a step, a report as what it adds to "
        "an arrival (the coordinator's entry, which one arrival in P writes, included), a lease as what it adds, "
        "times its share of the steps, a checkpoint as what encoding a worker's part and storing it in memory take, by "
        "the steps between two. Together is the median of the runs' shares."
    )
    report.end(runs=runs_of(options), cases=cases)


if __name__ == "__main__":
    main()
