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
from chaos.gates import MOST_DAMAGED, MOST_INTERVALS, Gate, quantile, replacements, restarts
from chaos.runner import LEASE_S, Outcome
from chaos.scene import Followed

from mlless_nb import plurals

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/reliability.md"
BEGIN, END = "<!-- from make chaos: begin -->", "<!-- from make chaos: end -->"


class Trials(NamedTuple):
    """Trials of one kind beside the jobs: how many there were, and how many went as they must."""

    what: str
    n: int
    n_right: int


def report(seed: int, outcomes: list[Outcome], trials: list[Trials], gates: list[Gate]) -> str:
    """The report as Markdown; of the `gates` it says which are kept."""
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
        *_figures(outcomes),
        *(f"- gate: {gate}" for gate in gates),
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


def _figures(outcomes: list[Outcome]) -> list[str]:
    """How soon functions were replaced, and how far restarts went back."""
    plain, damaged = restarts(outcomes)
    lines = []
    for how, leases in replacements(outcomes).items():
        if leases:
            after = f"{_quantiles(leases)} leases of {LEASE_S:g} s"
            n = plurals.count(len(leases), "replacement")
            lines.append(f"- Functions {how} are replaced after {after} ({n})")
    for intervals, which in (
        (plain, f"bounded by {MOST_INTERVALS:g}"),
        (damaged, f"bounded by {MOST_DAMAGED:g}: the newest checkpoint was damaged"),
    ):
        if intervals:
            again = f"- Trained again after a restart: {_quantiles(intervals)} checkpoint intervals"
            lines.append(f"{again} ({plurals.count(len(intervals), 'restart')}, {which})")
    return lines


def _quantiles(ordered: list[float]) -> str:
    return f"p50 {quantile(ordered, 0.5):.2f}, p99 {quantile(ordered, 0.99):.2f}, max {ordered[-1]:.2f}"


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
