"""The rules of nested budgets: what sessions, projects and sweeps have spent, reserved and left. Pure.

A run reserves its cap in every budget that it belongs to before anything is billed, and its true cost takes the place
of that reservation at its end. So in each budget, at any time::

    spent + reserved <= cap

however many processes spend from it, and whichever of them is killed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from ..errors import BudgetError, CommandError
from .meter import NUSD
from .owner import Owner

Kind = Literal["session", "project", "sweep"]
KINDS: tuple[Kind, ...] = ("session", "project", "sweep")
#: The most that a cap or a cost can be, nano-dollars: a billion dollars.
MOST_NUSD = 10**9 * NUSD
#: Ended runs that are listed one by one; older ones are only a sum in their budgets.
KEPT_RUNS = 200


@dataclass(frozen=True)
class BudgetEntry:
    """A session's, a project's or a sweep's budget; amounts in nano-dollars.

    Parameters
    ----------
    kind : {"session", "project", "sweep"}
    name : str
    cap_nusd : int
    folded_nusd, n_folded : int
        Cost and number of the ended runs that are no longer listed.
    """

    kind: Kind
    name: str
    cap_nusd: int
    folded_nusd: int = 0
    n_folded: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


@dataclass(frozen=True)
class RunEntry:
    """A run with its reservation; amounts in nano-dollars.

    Parameters
    ----------
    id, name : str
    session, project, sweep : str
        The budgets that it belongs to; "" for none.
    reserved_nusd : int
        The most that it may cost: its cap.
    spent_nusd : int or None
        Its cost, None until it is settled.
    opened_s : int
        When it began, seconds since 1970.
    owner : Owner
        The process that drives it.
    """

    id: str
    name: str
    session: str
    project: str
    reserved_nusd: int
    spent_nusd: int | None
    opened_s: int
    owner: Owner
    sweep: str = ""

    def belongs_to(self, kind: Kind, name: str) -> bool:
        """Whether the run spends from this budget."""
        own: str = getattr(self, kind)
        return name == own


@dataclass(frozen=True)
class Standing:
    """What a budget has spent, reserved and left, nano-dollars, and its runs, oldest first."""

    budget: BudgetEntry
    runs: tuple[RunEntry, ...]

    @property
    def spent_nusd(self) -> int:
        """Cost of the ended runs."""
        return self.budget.folded_nusd + sum(run.spent_nusd for run in self.runs if run.spent_nusd is not None)

    @property
    def reserved_nusd(self) -> int:
        """Reservations of the runs that are not settled."""
        return sum(run.reserved_nusd for run in self.runs if run.spent_nusd is None)

    @property
    def left_nusd(self) -> int:
        """What another run can reserve."""
        return max(self.budget.cap_nusd - self.spent_nusd - self.reserved_nusd, 0)

    def describe(self) -> str:
        """E.g. "session 'shared' has $0.01 left of $0.05: $0.02 spent, $0.02 reserved by first"."""
        holders = [run.name for run in self.runs if run.spent_nusd is None]
        by = f" by {', '.join(holders[:4])}{' and others' if len(holders) > 4 else ''}" if holders else ""
        return (
            f"{self.budget} has {dollars(self.left_nusd)} left of {dollars(self.budget.cap_nusd)}: "
            f"{dollars(self.spent_nusd)} spent, {dollars(self.reserved_nusd)} reserved{by}"
        )


def dollars(nusd: int) -> str:
    """Nano-dollars in dollars, exactly: "$0.05", "$0.000000001"."""
    whole, rest = divmod(abs(nusd), NUSD)
    fraction = f"{rest:09d}".rstrip("0").ljust(2, "0")
    return f"{'-' if nusd < 0 else ''}${whole}.{fraction}"


@dataclass
class Book:
    """All budgets, by kind and name, and runs, by id. Every method keeps the rule or raises and changes nothing."""

    budgets: dict[tuple[Kind, str], BudgetEntry] = field(default_factory=dict)
    runs: dict[str, RunEntry] = field(default_factory=dict)

    def standing(self, kind: Kind, name: str) -> Standing:
        """The standing of one budget.

        Raises
        ------
        CommandError
            If there is none of this name.
        """
        budget = self.budgets.get((kind, name))
        if budget is None:
            known = ", ".join(sorted(name for other, name in self.budgets if other == kind)) or "none yet"
            raise CommandError(f"{kind}={name!r}: must be one that has a budget ({known}); budget= gives it one")
        return Standing(budget, tuple(run for run in self.runs.values() if run.belongs_to(kind, name)))

    def set_cap(self, kind: Kind, name: str, cap_nusd: int) -> None:
        """Make a budget, or change its cap.

        Raises
        ------
        BudgetError
            If less would be allowed than is spent and reserved.
        """
        budget = self.budgets.get((kind, name))
        if budget is None:
            self.budgets[kind, name] = BudgetEntry(kind, name, cap_nusd)
            return
        standing = self.standing(kind, name)
        least = standing.spent_nusd + standing.reserved_nusd
        if cap_nusd < least and cap_nusd < budget.cap_nusd:
            raise BudgetError("budget", cap_nusd / NUSD, f"at least {least / NUSD:.9g}: {standing.describe()}")
        self.budgets[kind, name] = dataclasses.replace(budget, cap_nusd=cap_nusd)

    def begin_anew(self, kind: Kind, name: str) -> None:
        """Forget what a budget's ended runs have spent.

        Raises
        ------
        CommandError
            If a run has reserved from it.
        """
        if (kind, name) not in self.budgets:
            return
        standing = self.standing(kind, name)
        if standing.reserved_nusd:
            raise CommandError(f"new=True: must wait for the end of its runs; {standing.describe()}")
        for run in standing.runs:
            other = dataclasses.replace(run, **{kind: ""})  # type: ignore[arg-type]
            del self.runs[run.id]
            if any(getattr(other, each) for each in KINDS):
                self.runs[run.id] = other
        self.budgets[kind, name] = dataclasses.replace(standing.budget, folded_nusd=0, n_folded=0)

    def close(self, kind: Kind, name: str) -> None:
        """Remove a budget; no effect while a run has reserved from it, or if there is none."""
        if (kind, name) not in self.budgets or self.standing(kind, name).reserved_nusd:
            return
        self.begin_anew(kind, name)
        del self.budgets[kind, name]

    def open(self, run: RunEntry, cap_nusd: int | None, share: int = 1) -> RunEntry:
        """Reserve ``cap_nusd`` for ``run`` in its budgets; without a cap all that the one with the least has left.

        With ``share`` and without a cap it is one part of so many.

        Raises
        ------
        BudgetError
            If one of them has less left, or nothing.
        """
        tightest = min(self._standings_of(run), key=lambda standing: standing.left_nusd)
        left = tightest.left_nusd
        if left == 0 or (cap_nusd is not None and cap_nusd > left):
            value = None if cap_nusd is None else cap_nusd / NUSD
            least = f"at most {left / NUSD:.9g}" if left else f"paid for by a larger {tightest.budget.kind}'s budget"
            raise BudgetError("budget", value, f"{least}: {tightest.describe()}")
        if run.id in self.runs:
            raise CommandError(f"run {run.id} has a reservation already")
        entry = dataclasses.replace(
            run, reserved_nusd=-(-left // share) if cap_nusd is None else cap_nusd, spent_nusd=None
        )
        self.runs[run.id] = entry
        self._fold()
        return entry

    def reserve(self, run_id: str, reserved_nusd: int) -> None:
        """Change the reservation of a run that is not settled.

        Raises
        ------
        CommandError
            If one of its budgets has not enough left.
        """
        run = self.runs.get(run_id)
        if run is None or run.spent_nusd is not None:
            raise CommandError(f"run {run_id} has no reservation; it has ended")
        more = reserved_nusd - run.reserved_nusd
        for standing in self._standings_of(run) if more > 0 else ():
            if more > standing.left_nusd:
                most = dollars(run.reserved_nusd + standing.left_nusd)
                raise CommandError(
                    f"budget={reserved_nusd / NUSD:.9g}: must be at most {most}, since {standing.describe()}"
                )
        self.runs[run_id] = dataclasses.replace(run, reserved_nusd=reserved_nusd)

    def settle(self, run_id: str, spent_nusd: int) -> None:
        """Put the run's cost in the place of its reservation; no effect if it is settled or unknown.

        A run that cost nothing (it was refused before its launch) is not kept.
        """
        run = self.runs.get(run_id)
        if run is not None and run.spent_nusd is None:
            self.runs[run_id] = dataclasses.replace(run, spent_nusd=spent_nusd)
            if not spent_nusd:
                del self.runs[run_id]

    def settle_lost(self, is_gone: Callable[[RunEntry], bool], most_nusd: Callable[[RunEntry], int]) -> list[str]:
        """Settle the runs whose process is gone with the most that they can have cost; returns their ids."""
        lost = [run for run in self.runs.values() if run.spent_nusd is None and is_gone(run)]
        for run in lost:
            self.settle(run.id, min(max(most_nusd(run), 0), run.reserved_nusd))
        return [run.id for run in lost]

    def _standings_of(self, run: RunEntry) -> Iterable[Standing]:
        return [self.standing(kind, name) for kind in KINDS if (name := getattr(run, kind))]

    def _fold(self) -> None:
        """Add the oldest settled runs to their budgets' sums."""
        settled = [run for run in self.runs.values() if run.spent_nusd is not None]
        settled.sort(key=lambda run: run.opened_s)
        for run in settled[: max(len(settled) - KEPT_RUNS, 0)]:
            for kind in KINDS:
                budget = self.budgets.get((kind, getattr(run, kind)))
                if budget is not None:
                    folded = budget.folded_nusd + (run.spent_nusd or 0)
                    self.budgets[kind, budget.name] = dataclasses.replace(
                        budget, folded_nusd=folded, n_folded=budget.n_folded + 1
                    )
            del self.runs[run.id]
