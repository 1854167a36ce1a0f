"""Budgets above a run's own: of this notebook's session, and of a project. See `mlless_nb.money.book`."""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from collections.abc import Iterator

from ..errors import CommandError, JobError
from ..job.limits import Budget
from ..money.book import MOST_NUSD, Book, Kind, RunEntry, Standing, dollars
from ..money.ledger import Ledger
from ..money.meter import NUSD, to_nusd
from ..plain_text import PlainText
from ..plurals import count
from ..telemetry.record import last_spent_usd, recorded_cost_usd, runs_folder
from ..validation import check_flag, plain

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
#: The budgets that new runs of this process belong to; forked processes inherit them.
_in_force: dict[Kind, str] = {}


class Spending:
    """A session's or a project's budget. Every reading is of now, with what other processes have spent and reserved.

    Attributes
    ----------
    kind : str
        "session" or "project".
    name : str
    """

    def __init__(self, kind: Kind, name: str) -> None:
        self.kind, self.name = kind, name

    @property
    def standing(self) -> Standing:
        """All figures at one moment."""
        with opened() as book:
            return book.standing(self.kind, self.name)

    @property
    def budget(self) -> float:
        """The cap, US dollars. Assign to change it; it cannot go below what is spent and reserved."""
        return self.standing.budget.cap_nusd / NUSD

    @budget.setter
    def budget(self, usd: float) -> None:
        with opened() as book:
            book.set_cap(self.kind, self.name, _cap(usd))

    @property
    def spent(self) -> float:
        """Cost of the runs that have ended, US dollars."""
        return self.standing.spent_nusd / NUSD

    @property
    def reserved(self) -> float:
        """The most that live runs can cost, US dollars."""
        return self.standing.reserved_nusd / NUSD

    @property
    def left(self) -> float:
        """What a new run can reserve, US dollars."""
        return self.standing.left_nusd / NUSD

    @property
    def is_in_force(self) -> bool:
        """Whether new runs of this process belong to it."""
        return _in_force.get(self.kind) == self.name

    def leave(self) -> None:
        """Start no further run of this process under this budget; runs that have begun stay under it."""
        if self.is_in_force:
            del _in_force[self.kind]

    def report(self) -> str:
        """The standing in one line, and one line for each run."""
        standing = self.standing
        older = standing.budget.n_folded
        lines = [f"  {count(older, 'older run')}: {dollars(standing.budget.folded_nusd)}"] if older else []
        return PlainText("\n".join([standing.describe(), *lines, *map(_line, standing.runs)]))

    def __repr__(self) -> str:
        return self.report()


def _line(run: RunEntry) -> str:
    amount = f"{dollars(run.reserved_nusd)} reserved" if run.spent_nusd is None else dollars(run.spent_nusd)
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.opened_s))
    return f"  {run.name} ({run.id}), {began}, process {run.owner.pid}: {amount}"


def session(name: str | None = None, budget: float | None = None, *, new: bool = False) -> Spending:
    """The budget of this notebook's session, or of one that several notebooks share by ``name``.

    From then on, every run of this process reserves its own budget from it before anything is billed; a run without one
    may cost what is left. At its end its true cost is what counts. Runs that have begun are not changed.

    Parameters
    ----------
    name : str, optional
        None: this process' own session.
    budget : float, optional
        The cap, US dollars. Sets it if the session has another one.
    new : bool
        Forget what earlier runs of the session have spent.

    Raises
    ------
    BudgetError
        If the cap is below what is spent and reserved.
    CommandError
        If there is no such session and no budget for one, or ``new`` while runs are live.
    DecodeError, ServiceError
        If the ledger in the user's data directory is damaged, or cannot be written.

    Examples
    --------
    >>> mlless_nb.session(budget=0.05)  # doctest: +SKIP
    session 'notebook-1f3a' has $0.05 left of $0.05: $0.00 spent, $0.00 reserved
    """
    return _enter("session", name, budget, new)


def project(name: str | None = None, budget: float | None = None, *, new: bool = False) -> Spending:
    """The budget of a project, which lasts over notebooks and days. Parameters and errors are those of `session`.

    Runs may belong to a session and a project: they then need room in both.
    """
    return _enter("project", name, budget, new)


def _enter(kind: Kind, name: str | None, budget: float | None, new: bool) -> Spending:
    check_flag("new", new)
    if name is not None and (not isinstance(name, str) or not _NAME.fullmatch(name)):
        raise JobError("name", name, "letters, digits, - and _, at most 64, the first a letter or _")
    name = name or _in_force.get(kind)
    if name is None and budget is None:
        example = "(budget=0.05)" if kind == "session" else '("thesis", budget=5.0)'
        raise CommandError(f"no {kind} budget is in force here: mlless_nb.{kind}{example} sets one")
    if name is None and kind == "project":
        raise JobError("name", None, 'the project\'s name, e.g. mlless_nb.project("thesis", budget=5.0)')
    name = name or f"notebook-{uuid.uuid4().hex[:8]}"
    cap_nusd = None if budget is None else _cap(budget)
    with opened() as book:
        if new:
            book.begin_anew(kind, name)
        if cap_nusd is not None:
            book.set_cap(kind, name, cap_nusd)
        book.standing(kind, name)
    _in_force[kind] = name
    return Spending(kind, name)


def in_force() -> dict[Kind, str]:
    """The names of the budgets that a run which begins now belongs to, by kind."""
    return dict(_in_force)


def take_over(names: dict[Kind, str]) -> None:
    """Have the runs of this process belong to the budgets ``names``, which are in force in another one."""
    _in_force.update(names)


@contextlib.contextmanager
def opened(ledger: Ledger | None = None) -> Iterator[Book]:
    """The user's book in a transaction, with the runs settled whose process was killed."""
    ledger = ledger or Ledger()
    with ledger.transaction() as book:
        _settle_lost(ledger, book)
        yield book


def settle_lost() -> list[str]:
    """Settle the runs whose process was killed; returns their ids. Does not make a ledger where there is none."""
    ledger = Ledger()
    if not ledger.path.exists():
        return []
    with ledger.transaction() as book:
        return _settle_lost(ledger, book)


def _settle_lost(ledger: Ledger, book: Book) -> list[str]:
    return book.settle_lost(lambda run: run.owner.is_gone, lambda run: _most_nusd(ledger, run))


def _most_nusd(ledger: Ledger, run: RunEntry) -> int:
    """The most that a run can have cost whose process is gone: by its record, or by what the process last knew."""
    recorded = recorded_cost_usd(run.id)
    if recorded is not None:
        return min(round(recorded * NUSD), MOST_NUSD)
    note = ledger.noted(run.id)
    if note is None:
        return run.reserved_nusd
    return max(note.most_nusd, min(round(last_spent_usd(runs_folder() / run.id) * NUSD), MOST_NUSD))


def _cap(usd: float) -> int:
    """A cap in nano-dollars, checked."""
    return min(to_nusd(Budget(plain(usd)).usd), MOST_NUSD)
