"""BSP, ISP, SSP and ISP over SSP: step time and time to a held-out loss, here and over a slow link with a laggard.

    python benchmarks/staleness.py [--workers 8] [--rate 1gbit] [--stopped 0.5] [--runs 3] [--quick]

The laggard is one worker that is stopped and continued from outside (SIGSTOP, SIGCONT), ``--stopped`` of the time. The
link needs Linux, root and iproute2, the laggard Linux; without them that part says so and is left out.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import link
import numpy as np
from report import Report, descendants, least_in_bold, median, number, parser, span, times
from runs import SEALED, STARTS_ALIKE, WARM_UP, measure, packing_s
from sets import Split, ml1m

from mlless_nb import BSP, ISP, PMF, SGD, SSP

JOB = {
    "model": PMF(rank=20, l2=0.05),
    "optimizer": SGD(30.0, 0.9, nesterov=True, lazy=True),
    "minibatch": 6250,
    "pattern": "broadcast",
    "partition": "rows",
    "eval_every": 5,
}
PROTOCOLS = (BSP(), SSP(3), ISP(0.7), ISP(0.7, staleness=3))
#: The held-out loss that all are to reach, and the steps that they are given for it.
TARGET, STEPS, QUICK_STEPS = 0.92, 130, 40
#: Seconds from one stop of the laggard to the next.
PERIOD_S = 0.1
#: What the paper reports, as quotients of times to a loss.
PAPER = (
    "MLLess (journal): ISP is 1.9 (12 workers) and 1.4 times (24) as quick to a loss as SSP(3), that 1.1 times as BSP."
)


def is_worker(opened: Path, slot: int) -> bool:
    """Whether a process that has ``opened`` (a link in /proc) is the function that is worker ``slot``."""
    try:
        # Lithops numbers its calls, and the first is the supervisor.
        return bool(re.search(rf"/{slot + 1:05d}/job_stats\.txt$", os.readlink(opened)))
    except OSError:
        return False


def find_worker(slot: int) -> list[Path]:
    """What tells the processes (Lithops' and its child) of worker ``slot`` of the run that this process started."""
    found = []
    for pid in descendants():
        with contextlib.suppress(OSError):
            found += [opened for opened in Path(f"/proc/{pid}/fd").iterdir() if is_worker(opened, slot)][:1]
    return found


@contextlib.contextmanager
def laggard(slot: int, stopped: float) -> Iterator[None]:
    """Meanwhile, worker ``slot`` of whatever run there is stands still for a share ``stopped`` of the time."""
    is_over = threading.Event()

    def slow_down() -> None:
        processes: list[Path] = []
        while not is_over.wait(PERIOD_S * (1 - stopped)):
            if len(processes) < 2 or not all(is_worker(opened, slot) for opened in processes):  # of another run
                processes = find_worker(slot)
            for word in (signal.SIGSTOP, signal.SIGCONT):
                for opened in processes:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(opened.parts[2]), word)
                if word == signal.SIGSTOP:
                    is_over.wait(PERIOD_S * stopped)

    thread = threading.Thread(target=slow_down, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def figures(split: Split, steps: int, workers: int, **fields: Any) -> dict[str, float]:
    """What one run took."""
    done = measure(split, steps, workers, **JOB, **fields)
    history = done.run.history
    time_s, held_out = history["time_s"], history["validation_loss"]
    there = np.flatnonzero(held_out <= TARGET)
    first = min(WARM_UP, len(time_s) // 3)
    return {
        # The mean: where one is stopped now and then, the median step says nothing.
        "step_ms": float(np.mean(np.diff(time_s[first:]))) * 1e3,
        "wait_ms": float(np.nanmean(history["wait_s"][first:])) * 1e3,
        "staleness": float(np.mean(history["staleness"][first:])),
        "target_s": float(time_s[there[0]] - time_s[0]) if there.size else float("nan"),
        "target_step": float(history["step"][there[0]]) if there.size else float("nan"),
        "held_out": float(held_out[np.isfinite(held_out)][-1]),
        "startup_s": done.startup_s,
        "packed_s": packing_s(done.run.job),
    }


def compare(report: Report, title: str, split: Split, options: Any, **fields: Any) -> list[dict[str, Any]]:
    """Measure every protocol at every number of workers, and report a table."""
    steps = QUICK_STEPS if options.quick else STEPS
    cases, rows = [], []
    for workers in options.workers:
        seen: dict[str, list[dict[str, float]]] = {str(sync): [] for sync in PROTOCOLS}
        # They take turns, so that other load meets all alike.
        for _ in range(options.runs or (1 if options.quick else 3)):
            for sync in PROTOCOLS:
                seen[str(sync)].append(figures(split, steps, workers, sync=sync, **fields))
        ours = {label: {key: median(one[key] for one in runs) for key in runs[0]} for label, runs in seen.items()}
        for label, values in ours.items():
            cases.append({"P": workers, "sync": label, **values})
            rows.append(
                [
                    f"{workers}, {label}",
                    span(one["step_ms"] for one in seen[label]),
                    times(ours["BSP"]["step_ms"], values["step_ms"]),
                    values["wait_ms"],
                    values["staleness"],
                    number(values["target_s"]) if values["target_s"] == values["target_s"] else "not reached",
                    number(values["target_step"]),
                    times(ours["BSP"]["target_s"], values["target_s"]),
                    times(ours["SSP 3"]["target_s"], values["target_s"]),
                    f"{values['held_out']:.4f}",
                    values["startup_s"],
                    values["packed_s"],
                    values["target_s"] + values["startup_s"] + values["packed_s"],
                ]
            )
    report.table(
        title,
        [
            "P, protocol",
            "step, ms (range)",
            "BSP / this",
            "waiting, ms",
            "staleness",
            f"to {TARGET:g}, s",
            "steps",
            "BSP / this",
            "SSP 3 / this",
            f"held-out loss after {steps} steps",
            "start-up, s",
            "packing, s",
            f"to {TARGET:g} from nothing, s",
        ],
        least_in_bold(rows, 12),
    )
    return cases


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, nargs="+", default=[8])
    arguments.add_argument("--rate", default="1gbit")
    arguments.add_argument("--stopped", type=float, default=0.5)
    options = arguments.parse_args()
    report = Report("staleness", "Is it worth it not to wait for each other? BSP, SSP, ISP, and ISP over SSP.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the namespace goes, and nobody stays stopped
    split = ml1m()
    loopback = compare(report, f"{split.label}, on this machine", split, options)
    shaped: list[dict[str, Any]] = []
    reason = link.missing()
    if reason is None:
        with link.namespace() as (name, near), link.redis_server(name) as url, laggard(1, options.stopped):
            link.shape(name, near, options.rate)
            title = (
                f"{split.label}, {options.rate} in front of Redis, one worker stopped {options.stopped:.0%} of the time"
            )
            shaped = compare(report, title, split, options, redis=url, insecure=True)
    else:
        report.remark(f"Without the slow link and the laggard: {reason}.")
    report.remark(
        "Workers share this machine's cores, so that one that waits leaves its core to the others: with more workers "
        "than cores there is less to win by not waiting than where each has its own. Staleness is the mean of the "
        f"workers, in steps. The laggard is stopped every {PERIOD_S * 1e3:g} ms. Updates are broadcast throughout."
    )
    report.remark(f"{JOB['optimizer']}. {STARTS_ALIKE}")
    report.remark(f"Over the link: {SEALED}")
    report.remark(PAPER)
    report.end(loopback=loopback, shaped=shaped, target=TARGET, rate=options.rate, stopped=options.stopped)


if __name__ == "__main__":
    main()
