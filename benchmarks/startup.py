"""How long a run takes to get going, phase by phase: cold, and the second time; PyTorch DDP beside it.

python benchmarks/startup.py [--workers 1 4 8 24] [--runs 5] [--quick]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import ddp
from report import Report, median, parser, runs_of, span
from sets import ml1m

import mlless_nb
from mlless_nb import ISP, PMF, SGD, Stop, TrainingJob

#: DDP processes at most: each loads PyTorch, and 24 of those say nothing that 8 do not.
MOST_DDP = 8
#: Seconds from the call: until `train` returned, until the functions were invoked. From their invocation: until the
#: workers were at their first step, had their data, had done it. From the call again: until it was seen here.
PHASES = ("call returns", "invoked", "workers ready", "data loaded", "first step done", "first step seen")


def run_twice(workers: int) -> list[dict[str, float]]:
    """Two runs in this interpreter: when each phase ended, seconds."""
    split, found = ml1m(), []
    for _ in range(2):
        called = time.perf_counter()
        model, optimizer = PMF(rank=20, l2=0.02), SGD(8.0, 0.8, nesterov=True, lazy=True)
        job = TrainingJob(
            model, optimizer, split.train, sync=ISP(0.7), workers=workers, stop=Stop(steps=5), validation=split.held_out
        )
        run = mlless_nb.train(job)
        returned = time.perf_counter()
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
        phases = dict(zip(PHASES, (*since_call, *since_invoked, seen_s), strict=True))
        found.append(phases)
    return found


def in_fresh_interpreter(workers: int) -> list[dict[str, float]]:
    """`run_twice` in a new interpreter whose temporary folder is new too: no data is packed there."""
    with tempfile.TemporaryDirectory(prefix="mlless-cold-") as folder:
        answer = subprocess.run(
            [sys.executable, __file__, "--child", str(workers)],
            env={**os.environ, "TMPDIR": folder},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
    return json.loads(answer.stdout.strip().splitlines()[-1])


def import_s() -> float:
    """Seconds that importing the package takes in a new interpreter."""
    program = "import time; began = time.perf_counter(); import mlless_nb; print(time.perf_counter() - began)"
    # -P: run beside the checkout's own folders, the package would be taken from there.
    answer = subprocess.run([sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, check=True, text=True)
    return float(answer.stdout)


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, nargs="+", default=[1, 4, 8, 24])
    arguments.add_argument("--child", type=int, help="(used by the benchmark itself)")
    options = arguments.parse_args()
    if options.child:
        print(json.dumps(run_twice(options.child)))
        return
    split, runs = ml1m(), runs_of(options)
    imports_s = median(import_s() for _ in range(runs))
    report = Report("startup", "How long does it take from the call to the first step, and where does the time go?")
    rows, cases = [], []
    for workers in options.workers:
        answers = [in_fresh_interpreter(workers) for _ in range(runs)]
        against: Any = "not run"
        if workers <= MOST_DDP:
            task = {"learning_rate": 8.0, "momentum": 0.8, "rank": 20, "l2": 0.02, "windows": 1, "steps": 1}
            ranks = ddp.train(split, workers, minibatch=6250, **task)
            against = ranks if isinstance(ranks, str) else ranks[0]["startup_s"]
        for index, which in enumerate(("cold", "second run")):
            phases = {phase: median(answer[index][phase] for answer in answers) for phase in PHASES}
            first_steps = span(answer[index][PHASES[-1]] for answer in answers)
            cells = [phases[phase] for phase in PHASES[:-1]]
            rows.append([f"{workers}, {which}", *cells, first_steps, against if index == 0 else "-"])
            cases.append({"P": workers, "which": which, **phases, "ddp_s": against if index == 0 else None})
    report.table(
        f"Seconds; {split.label}",
        ["P", *PHASES[:-1], f"{PHASES[-1]} (range)", "DDP: first step"],
        rows,
    )
    report.remark(
        f"Cold: a new interpreter, whose import of the package takes {imports_s:.2f} s before the call, and nothing "
        "packed; the second run finds its data packed. Invoked, and first step seen, are from the call and have the way "
        "of the word to the notebook in them; ready, loaded and done are from the invocation. DDP's first step has the "
        f"import of PyTorch in it; it was not started with more than {MOST_DDP} processes."
    )
    report.end(runs=runs, import_s=imports_s, cases=cases)


if __name__ == "__main__":
    main()
