"""How long a run takes to get going, phase by phase: cold, as a notebook's cell, and again; PyTorch DDP beside it.

python benchmarks/startup.py [--workers 1 4 8 24] [--runs 5] [--quick]
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import ddp
from accuracy import IMPORTED
from IPython.core.interactiveshell import InteractiveShell
from report import Report, median, parser, runs_of, span
from sets import ml1m

import mlless_nb
from mlless_nb import ISP, PMF, SGD, Stop, TrainingJob, TrainingRun
from mlless_nb.driver.runs import handles

#: DDP processes at most: each loads PyTorch, and 24 of those say nothing that 8 do not.
MOST_DDP = 8
#: Seconds from the call: until `train` returned, until the functions were invoked. From their invocation: until the
#: workers were at their first step, had their data, had done it. From the call again: until it was seen here.
PHASES = ("call returns", "invoked", "workers ready", "data loaded", "first step done", "first step seen")
#: The ways to begin, as `in_fresh_interpreter` takes them.
CALLS, CELL = "calls", "cell"
#: Seconds that a person is given between `%load_ext` and the cell.
PAUSE_S = 1.0
OPTIMIZER = SGD(8.0, 0.8, nesterov=True, lazy=True)
CELL_TEXT = """%%mlless --name run --workers {workers}
model = PMF(rank=20, l2=0.02)
optimizer = SGD(8.0, 0.8, nesterov=True, lazy=True)
data = split.train
validation = split.held_out
sync = ISP(0.7)
stop = Stop(steps=5)
"""


def phases_of(run: TrainingRun, called: float, returned: float) -> dict[str, float]:
    """When each phase of a run that is starting ended, seconds."""
    while run.telemetry.n_rows == 0 and run.telemetry.state.is_live:
        time.sleep(0.001)
    seen_s = time.perf_counter() - called
    run.wait()
    if run.status != "finished":
        raise SystemExit(f"the run ended as {run.status}: {run.reason}")
    done_s, *parts = (float(run.history[name][0]) for name in ("time_s", "compute_s", "exchange_s", "wait_s"))
    # A worker fetches its first minibatch within the first step; parts are means over the workers.
    since_call = (returned - called, seen_s - done_s)
    since_invoked = (done_s - sum(parts), done_s - sum(parts[1:]), done_s)
    return dict(zip(PHASES, (*since_call, *since_invoked, seen_s), strict=True))


def run_twice(workers: int) -> list[dict[str, float]]:
    """Two runs in this interpreter, one after the other."""
    split, found = ml1m(), []
    for _ in range(2):
        called = time.perf_counter()
        model = PMF(rank=20, l2=0.02)
        job = TrainingJob(
            model, OPTIMIZER, split.train, sync=ISP(0.7), workers=workers, stop=Stop(steps=5), validation=split.held_out
        )
        run = mlless_nb.train(job)
        found.append(phases_of(run, called, time.perf_counter()))
    return found


def run_cell(workers: int) -> list[dict[str, float]]:
    """A notebook's first `%%mlless` cell, in IPython: as nobody can click here it returns when the run has ended."""
    shell, found = InteractiveShell.instance(), []
    shell.run_cell("%load_ext mlless_nb\nfrom mlless_nb import *")
    shell.user_ns["split"] = ml1m()
    time.sleep(PAUSE_S)
    called = time.perf_counter()

    def watch() -> None:
        while not handles():
            time.sleep(0.001)
        found.append(phases_of(handles()[0], called, time.perf_counter()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with contextlib.redirect_stdout(sys.stderr):
        shell.run_cell(CELL_TEXT.format(workers=workers))
    watcher.join()
    return found


def in_fresh_interpreter(how: str, workers: int, cold: str) -> list[dict[str, float]]:
    """`run_twice` or `run_cell` in a new interpreter with a new temporary folder in ``cold``: no data is packed there.

    The folders stay to the end: where many files were just deleted, ext4 takes its time to make new ones.
    """
    answer = subprocess.run(
        [sys.executable, __file__, "--child", how, "--workers", str(workers)],
        env={**os.environ, "TMPDIR": tempfile.mkdtemp(dir=cold)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        text=True,
    )
    return json.loads(answer.stdout.strip().splitlines()[-1])


def import_s() -> float:
    """Seconds that importing what a run needs takes in a new interpreter."""
    # -P: run beside the checkout's own folders, the package would be taken from there.
    answer = subprocess.run([sys.executable, "-P", "-c", IMPORTED], stdout=subprocess.PIPE, check=True, text=True)
    return float(answer.stdout)


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, nargs="+", default=[1, 4, 8, 24])
    arguments.add_argument("--child", choices=[CALLS, CELL], help="(used by the benchmark itself)")
    options = arguments.parse_args()
    if options.child:
        print(json.dumps({CALLS: run_twice, CELL: run_cell}[options.child](*options.workers)))
        return
    with tempfile.TemporaryDirectory(prefix="mlless-cold-") as cold:
        compare(options, cold)


def compare(options: Any, cold: str) -> None:
    """Measure all ways to begin, and report; what is cold has its folders in ``cold``."""
    split, runs = ml1m(), runs_of(options)
    imports_s = median(import_s() for _ in range(runs))
    report = Report("startup", "How long does it take from the call to the first step, and where does the time go?")
    rows, cases = [], []
    for workers in options.workers:
        answers = []
        for _ in range(runs):
            first, again = in_fresh_interpreter(CALLS, workers, cold)
            answers.append((first, *in_fresh_interpreter(CELL, workers, cold), again))
        against: Any = "not run"
        if workers <= MOST_DDP:
            task = {"learning_rate": 8.0, "momentum": 0.8, "rank": 20, "l2": 0.02, "windows": 1, "steps": 1}
            ranks = ddp.train(split, workers, minibatch=6250, **task)
            against = ranks if isinstance(ranks, str) else ranks[0]["startup_s"]
        for index, which in enumerate(("cold", "a notebook's first cell", "second run")):
            phases = {phase: median(answer[index][phase] for answer in answers) for phase in PHASES}
            first_steps = span(answer[index][PHASES[-1]] for answer in answers)
            cells = [phases[phase] for phase in PHASES[:-1]]
            is_cold = index == 0
            rows.append([f"{workers}, {which}", imports_s if is_cold else "-", *cells, first_steps])
            rows[-1] += [imports_s + phases[PHASES[-1]], against] if is_cold else ["-", "-"]
            cases.append({"P": workers, "which": which, **phases, "ddp_s": against if is_cold else None})
    report.table(
        f"Seconds; {split.label}, ISP(0.7), {OPTIMIZER}, users sharded",
        ["P", "import", *PHASES[:-1], f"{PHASES[-1]} (range)", "with the import", "DDP: first step"],
        rows,
    )
    report.remark(
        "Cold: a new interpreter, which imports the package and the names that a job needs before the call, and "
        f"nothing packed. A notebook's first cell comes {PAUSE_S:g} s after its `%load_ext`, which imports in the "
        "background what a run needs, and finds nothing packed either; it returns with the run. The second run finds "
        "its data packed. Invoked, and first step seen, are from the call and have the way of the word to the "
        "notebook in them; ready, loaded and done are from the invocation. DDP's first step has the import of "
        "PyTorch in it, as ours has that of the package in the column before. DDP was not started with more than "
        f"{MOST_DDP} processes."
    )
    report.end(runs=runs, import_s=imports_s, cases=cases)


if __name__ == "__main__":
    main()
