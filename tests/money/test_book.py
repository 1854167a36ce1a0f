"""The rules of nested budgets hold after any sequence of what runs, users and kills do, on the file and in a model."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from mlless_nb.errors import BudgetError, CommandError, MllessError, RunError
from mlless_nb.money import book as rules
from mlless_nb.money.book import KINDS, Book, Kind, RunEntry, dollars
from mlless_nb.money.ledger import Ledger
from mlless_nb.money.owner import Owner

HERE = Owner.this()
SESSIONS, PROJECTS = ("", "a", "b"), ("", "thesis")
amounts = st.integers(1, 60)


def entry(run_id: str, session: str = "a", project: str = "", owner: Owner = HERE) -> RunEntry:
    """A run that has not reserved anything yet."""
    return RunEntry(run_id, f"name-{run_id}", session, project, 0, None, 1_700_000_000, owner)


class Budgets(RuleBasedStateMachine):
    """Several processes' transactions in any order; every one opens the file anew, as a process of its own does."""

    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.caps: dict[tuple[Kind, str], int] = {}
        self.open: dict[str, tuple[str, str, int]] = {}  # budgets and reservation
        self.spent: dict[str, tuple[str, str, int]] = {}
        self.n_runs = 0

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.folder / "ledger.sqlite")

    def attempt(self, change: Callable[[Book], object]) -> MllessError | None:
        """Make a change in a transaction; returns why it was refused."""
        try:
            with self.ledger.transaction() as book:
                change(book)
        except MllessError as error:
            return error
        return None

    def used(self, kind: Kind, name: str) -> int:
        """What the model says is spent and reserved."""
        at = KINDS.index(kind)
        return sum(run[2] for run in [*self.open.values(), *self.spent.values()] if run[at] == name)

    def left(self, session: str, project: str) -> int:
        budgets: list[tuple[Kind, str]] = [("session", session), ("project", project)]
        return min(self.caps[kind, name] - self.used(kind, name) for kind, name in budgets if name)

    @rule(kind_name=st.sampled_from([("session", "a"), ("session", "b"), ("project", "thesis")]), cap=amounts)
    def set_cap(self, kind_name: tuple[Kind, str], cap: int) -> None:
        refusal = self.attempt(lambda book: book.set_cap(*kind_name, cap))
        if cap >= min(self.used(*kind_name), self.caps.get(kind_name, 0)):
            assert refusal is None
            self.caps[kind_name] = cap
        else:
            assert isinstance(refusal, BudgetError)

    @rule(target=runs, session=st.sampled_from(SESSIONS), project=st.sampled_from(PROJECTS), cap=st.none() | amounts)
    def begin(self, session: str, project: str, cap: int | None) -> str:
        self.n_runs += 1
        run_id = f"run-{self.n_runs}"
        budgets = [budget for budget in (("session", session), ("project", project)) if budget[1]]
        if not budgets or any(budget not in self.caps for budget in budgets):
            return run_id
        left = self.left(session, project)
        refusal = self.attempt(lambda book: book.open(entry(run_id, session, project), cap))
        if left <= 0 or (cap is not None and cap > left):
            assert isinstance(refusal, BudgetError)
            assert dollars(max(left, 0)) in str(refusal)
            return run_id
        assert refusal is None
        self.open[run_id] = (session, project, left if cap is None else cap)
        return run_id

    @rule(run_id=runs, cap=amounts)
    def change(self, run_id: str, cap: int) -> None:
        before = self.open.get(run_id)
        refusal = self.attempt(lambda book: book.reserve(run_id, cap))
        if before is None or cap - before[2] > max(self.left(*before[:2]), 0):
            assert isinstance(refusal, CommandError)
        else:
            assert refusal is None
            self.open[run_id] = (*before[:2], cap)

    @rule(run_id=consumes(runs), share=st.floats(0, 1))
    def end(self, run_id: str, share: float) -> None:
        cost = round(self.open.get(run_id, ("", "", 0))[2] * share)
        with self.ledger.transaction() as book:
            book.settle(run_id, cost)
            book.settle(run_id, cost + 1)  # only the first counts
        self.note_cost(run_id, cost)

    @rule(run_id=consumes(runs), most=st.integers(0, 100))
    def is_killed(self, run_id: str, most: int) -> None:
        with self.ledger.transaction() as book:
            lost = book.settle_lost(lambda run: run.id == run_id, lambda run: most)
        assert lost == ([run_id] if run_id in self.open else [])
        self.note_cost(run_id, min(most, self.open.get(run_id, ("", "", 0))[2]))

    def note_cost(self, run_id: str, cost: int) -> None:
        if run_id in self.open:
            self.spent[run_id] = (*self.open.pop(run_id)[:2], cost)

    @rule(run_id=runs)
    def dies_in_the_middle(self, run_id: str) -> None:
        def interrupted(book: Book) -> None:
            book.settle(run_id, 0)
            book.budgets.clear()
            raise RunError("killed")

        assert isinstance(self.attempt(interrupted), RunError)

    @invariant()
    def holds(self) -> None:
        with self.ledger.transaction() as book:
            standings = {budget: book.standing(*budget) for budget in book.budgets}
        assert {budget: standing.budget.cap_nusd for budget, standing in standings.items()} == self.caps
        for budget, standing in standings.items():
            assert standing.spent_nusd + standing.reserved_nusd == self.used(*budget) <= self.caps[budget]
            assert standing.left_nusd == self.caps[budget] - self.used(*budget)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


TestBudgets = Budgets.TestCase
TestBudgets.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


def test_old_runs_become_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "KEPT_RUNS", 3)
    book = Book()
    book.set_cap("session", "a", 1000)
    book.set_cap("project", "thesis", 1000)
    for number in range(10):
        book.open(entry(str(number), "a", "thesis"), 20)
        book.settle(str(number), 7)
    for kind, name in book.budgets:
        standing = book.standing(kind, name)
        assert standing.spent_nusd == 70
        assert standing.budget.n_folded + len(standing.runs) == 10
    assert len(book.runs) <= 4


def test_a_session_begins_anew_but_its_project_remembers() -> None:
    book = Book()
    book.set_cap("session", "a", 100)
    book.set_cap("project", "thesis", 1000)
    book.open(entry("one", "a", "thesis"), 100)
    with pytest.raises(CommandError, match=r"new=True: must wait .* reserved by name-one"):
        book.begin_anew("session", "a")
    book.settle("one", 100)
    book.begin_anew("session", "a")
    assert book.standing("session", "a").left_nusd == 100
    assert book.standing("project", "thesis").spent_nusd == 100


@pytest.mark.parametrize(
    ("nusd", "text"), [(0, "$0.00"), (50_000_000, "$0.05"), (1, "$0.000000001"), (-1, "-$0.000000001")]
)
def test_dollars_are_exact(nusd: int, text: str) -> None:
    assert dollars(nusd) == text
