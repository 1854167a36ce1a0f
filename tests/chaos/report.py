"""The report of a chaos campaign: what was broken, what followed, in figures; written into docs/reliability.md."""

from __future__ import annotations

import itertools
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from chaos.cases import Case
from chaos.runner import LEASE_S, Outcome
from chaos.scene import Followed

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/reliability.md"
BEGIN, END = "<!-- from make chaos: begin -->", "<!-- from make chaos: end -->"


class Trials(NamedTuple):
    """Trials of one kind beside the jobs: how many there were, and how many went as they must."""

    what: str
    n: int
    n_right: int


def report(seed: int, outcomes: list[Outcome], trials: list[Trials]) -> str:
    """The report as Markdown."""
    faults = [one for outcome in outcomes for one in outcome.followed]
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    exact = sum(outcome.case.is_exact for outcome in outcomes)
    singles, right = sum(one.n for one in trials), sum(one.n_right for one in trials)
    lines = [
        f"`make chaos`, seed {seed}, commit {_commit()}, {_machine()}: **{len(faults) + singles} faults in "
        f"{len(outcomes) + singles} runs, of which {len(outcomes) - len(wrong) + right} finished as they must.** "
        f"{singles} runs had one fault each; {len(outcomes)} were drawn jobs with several. {exact} of the latter had "
        "to have the SHA-256 of an undisturbed run's model (BSP and ISP), the others a loss within 2 % of those of "
        "undisturbed runs; all had to leave no process, key, queue or file.",
        "",
        *(f"- {one.what}: {one.n_right} of {one.n}" for one in trials),
        *_replacements(outcomes),
        *_recomputed(outcomes),
        "",
        "| fault | count | replaced functions | again, steps (median, most) | jobs that went wrong |",
        "|---|---|---|---|---|",
    ]
    for kind, group in _grouped(faults).items():
        again = sorted(one.recomputed for one in group)
        n_wrong = sum(any(one.kind == kind for one in outcome.followed) for outcome in wrong)
        n_replaced = sum(len(one.replaced_s) for one in group)
        lines.append(f"| {kind} | {len(group)} | {n_replaced} | {again[len(again) // 2]}, {again[-1]} | {n_wrong} |")
    lines += ["", f"Jobs by {_counts(outcomes)}."]
    lines += [f"- WRONG: case {one.case.number}, {one.case}: {'; '.join(one.wrong)}" for one in wrong]
    return "\n".join(lines)


def write(text: str, outcomes: list[Outcome]) -> None:
    """Put the report between the markers of the document, and the figures of faults into its table.

    A cell of the table ends with ``<!-- chaos: a fault + another one -->`` and the figure.
    """
    faults = [(one.kind, bool(outcome.wrong)) for outcome in outcomes for one in outcome.followed]

    def figure(found: re.Match[str]) -> str:
        of_kinds = [is_wrong for kind, is_wrong in faults if kind in found[2].split(" + ")]
        return f"{found[1]} {len(of_kinds)} in `make chaos`, {sum(of_kinds)} in jobs that went wrong |"

    whole = re.sub(r"(<!-- chaos: ([^>]*) -->)[^|]*\|", figure, DOCUMENT.read_text())
    before, _, rest = whole.partition(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


def _replacements(outcomes: list[Outcome]) -> list[str]:
    lines = []
    for by_lease, how in ((False, "that the driver sees die"), (True, "found by their leases alone, as on a cloud")):
        times = sorted(
            seconds / LEASE_S
            for outcome in outcomes
            if outcome.case.by_lease == by_lease
            for one in outcome.followed
            if "frozen" not in one.what
            for seconds in one.replaced_s.values()
        )
        if times:
            p50, p99 = times[len(times) // 2], times[min(int(len(times) * 0.99), len(times) - 1)]
            figures = f"p50 {p50:.2f}, p99 {p99:.2f}, max {times[-1]:.2f} leases of {LEASE_S:g} s"
            lines.append(f"- Functions {how} are replaced after {figures} ({len(times)} replacements)")
    return lines


def _recomputed(outcomes: list[Outcome]) -> list[str]:
    """Recomputed steps as multiples of the checkpoint interval, where no checkpoint was damaged."""
    times = sorted(
        one.recomputed / outcome.case.checkpoint_every
        for outcome in outcomes
        for one in outcome.followed
        if one.recomputed and "damaged" not in one.what
    )
    if not times:
        return []
    figures = f"p50 {times[len(times) // 2]:.2f}, p99 {times[int(len(times) * 0.99)]:.2f}, max {times[-1]:.2f}"
    return [f"- Steps that were taken again after a restart: {figures} checkpoint intervals ({len(times)} restarts)"]


def _grouped(faults: list[Followed]) -> dict[str, list[Followed]]:
    ordered = sorted(faults, key=lambda one: one.kind)
    return {kind: [*group] for kind, group in itertools.groupby(ordered, key=lambda one: one.kind)}


def _counts(outcomes: list[Outcome]) -> str:
    """How many jobs there were of each model, protocol and so on."""

    def count(name: str, of: object) -> str:
        found = Counter(map(of, (outcome.case for outcome in outcomes)))  # type: ignore[call-overload]
        return f"{name}: " + ", ".join(f"{value} {n}" for value, n in sorted(found.items(), key=str))

    def partition(case: Case) -> str:
        return "users sharded" if case.by_user else "rows"

    return "; ".join(
        [
            count("model", lambda case: case.model),
            count("algorithm", lambda case: case.algorithm),
            count("protocol", lambda case: case.sync),
            count("P", lambda case: case.workers),
            count("servers", lambda case: case.place),
            count("pattern", lambda case: case.pattern),
            count("partition", partition),
        ]
    )


def _commit() -> str:
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def _machine() -> str:
    python = ".".join(map(str, sys.version_info[:3]))
    return f"{os.cpu_count()} cores {platform.machine()}, {platform.system()}, Python {python}"
