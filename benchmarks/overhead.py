"""What trust costs: all of it on and off in turns, and its parts as shares of a step's processor time.

python benchmarks/overhead.py [--workers 4 8] [--runs 5] [--quick]
"""

from __future__ import annotations

import itertools
import math
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from report import Report, Usage, descendants, median, number, parser, runs_of
from runs import WARM_UP, Measured, measure
from sets import Split, folder_of_sets, named
from step import options_of
from switched_kernels import FOLDER_VARIABLE, build
from trust_switch import TURN_S, turn_at, unless_off

from mlless_nb import BSP, ISP, Stop
from mlless_nb.driver.backends import launcher
from mlless_nb.driver.backends.interpreter import interpreter
from mlless_nb.driver.driver import Driver
from mlless_nb.driver.launch.invocations import LEASE_S
from mlless_nb.driver.recovery.fault_handling import FaultHandler
from mlless_nb.driver.servers.embedded_redis import EmbeddedRedis
from mlless_nb.exchange.protocol import RoundRequest
from mlless_nb.exchange.redis.arrivals import LEASE_SHARE
from mlless_nb.exchange.redis.coordinator import RedisCoordinator
from mlless_nb.exchange.step_report import Report as WorkersReport
from mlless_nb.kernels import frame_checksum
from mlless_nb.money.request import BudgetRequest
from mlless_nb.storage.folder import Folder
from mlless_nb.storage.worker_state import WorkerState
from mlless_nb.supervisor.checkpoint_times import TABLES, CheckpointTimes

#: Calls of which one figure is the median; and buffers that are copied from in turn, more than a cache holds.
CALLS, COPIED = 400, 32
#: Seconds between two renewals of a worker's lease by its arrivals.
LEASED_S = LEASE_S * LEASE_SHARE
#: Seconds of a case's runs with turns together, and runs whose parts are timed; with --quick a quarter, and one.
TURNS_S, PARTS_RUNS = 110.0, 2
#: What is measured of turns.
WHAT = ("wall", "CPU")
#: Samples of the turns of which the spread of their mean is read, and its share that the range has, in per cent.
SAMPLES, LIKELY = 2000, 95
REPORT = WorkersReport(5123.456789, 6250.0, compute_s=0.000654, exchange_s=0.001234, wait_s=0.000543, n_sent=12345)


def median_us(call: Callable[[int], object]) -> float:
    """Microseconds that ``call`` takes."""
    taken = []
    for number_ in range(CALLS):
        began = time.perf_counter()
        call(number_)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


def checksums_us(n_bytes: int) -> float:
    """Microseconds of checksums over bytes that were just copied to where they are read, as out of a socket."""
    sources = np.random.default_rng(0).integers(256, size=(COPIED, max(n_bytes, 64)), dtype=np.uint8)
    frame, taken = bytearray(sources.shape[1]), []
    for number_ in range(CALLS):
        frame[:] = memoryview(sources[number_ % COPIED])
        began = time.perf_counter()
        frame_checksum(frame)
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
    tables = dict.fromkeys(("params", "momentum", "residual", "best params", "best residual"), table)
    facts = {"weight": 1.0}
    # Encoding stops a step; storing goes on beside the next ones, but on the same cores.
    with tempfile.TemporaryDirectory() as root:
        objects = Folder(root)
        stored_us = median_us(lambda step: objects.put("part", WorkerState(step, 0, [0], facts, tables).encode()))
    # As often as their time allows: that writes to a cloud's storage cost money makes them rarer.
    times = CheckpointTimes(0, TABLES * table.nbytes, min((os.cpu_count() or 1) / job.workers, 1.0))
    a_minute = sum(times.is_due(tenth / 10, 0) for tenth in range(600))
    return {
        "checksums of frames": checksums_us(int(one.sent_bytes + one.received_bytes)),
        "leases": lease_us * one.step_ms / 1e3 / LEASED_S,
        "checkpoints": stored_us * a_minute / (60e3 / one.step_ms),
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

    def pairs(self, times_s: NDArray[np.float64], workers: int) -> NDArray[np.float64]:
        """The pairs of turns in which the run trained.

        Parameters
        ----------
        times_s : float64 (n,)
            When the steps ended, seconds after the launch.
        workers : int

        Returns
        -------
        float64 (n_pairs, 2, 3)
            Of the turn without trust and of the one with it: steps, microseconds, and those of processor time a worker.
        """
        ends = times_s + self.launched_at_s
        first_s = ends[min(WARM_UP, len(ends) // 3)]
        turns: dict[int, dict[str, list[float]]] = {}
        for (began, before), (ended, after) in itertools.pairwise(self.looks):
            if first_s < began and ended < ends[-1]:
                n_steps = float(np.diff(np.interp([began, ended], ends, np.arange(len(ends))))[0])
                cpu_s = sum(after[pid].cpu_s - before[pid].cpu_s for pid in before.keys() & after.keys())
                pair, _, kind = turn_at((began + ended) / 2)
                turns.setdefault(pair, {})[kind] = [n_steps, 1e6 * (ended - began), 1e6 * cpu_s / workers]
        whole = [[pair["off"], pair["on"]] for pair in turns.values() if len(pair) == 2]
        return np.reshape(np.array(whole, float), (-1, 2, 3))


def in_turns(split: Split, kernels: str, seconds: float, workers: int, **options: Any) -> NDArray[np.float64]:
    """The `_Turns.pairs` of a run of ``seconds`` with trust off and on in turns, see `trust_switch`.

    ``kernels``: the folder of the `switched_kernels`.
    """
    turns, invoke = _Turns(), Driver._invoke

    def invoke_and_note(driver: Driver, those: list[Any]) -> None:
        turns.launched_at_s = those[0].launched_at_s
        invoke(driver, those)

    def with_switch(modules: Any = ()) -> str:
        return interpreter([*modules, "trust_switch"])

    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    with (
        mock.patch.dict(os.environ, {"PYTHONPATH": path, FOLDER_VARIABLE: kernels}),
        mock.patch.object(launcher, "interpreter", with_switch),
        mock.patch.object(Driver, "_invoke", invoke_and_note),
        mock.patch.object(FaultHandler, "handle", unless_off(FaultHandler.handle)),
    ):
        turns.start()
        one = measure(split, WARM_UP, workers, stop=Stop(time_s=seconds), **options)
        turns.stop()
    return turns.pairs(one.run.history["time_s"], workers)


class Cost(NamedTuple):
    """Microseconds of a step without trust and with it, and per cent of the latter that trust costs, with its range."""

    off_us: float
    on_us: float
    percent: float
    least: float
    most: float

    @classmethod
    def of(cls, pairs: NDArray[np.float64], what: str) -> Cost:
        """The cost in ``pairs`` of turns, of all of them together.

        A checkpoint falls into few turns, so a median of turns would not show it.
        """
        if not len(pairs):
            return cls(*[math.nan] * 5)

        def shares(drawn: NDArray[np.float64]) -> tuple[Any, Any, Any]:
            sums = drawn.sum(axis=-3)
            off, on = np.moveaxis(sums[..., 1 + WHAT.index(what)] / sums[..., 0], -1, 0)
            return off, on, 100 * (on - off) / on

        # How much another sample of as many pairs might differ (Efron's bootstrap).
        draws = np.random.default_rng(0).integers(len(pairs), size=(SAMPLES, len(pairs)))
        spread = np.percentile(shares(pairs[draws])[2], [50 - LIKELY / 2, 50 + LIKELY / 2])
        return cls(*map(float, (*shares(pairs), *spread)))

    @property
    def cell(self) -> str:
        """The cost and its range."""
        return f"{number(self.percent)} ({number(self.least)} to {number(self.most)}) %"


def main() -> None:
    """Parse the command line, measure, report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, nargs="+", default=[4, 8])
    options = arguments.parse_args()
    report = Report(
        "overhead", "What do leases, checkpoints, checksums and the watch for lost and slow functions cost?"
    )
    split, rows, turned, cases = named("ml1m", folder_of_sets(options.sets)), [], [], []
    optimizer = options_of(split, False)["optimizer"]
    n_runs, shorter = runs_of(options), 4 if options.quick else 1
    with tempfile.TemporaryDirectory() as kernels:
        build(Path(kernels))
        for workers in options.workers:
            for sync in (BSP(), ISP(0.7)):
                job = {"sync": sync, **options_of(split, False)}
                runs = [in_turns(split, kernels, TURNS_S / shorter / n_runs, workers, **job) for _ in range(n_runs)]
                each = []
                for _ in range(min(n_runs, PARTS_RUNS)):
                    one = measure(split, 9600 // workers // shorter, workers, **job)
                    with EmbeddedRedis() as redis:  # at once: the machine is then as quick as it was
                        parts = parts_of(one, *arrival_us(redis.url, workers))
                    each.append({**parts, "all": 1e3 * (one.functions_cpu_ms + one.redis_cpu_ms)})
                name = f"{workers}, {sync}"
                pairs = np.concatenate(runs)
                costs = {what: Cost.of(pairs, what) for what in WHAT}
                case: dict[str, Any] = {"P": workers, "sync": str(sync), "pairs": pairs.tolist(), "costs": costs}
                row: list[Any] = [name, len(pairs)]
                for cost in costs.values():
                    row += [cost.off_us, cost.on_us, cost.cell]
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
        f"{split.label}, {optimizer}, microseconds of a step without trust and with it: wall time, and CPU a worker",
        ["P, protocol", "pairs of turns", "wall, off", "on", "cost of trust", "CPU, off", "on", "cost of trust"],
        turned,
    )
    report.remark(
        f"{TURN_S:g} s each, off and on at random in each pair of turns, in the same runs. Off: nobody looks at "
        "leases, ages and stragglers, or for lost functions, in functions and driver; no checkpoint is announced (one "
        "that falls due then is left out, and not made up for); and no checksum of a frame is computed, neither by who "
        "publishes it nor by who reads it. Leases are renewed all the same. Cost is what a step takes more when trust "
        "is on, by what it takes then; means of all turns, since a checkpoint falls into few. "
        f"The range has {LIKELY} % of the means of resampled pairs: what other load did to these."
    )
    report.table(
        f"{split.label}, {optimizer}, CPU-microseconds a worker and step",
        ["P, protocol", *each[0], "trust", "with telemetry"],
        rows,
    )
    report.remark(
        "All, and the supervisor, are read from the system while a run trains. The rest is timed by itself, after "
        "each run, client and server: checksums over the bytes that a worker moves in a step, just copied, a lease "
        "as what it adds to an arrival, times its share of the steps, a checkpoint as what encoding a worker's part "
        "and storing it in a file take, as often as its time allows (its price, which makes it rarer, left out). "
        "Reports, as what they add to an arrival (the coordinator's entry, which one arrival in P writes, included), "
        "and the supervisor, but for what the table above shows, are telemetry: what dashboard, tuner, bill and a "
        "supervisor that takes over read. Shares are medians of the runs' shares."
    )
    report.end(runs=n_runs, cases=cases)


if __name__ == "__main__":
    main()
