"""One training run, measured: step times, bytes, start-up, and what its processes take. Used by most benchmarks."""

from __future__ import annotations

import dataclasses
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from report import descendants, is_redis, median
from sets import Split

import mlless_nb
from mlless_nb import TrainingJob
from mlless_nb.driver.launch.data_preparation import JobData
from mlless_nb.storage.objects import MemoryObjects

#: Steps at the beginning that are not counted: minibatches are fetched, buffers grow.
WARM_UP = 10
#: Between two looks at the processes of a run, seconds.
LOOK_S = 0.02
#: To be said under a table that compares jobs of ours with each other.
STARTS_ALIKE = (
    "Seconds to a loss are of training; start-up, from the call to the end of the first step, comes on top, and is "
    "about the same for all, the first run's packing of the data included. The column of packing times that alone, "
    "without the way to the storage (`packing.py` has all of it)."
)
#: To be said where a job names its Redis.
SEALED = (
    "Redis is named in the job here, so every frame is sealed by its sender and opened by each reader "
    "(`mlless_nb/exchange/seals.py`), which takes time in proportion to its bytes. On the embedded Redis, with which "
    "`step.py` measures, frames are not sealed, and the same steps are quicker."
)
#: The least time over which ticks of processor time are taken for a figure, seconds.
LEAST_S = 0.4


@dataclass(frozen=True)
class Measured:
    """What one run took; times in ms are medians over its steps, CPU-ms are means per worker and step.

    Attributes
    ----------
    run : mlless_nb.TrainingRun
        After its end.
    step_ms : float
        From one step's end to the next one's, by the coordinator's clock.
    p90_step_ms : float
    functions_cpu_ms : float
        Of all functions, the supervisor too, per worker and step; NaN where the run was too short to tell.
    supervisor_cpu_ms : float
        Of these, what is not of the workers, the busiest functions: the supervisor's.
    redis_cpu_ms : float
        Of the Redis servers that this process started.
    sent_bytes, received_bytes : float
        Per worker and step.
    call_s : float
        Until `train` returned.
    startup_s : float
        From the call to the end of the first step.
    invoked_s : float
        From the functions' invocation to the end of the first step.
    """

    run: Any
    step_ms: float
    p90_step_ms: float
    functions_cpu_ms: float
    supervisor_cpu_ms: float
    redis_cpu_ms: float
    sent_bytes: float
    received_bytes: float
    call_s: float
    startup_s: float
    invoked_s: float

    @property
    def figures(self) -> dict[str, Any]:
        """All as plain numbers, for the JSON line."""
        history = self.run.history
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "run"}
        phases = {
            f"{name[:-2]}_ms": float(np.nanmedian(history[name])) * 1e3
            for name in ("compute_s", "exchange_s", "wait_s")
        }
        return {**fields, **phases}


def lazy(run: Any) -> str:
    """Whether the optimiser of a run was lazy, as an option: what "auto" has come to there."""
    return f"lazy={run.job.optimizer.lazy}"


class _Watch(threading.Thread):
    """Looks at the processes of this one twice while a run trains, at steps ``first`` and ``last`` or a little later.

    Rows come in some time after their steps, so the processor time is taken per second and not per row.
    """

    def __init__(self, run: Any, first: int, last: int) -> None:
        super().__init__(daemon=True)
        self._run, self._first, self._last = run, first, last
        self._seen: list[tuple[float, dict[int, Any]]] = []

    def run(self) -> None:
        """Wait for the steps and look."""
        telemetry = self._run.telemetry
        for wanted in (self._first, self._last):
            while telemetry.n_rows < wanted:
                if not telemetry.state.is_live:
                    return
                time.sleep(LOOK_S)
            self._seen.append((time.perf_counter(), descendants()))

    def cores(self) -> tuple[float, float, float]:
        """Cores that all functions, those that do not train, and Redis kept busy in between.

        NaN where the run was too short to tell: rows may come in when the functions that made them have ended.
        """
        self.join()
        if len(self._seen) < 2 or self._seen[1][0] - self._seen[0][0] < LEAST_S:
            return float("nan"), float("nan"), float("nan")
        (began, before), (ended, after) = self._seen
        if before.keys() - after.keys():
            return float("nan"), float("nan"), float("nan")
        used: dict[bool, list[float]] = {True: [], False: []}
        for pid in before:
            used[is_redis(after[pid])].append((after[pid].cpu_s - before[pid].cpu_s) / (ended - began))
        functions = sorted(used[False], reverse=True)
        return sum(functions), sum(functions[self._run.job.workers :]), sum(used[True])


def measure(split: Split, steps: int, workers: int, **options: Any) -> Measured:
    """Train ``steps`` steps with ``workers`` workers and measure.

    Parameters
    ----------
    split : Split
    steps, workers : int
    **options
        Further fields of `TrainingJob`; ``model`` and ``optimizer`` among them.

    Raises
    ------
    SystemExit
        When the run fails: a benchmark of a failed run says nothing.
    """
    options.setdefault("stop", mlless_nb.Stop(steps=steps))
    options.setdefault("eval_every", 50)
    options.setdefault("scale_in", mlless_nb.ScaleIn.off())  # what is measured is a number of workers
    job = TrainingJob(data=split.train, validation=split.held_out, workers=workers, **options)
    called = time.perf_counter()
    run = mlless_nb.train(job)
    returned = time.perf_counter()
    watch = _Watch(run, max(WARM_UP, steps // 10), steps * 6 // 10)
    watch.start()
    while run.telemetry.n_rows == 0 and run.telemetry.state.is_live:
        time.sleep(0.002)
    first_row = time.perf_counter()
    run.wait()
    if run.status != "finished":
        raise SystemExit(f"{job!r} ended as {run.status}: {run.reason}")
    history = run.history
    step_ms = np.diff(history["time_s"])[min(WARM_UP, history.n_steps // 3) :] * 1e3
    functions, supervisor, redis = watch.cores()
    return Measured(
        run,
        float(np.median(step_ms)),
        float(np.percentile(step_ms, 90)),
        functions * float(np.mean(step_ms)) / workers,
        supervisor * float(np.mean(step_ms)) / workers,
        redis * float(np.mean(step_ms)) / workers,
        float(np.median(history["sent_bytes"])) / workers,
        float(np.median(history["received_bytes"])) / workers,
        returned - called,
        first_row - called,
        float(history["time_s"][0]),
    )


def packing_s(job: TrainingJob) -> float:
    """Seconds that packing the data of ``job`` into minibatches takes, the way to the storage left out.

    A first run on some data does it on the way to its first step; later ones find it done.
    """
    data, began = JobData(job), time.perf_counter()
    data.pack(MemoryObjects(), lambda: False)
    return time.perf_counter() - began


def medians(runs: list[Measured]) -> dict[str, Any]:
    """The median of every figure over several runs of one job, and the range of the step's time."""
    figures = [one.figures for one in runs]
    steps = [one["step_ms"] for one in figures]
    return {name: median(one[name] for one in figures) for name in figures[0]} | {
        "runs": len(runs),
        "step_ms_range": [min(steps), max(steps)],
    }
