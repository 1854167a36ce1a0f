"""Run the benchmarks one after the other and write RESULTS.md: the machine, the versions, one section a question.

    python benchmarks/results.py [--only step accuracy] [--quick] [--sets FOLDER] [--runs N]

Sections of benchmarks that are not run this time stay as they are.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
from pathlib import Path

from report import machine, parser, versions

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
#: In the order of their sections.
BENCHMARKS = {
    "kernels": "Kernels",
    "step": "A distributed step",
    "accuracy": "Time to a held-out quality",
    "defaults": "Defaults beside a search",
    "significance": "What ISP saves",
    "tuner": "What letting workers go saves",
    "curves": "How far curves and forecasts see",
    "growth": "Growth with the workers",
    "link": "Over a slow link",
    "staleness": "Running ahead",
    "departures": "Workers that leave under ISP",
    "returned": "What a budget buys",
    "budget": "What is used of a budget",
    "startup": "Start-up",
    "packing": "Packing and requests",
    "memory": "Memory",
    "overhead": "What trust costs",
}


def section(name: str, arguments: list[str]) -> tuple[str, bool]:
    """(the section that running benchmark ``name`` makes, whether it ran)."""
    done = subprocess.run(
        [sys.executable, str(HERE / f"{name}.py"), *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    *lines, last = done.stdout.rstrip().split("\n") if done.stdout.strip() else [""]
    print(last, flush=True)
    text = "\n".join(lines).strip()
    if done.returncode:
        text = f"{done.stdout.strip()}\n\nThis run failed with status {done.returncode}.".strip()
    else:
        figures = json.loads(last)
        text += f"\n\nMeasured {now()}, load {figures['load']:g} at the start."
    return f"## {BENCHMARKS[name]} (`{name}.py`)\n\n{text}\n", done.returncode == 0


def now() -> str:
    """The date and time in UTC, to the minute."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def kept() -> dict[str, str]:
    """The sections that RESULTS.md has."""
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.is_file() else ""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    named = ((re.search(r"\(`(\w+)\.py`\)", part.split("\n", 1)[0]), part) for part in parts)
    return {match.group(1): part.rstrip() + "\n" for match, part in named if match}


def write(sections: dict[str, str]) -> None:
    """Write RESULTS.md."""
    head = (
        "# Benchmark results\n\n"
        f"Written by `make bench` on {now()}.\n\n"
        f"- Machine: {machine()}\n- Versions: {versions()}\n\n"
        "Peers run in the same run as ours, on the same data. Medians, with the range in brackets; other load on the "
        "machine moves wall times much and CPU time little, so read ratios and CPU-ms. MovieLens-1M is real data; "
        "what has the shape of MovieLens-10M or of Criteo is generated, and says so.\n"
    )
    ordered = [sections[name] for name in BENCHMARKS if name in sections]
    RESULTS.write_text("\n".join([head, *ordered]), encoding="utf-8")


def main() -> None:
    """Run, and write after each, so that an interrupted run leaves what it has."""
    arguments = parser(__doc__)
    arguments.add_argument("--only", choices=list(BENCHMARKS), nargs="+", default=list(BENCHMARKS))
    options = arguments.parse_args()
    passed_on = ["--quick"] * options.quick
    for name in ("sets", "runs"):
        if getattr(options, name) is not None:
            passed_on += [f"--{name}", str(getattr(options, name))]
    sections, failed = kept(), []
    for name in options.only:
        print(f"# {name}", file=sys.stderr, flush=True)
        sections[name], is_well = section(name, passed_on)
        failed += [] if is_well else [name]
        write(sections)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
