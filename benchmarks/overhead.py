"""What trust costs: all of it on and off in turns, and its parts as shares of a step's processor time.

python benchmarks/overhead.py [--workers 4 8] [--runs 5] [--quick]
"""

from __future__ import annotations

import math
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from report import Report, Usage, descendants, median, number, parser, runs_of, span
from runs import WARM_UP, Measured, measure
from sets import Split, folder_of_sets, named
from step import options_of
from trust_switch import CYCLE, TURN_S, turn_at, unless_off

from mlless_nb import BSP, ISP
from mlless_nb.driver import launcher
from mlless_nb.driver.driver import Driver
from mlless_nb.driver.embedded_redis import EmbeddedRedis
from mlless_nb.driver.interpreter import interpreter
from mlless_nb.driver.invocations import LEASE_S
from mlless_nb.driver.mending import Mending
from mlless_nb.exchange.protocol import RoundRequest
from mlless_nb.exchange.redis.arrivals import LEASE_SHARE
from mlless_nb.exchange.redis.coordinator import RedisCoordinator
from mlless_nb.exchange.step_report import Report as WorkersReport
from mlless_nb.kernels import crc32c
from mlless_nb.money.request import BudgetRequest
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.storage.worker_state import WorkerState
from mlless_nb.supervisor.checkpoint_times import FIRST_S, SHARE

#: Calls of which one figure is the median.
CALLS = 400
#: Seconds between two renewals of a worker's lease by its arrivals.
LEASED_S = LEASE_S * LEASE_SHARE
#: What is measured of turns, and that of a kind of which there was none: the run was too short.
NO_TURN = {"wall": math.nan, "CPU": math.nan}
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
        "leases": lease_us * one.step_ms / 1e3 / LEASED_S,
        "checkpoints": stored_us / steps_apart,
        "reports": report_us,
        "supervisor": one.supervisor_cpu_ms * 1e3,
    }


class _Turns(threading.Thread):
    """Looks at the processes of this one whenever a turn of `trust_switch` ends, until `stop` is called."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._is_over = threading.Event()
        self.launched_at_s = math.nan  # on the machine's clock, which Redis' is
        self.looks: list[tuple[float, dict[int, Usage]]] = []

    def run(self) -> None:
        """Look."""
        while not self._is_over.wait(TURN_S - time.time() % TURN_S):
            self.looks.append((time.time(), descendants()))

    def stop(self) -> None:
        """Look no more."""
        self._is_over.set()
        self.join()

    def by_kind(self, times_s: NDArray[np.float64], workers: int) -> dict[str, dict[str, float]]:
        """Microseconds of a step in the turns of each kind: wall time, and processor time a worker.

        Parameters
        ----------
        times_s : float64 (n,)
            When the steps ended, seconds after the launch. Only whole cycles in between count.
        workers : int
        """
        ends = times_s + self.launched_at_s
        looks = [look for look in self.looks if ends[min(WARM_UP, len(ends) // 3)] < look[0] < ends[-1]]
        first = next((at for at, look in enumerate(looks) if turn_at(look[0] + TURN_S / 2) == 0), 0)
        n = (len(looks) - 1 - first) // len(CYCLE) * len(CYCLE)
        sums = {kind: [0.0, 0.0, 0.0] for kind in CYCLE}
        for at in range(first, first + n):
            (began, before), (ended, after) = looks[at], looks[at + 1]
            n_steps = float(np.diff(np.interp([began, ended], ends, np.arange(len(ends))))[0])
            cpu_s = sum(after[pid].cpu_s - before[pid].cpu_s for pid in before.keys() & after.keys())
            taken = sums[CYCLE[turn_at((began + ended) / 2)]]
            taken[:] = taken[0] + n_steps, taken[1] + ended - began, taken[2] + cpu_s
        return {
            kind: {"wall": 1e6 * wall_s / n_steps, "CPU": 1e6 * cpu_s / n_steps / workers} if n_steps else dict(NO_TURN)
            for kind, (n_steps, wall_s, cpu_s) in sums.items()
        }


def in_turns(split: Split, steps: int, workers: int, **options: Any) -> dict[str, dict[str, float]]:
    """A run with trust off, on, and with its checksums twice, in turns, see `trust_switch`."""
    turns, invoke = _Turns(), Driver._invoke

    def invoke_and_note(driver: Driver, those: list[Any]) -> None:
        turns.launched_at_s = those[0].launched_at_s
        invoke(driver, those)

    def with_switch(modules: Any = ()) -> str:
        return interpreter([*modules, "trust_switch"])

    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    with (
        mock.patch.dict(os.environ, {"PYTHONPATH": path}),
        mock.patch.object(launcher, "interpreter", with_switch),
        mock.patch.object(Driver, "_invoke", invoke_and_note),
        mock.patch.object(Mending, "mend", unless_off(Mending.mend)),
    ):
        turns.start()
        one = measure(split, steps, workers, **options)
        turns.stop()
    return turns.by_kind(one.run.history["time_s"], workers)


def cost_of(run: dict[str, dict[str, float]], what: str) -> float:
    """The share of a step that trust costs: what turns with checksums twice take more than those without the rest."""
    return (run["twice"][what] - run["off"][what]) / run["on"][what]


def share_span(values: Iterable[float]) -> str:
    """The median and the range of shares, in per cent, as a cell."""
    return f"{span(100 * value for value in values)} %"


def main() -> None:
    """Parse the command line, measure, report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, nargs="+", default=[4, 8])
    options = arguments.parse_args()
    report = Report(
        "overhead", "What do leases, checkpoints, checksums and the watch for lost and slow functions cost?"
    )
    split, rows, turned, cases = named("ml1m", folder_of_sets(options.sets)), [], [], []
    for workers in options.workers:
        for sync in (BSP(), ISP(0.7)):
            steps = (2400 if options.quick else 9600) // workers
            job = {"sync": sync, **options_of(split, False)}
            runs = [in_turns(split, 3 * steps, workers, **job) for _ in range(runs_of(options))]
            each = []
            for _ in range(runs_of(options)):
                one = measure(split, steps, workers, **job)
                with EmbeddedRedis() as redis:  # at once: the machine is then as quick as it was
                    parts = parts_of(one, *arrival_us(redis.url, workers))
                each.append({**parts, "all": 1e3 * (one.functions_cpu_ms + one.redis_cpu_ms)})
            name = f"{workers}, {sync}"
            costs = {what: [cost_of(run, what) for run in runs] for what in NO_TURN}
            case: dict[str, Any] = {"P": workers, "sync": str(sync), "turns": runs, "costs": costs}
            row: list[Any] = [name]
            for what in NO_TURN:
                row += [median(run[kind][what] for run in runs) for kind in ("off", "on", "twice")]
                row.append(share_span(costs[what]))
            turned.append(row)
            medians = {part: median(one[part] for one in each) for part in each[0]}
            for share, names in (
                ("trust", ("checksums of frames", "leases", "checkpoints")),
                ("with telemetry", ("checksums of frames", "leases", "checkpoints", "reports", "supervisor")),
            ):
                medians[share] = median(sum(one[part] for part in names) / one["all"] for one in each)
            *figures, trust, with_telemetry = medians.values()
            rows.append([name, *figures, f"{number(100 * trust)} %", f"{number(100 * with_telemetry)} %"])
            cases.append({**case, **medians})
    report.table(
        f"{split.label}, microseconds of a step: wall time, and CPU a worker; without trust, with it, checksums twice",
        ["P, protocol", "wall, off", "on", "twice", "cost of trust", "CPU, off", "on", "twice", "cost of trust"],
        turned,
    )
    report.remark(
        "Half a second each, in turns, in the same run. Off: nobody looks at leases, ages and stragglers, or for lost "
        "functions, in functions and driver, and no checkpoint is stored; leases are renewed all the same. A frame "
        "without a checksum is none, so in a third turn all are computed twice; cost is what that takes more than a "
        "turn without the rest, by what one with everything takes. Medians over runs, and ranges."
    )
    report.table(
        f"{split.label}, CPU-microseconds a worker and step",
        ["P, protocol", *each[0], "trust", "with telemetry"],
        rows,
    )
    report.remark(
        "All, and the supervisor, are read from the system while a run trains. The rest is timed by itself, after each "
        "run, client and server: checksums over the bytes that a worker moves in a step, a lease as what it adds to an "
        "arrival, times its share of the steps, a checkpoint as what encoding a worker's part and storing it in memory "
        "take, by the steps between two. Reports, as what they add to an arrival (the coordinator's entry, which one "
        "arrival in P writes, included), and the supervisor, but for what the table above shows, are telemetry: what "
        "dashboard, tuner, bill and a supervisor that takes over read. Shares are medians of the runs' shares."
    )
    report.end(runs=runs_of(options), cases=cases)


if __name__ == "__main__":
    main()
