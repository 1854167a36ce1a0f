"""What a step of 24 workers costs on the emulated AWS Lambda: 512 MB each, links of 1 Gbit/s, Redis a millisecond away.

    python benchmarks/lambda_steps.py [--runs 2] [--quick]

Runs `tests/cloud/test_many_workers.py`, which asserts in addition that the tuner and the budget act there, and sets a
step beside what it is made of: computing, 1.3 round trips, and a worker's bytes over the bandwidth of its link.

Needs Linux, root, and what `make test` installs; without them it says so and measures nothing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from report import Report, median, parser, runs_of, span

ROOT = Path(__file__).resolve().parents[1]
TEST = "tests/cloud/test_many_workers.py"


def measured() -> dict[str, float] | str:
    """The figures of one go, or why there are none."""
    if importlib.util.find_spec("pytest") is None or importlib.util.find_spec("hypothesis") is None:
        return "what the tests need is not installed: `make test` installs it"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-s", "-q", "-rs", "-m", "proof", TEST],
        cwd=ROOT,
        # A reason to skip is an answer here.
        env={name: value for name, value in os.environ.items() if name != "CI"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if skipped := re.search(r"^SKIPPED.*?: (.+)$", done.stdout, re.MULTILINE):
        return skipped[1]
    figures = re.search(r"^figures (.+)$", done.stdout, re.MULTILINE)
    if done.returncode or figures is None:
        raise SystemExit(f"{TEST} failed:\n{done.stdout[-2000:]}")
    found: dict[str, float] = json.loads(figures[1])
    return found


def main() -> None:
    """Measure and report."""
    options = parser(__doc__).parse_args()
    report = Report("lambda_steps", "What does a step of 24 workers cost on an emulated AWS Lambda?")
    runs = []
    for _ in range(runs_of(options)):
        one = measured()
        if isinstance(one, str):
            report.remark(f"Skipped: {one}.")
            report.end(skipped=one)
            return
        runs.append(one)
    figures = {name: median(each[name] for each in runs) for name in runs[0]}
    ratio = figures["step_ms"] / figures["bound_ms"]
    report.table(
        "P=24, 512 MB each, links of 1 Gbit/s, Redis a millisecond away; PMF, BSP, broadcast, minibatches of 256",
        [
            "step, ms (range)",
            "computing, ms",
            "a round trip, ms",
            "a worker's bytes over bandwidth, ms",
            "computing + 1.3 round trips + bytes, ms",
            "step / that",
            "peak memory of a function, MB",
        ],
        [
            [
                span(each["step_ms"] for each in runs),
                figures["computing_ms"],
                figures["round_trip_ms"],
                figures["wire_ms"],
                figures["bound_ms"],
                ratio,
                int(figures["peak_mb"]),
            ]
        ],
    )
    report.remark(
        "Functions run from the real archive and layer under Lambda's limits, each in a network of its own, against an "
        "emulated API; nothing of it is a real account. Computing is the processor time of the box in a step over the "
        f"cores that other processes left to it ({figures['cores']:.2f} of {os.cpu_count()}), which all functions, "
        "Redis and the relay share: on Lambda each function has its own share of a core, and computing is a worker's "
        "alone."
    )
    report.end(**figures, times_bound=ratio, runs=len(runs))


if __name__ == "__main__":
    main()
