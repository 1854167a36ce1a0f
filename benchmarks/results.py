"""Run the benchmarks one after the other and write RESULTS.md: the machine, the versions, one section a question.

    python benchmarks/results.py [--only step accuracy] [--resume] [--quick] [--sets FOLDER] [--runs N] [--output FILE]

A section says with which command, of which commit, on which machine, and under which load it was measured. It is
written as soon as it is there, and the figures of README and docs are taken from it (`readme.py`); after an
interruption ``--resume`` measures those that this commit does not have yet. With ``--quick`` everything is run once and
briefly, to see that it works: its figures go to out/RESULTS.quick.md.
"""

from __future__ import annotations

import datetime
import json
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import readme
from report import busy, load, machine, parser, versions

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "RESULTS.md"
QUICK_RESULTS = ROOT / "out" / "RESULTS.quick.md"
#: Before a section: seconds over which the machine is looked at, the share of its cores that others may take, and
#: seconds after which it is measured all the same. The load average would have the section before in it for minutes.
LOOK_S, QUIET, MOST_WAIT_S = 3.0, 0.1, 180.0
#: What a section ends with; its commit is read back from here.
STAMP = re.compile(r"^Measured by `(?P<command>[^`]+)` at commit (?P<commit>\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Section:
    """A benchmark: the title of its section, and how often each thing is measured in a full run."""

    title: str
    runs: int


#: In the order of their sections. Together they take about two hours on two quiet cores.
BENCHMARKS = {
    "kernels": Section("Kernels", 5),
    "step": Section("A distributed step", 2),
    "rates": Section("Learning rates of the peer", 1),  # which `accuracy` uses
    "accuracy": Section("Time to a held-out quality", 3),
    "defaults": Section("Defaults beside a search", 2),
    "significance": Section("What ISP saves", 2),
    "tuner": Section("What letting workers go saves", 3),
    "curves": Section("How far curves and forecasts see", 3),
    "growth": Section("Growth with the workers", 2),
    "link": Section("Over a slow link", 2),
    "link_floor": Section("A step against its link's floor", 2),
    "lambda_steps": Section("Twenty-four workers on an emulated Lambda", 2),
    "staleness": Section("Running ahead", 2),
    "departures": Section("Workers that leave under ISP", 5),
    "returned": Section("What a budget buys", 2),
    "budget": Section("What is used of a budget", 2),
    "designs": Section("Which design wins when", 3),
    "stateless": Section("Functions that live for a step", 2),
    "frame_server": Section("The frame server beside gRPC", 9),
    "backup_workers": Section("How many updates a step waits for", 20),
    "startup": Section("Start-up", 2),
    "packing": Section("Packing and requests", 3),
    "memory": Section("Memory", 2),
    "adviser": Section("Advice before a run", 3),
    "sweep": Section("What stopping weak trials saves", 2),
    "overhead": Section("What trust costs", 2),
    "dashboard": Section("Presses in the dashboard", 1),
}


def commit() -> str:
    """The commit that is measured, with a plus where files differ from it; "unknown" outside of a checkout."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # What a run writes: the results, the pages that quote them, and the peer's rates.
        own = (":!benchmarks/RESULTS.md", ":!README.md", ":!docs/how-fast.md", ":!benchmarks/rates.json")
        changed = git("status", "--porcelain", "--", ".", *own)
        return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def command_of(name: str, options: list[str]) -> str:
    """The command that measures section ``name`` again."""
    return shlex.join(["python", f"benchmarks/{name}.py", *options])


def waited(most_s: float) -> float:
    """Wait until little else runs on this machine, ``most_s`` seconds at most; the share of its cores that is taken."""
    give_up_at = time.monotonic() + most_s
    while True:
        taken = busy(LOOK_S)
        if not taken > QUIET or time.monotonic() > give_up_at:
            return taken


def section(name: str, options: list[str], wait_s: float) -> tuple[str, bool]:
    """(the section that running benchmark ``name`` makes, whether it ran); it begins when little else runs."""
    taken = waited(wait_s)
    before, began = load(), time.monotonic()
    done = subprocess.run(
        [sys.executable, str(HERE / f"{name}.py"), *options], stdout=subprocess.PIPE, text=True, check=False
    )
    *lines, last = done.stdout.rstrip().split("\n") if done.stdout.strip() else [""]
    print(last, flush=True)
    text = "\n".join(lines).strip()
    if done.returncode:
        text = f"{done.stdout.strip()}\n\nThis run failed with status {done.returncode}.".strip()
    else:
        json.loads(last)  # a benchmark that was cut off has no last line
    others = f"others took {100 * taken:.0f} % of the cores before it; " if taken == taken else ""
    text += (
        f"\n\nMeasured by `{command_of(name, options)}` at commit {commit()} on {now()}, "
        f"in {time.monotonic() - began:.0f} s; {others}load average {before:g} before, that of the section "
        f"before included, {load():g} after, its own included; {machine()}."
    )
    return f"## {BENCHMARKS[name].title} (`{name}.py`)\n\n{text}\n", done.returncode == 0


def now() -> str:
    """The date and time in UTC, to the minute."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def kept(path: Path) -> dict[str, str]:
    """The sections that a file of results has, by benchmark."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    named = ((re.search(r"\(`(\w+)\.py`\)", part.split("\n", 1)[0]), part) for part in parts)
    return {match.group(1): part.rstrip() + "\n" for match, part in named if match}


def is_measured(text: str | None, command: str, at: str) -> bool:
    """Whether a section was measured by ``command`` at commit ``at``, which has no changes of its own."""
    stamp = STAMP.search(text or "")
    return (
        stamp is not None
        and (stamp["command"], stamp["commit"]) == (command, at)
        and not at.endswith("+")
        and "This run failed" not in (text or "")
    )


def origin(sections: dict[str, str]) -> str:
    """Which commits the sections are of, as a sentence."""
    commits = {commit for text in sections.values() for _, commit in STAMP.findall(text) or [("", "unknown")]}
    if len(commits) == 1:
        return f"All sections are of commit {commits.pop()}."
    return f"Sections are of several commits: {', '.join(sorted(commits))}; each says of which."


def write(path: Path, sections: dict[str, str]) -> None:
    """Write a file of results."""
    ordered = {name: sections[name] for name in BENCHMARKS if name in sections}
    head = (
        "# Benchmark results\n\n"
        f"Written by `make bench` on {now()}. {origin(ordered)}\n\n"
        f"- Machine: {machine()}\n- Versions: {versions()}\n\n"
        "Peers run in the same run as ours, on the same data. Medians, with the range in brackets. Each section "
        f"waits, {MOST_WAIT_S / 60:g} minutes at most, until others take less than {100 * QUIET:g} % of the cores; "
        "load on the machine moves wall times much and CPU time little, so read ratios and CPU-ms. MovieLens-1M is "
        "real data; what has the shape of MovieLens-10M or of Criteo is generated, and says so. *Lazy* says of an "
        "optimiser of ours that momentum, moments and penalty leave rows alone that a minibatch does not touch "
        "(`lazy=True`): a little less arithmetic than the exact one, which PyTorch's dense optimisers do.\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([head, *ordered.values()]), encoding="utf-8")


def main() -> None:
    """Run, and write after each, so that an interrupted run leaves what it has."""
    arguments = parser(__doc__)
    arguments.add_argument("--only", choices=list(BENCHMARKS), nargs="+", default=list(BENCHMARKS))
    arguments.add_argument("--resume", action="store_true", help="leave out what was measured at this commit")
    arguments.add_argument("--output", type=Path, default=None, metavar="FILE")
    options = arguments.parse_args()
    path = options.output or (QUICK_RESULTS if options.quick else RESULTS)
    sections, failed, at = kept(path), [], commit()
    for name in options.only:
        passed_on = ["--quick"] * options.quick
        runs = options.runs or (None if options.quick else BENCHMARKS[name].runs)
        for option, value in (("runs", runs), ("sets", options.sets)):
            passed_on += [] if value is None else [f"--{option}", str(value)]
        if options.resume and is_measured(sections.get(name), command_of(name, passed_on), at):
            continue
        print(f"# {name}", file=sys.stderr, flush=True)
        sections[name], is_well = section(name, passed_on, 0.0 if options.quick else MOST_WAIT_S)
        failed += [] if is_well else [name]
        write(path, sections)
        if path == RESULTS:
            readme.update()
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
