"""One long run under ISP, and the memory of its processes: ``make soak``, ``make soak MINUTES=10``.

``python tests/budget/soak.py [--minutes 30] [--workers 4] [--most-mb 1.0]``. Samples what is private to the processes
of a worker, the supervisor, Redis and the notebook, and fits a line to each after the warm-up. Flat means that it rises
by less than ``--most-mb`` MB in 10,000 steps. What the notebook and the supervisor keep of each step is taken off: its
row, and the part of it that the auto-tuner decides on.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from budget.trial import Trial

from mlless_nb.supervisor.policy.loss_history import NAMES
from mlless_nb.telemetry.live import COLUMNS

#: Steps after which everything that is kept for a while is there: the step log has 10,000 entries.
WARM_UP_STEPS = 12_000
#: Seconds between two samples.
SAMPLE_S = 5.0
#: Bytes that are kept of a step: in the notebook its row, in the supervisor the tuner's columns, in arrays that are
#: doubled, so that the smaller ones before are there, too.
ROW_BYTES = {"notebook": 8 * len(COLUMNS), "supervisor": 2 * 8 * len(NAMES)}


def private_bytes(pid: int) -> int:
    """Bytes of anonymous memory of a process."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Anonymous:\s+(\d+) kB", text, re.MULTILINE)[1]) * 1024  # type: ignore[index]


def redis_of(driver: int) -> int | None:
    """The process of the run's private Redis, a descendant of the driver."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        parents[int(folder.name)] = (int(rest.split()[1]), name)
    for pid, (parent, name) in parents.items():
        if name.startswith(("redis-server", "valkey-server")):
            while parent in parents and parent != driver:
                parent = parents[parent][0]
            if parent == driver:
                return pid
    return None


def slope_mb(steps: list[float], mb: list[float]) -> float:
    """MB in 10,000 steps, of the line through the samples after the warm-up, which takes half of the time at most."""
    first = min(next((n for n, step in enumerate(steps) if step >= WARM_UP_STEPS), len(steps)), len(steps) // 2)
    return float(np.polyfit(np.array(steps[first:]) / 1e4, mb[first:], 1)[0])


def soak(minutes: float, workers: int) -> tuple[list[float], dict[str, list[float]]]:
    """Steps, and MB by process, of the samples."""
    steps: list[float] = []
    mb: dict[str, list[float]] = {}
    with Trial(workers=workers, stop={"time_s": 60.0 * minutes}, tells=True) as trial:
        observer = trial.observer
        assert observer.wait(lambda: len(observer.functions()) == workers + 1)
        assert observer.wait(lambda: trial.has_said("step"))
        server = redis_of(trial.driver.pid)
        watched = {f"worker {life.slot}" if life.slot else "worker 0": life.pid for life in observer.functions()}
        watched["supervisor"] = watched.pop("worker -1")
        watched |= {"notebook": trial.driver.pid} | ({"redis": server} if server is not None else {})
        while trial.driver.poll() is None and not trial.has_said("status"):
            observer.wait(lambda: trial.driver.poll() is not None, SAMPLE_S)
            try:
                sample = {name: private_bytes(pid) / 1e6 for name, pid in watched.items()}
            except OSError:
                break  # the run ends
            step = next(line["step"] for line in reversed(trial.lines) if "step" in line)
            for name, n_bytes in ROW_BYTES.items():
                sample[name] -= step * n_bytes / 1e6
            steps.append(step)
            for name, value in sample.items():
                mb.setdefault(name, []).append(value)
        said = trial.finish()
        assert said["status"] == "finished", said
    return steps, mb


def main() -> None:
    """Parse the command line, soak, report; exits with 1 where memory is not flat."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--minutes", type=float, default=30.0)
    arguments.add_argument("--workers", type=int, default=4)
    arguments.add_argument("--most-mb", type=float, default=1.0)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="mlless-soak-") as folder:
        os.environ |= {"TMPDIR": folder, "XDG_DATA_HOME": f"{folder}/data"}
        tempfile.tempdir = folder
        began = time.monotonic()
        steps, mb = soak(options.minutes, options.workers)
        took_s = time.monotonic() - began
        tempfile.tempdir = None
    print(f"{steps[-1]:,.0f} steps in {took_s / 60:.1f} minutes, P={options.workers}, ISP(0.7); {len(steps)} samples\n")
    print(f"| {'process':12} | MB at first | after warm-up | at the end | MB in 10,000 steps | |")
    print("|---|---|---|---|---|---|")
    is_flat = True
    for name, values in sorted(mb.items()):
        rise = slope_mb(steps, values)
        is_flat &= rise < options.most_mb
        warm = values[min(next((n for n, step in enumerate(steps) if step >= WARM_UP_STEPS), 0), len(values) // 2)]
        verdict = "flat" if rise < options.most_mb else "RISES"
        print(f"| {name:12} | {values[0]:11.1f} | {warm:13.1f} | {values[-1]:10.1f} | {rise:+18.3f} | {verdict} |")
    sys.exit(not is_flat)


if __name__ == "__main__":
    main()
