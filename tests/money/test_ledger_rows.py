"""What is read from the ledger is what was written, or is refused."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mlless_nb.errors import DecodeError
from mlless_nb.money.book import MOST_NUSD, BudgetEntry, RunEntry
from mlless_nb.money.ledger_rows import Note, check_row, entry_of, to_budget, to_note, to_row, to_run
from mlless_nb.money.owner import Owner

GOOD = ["run-1", "one", "shared", "", 5, None, 1_700_000_000, ["host", "boot", 7, "123"]]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


def test_a_good_run_is_read() -> None:
    owner = Owner("host", "boot", 7, "123")
    assert to_run(GOOD) == RunEntry("run-1", "one", "shared", "", 5, None, 1_700_000_000, owner)


@given(at=st.integers(0, 7), value=anything)
def test_one_wrong_field_is_refused_or_within_bounds(at: int, value: Any) -> None:
    values = [*GOOD[:at], value, *GOOD[at + 1 :]]
    try:
        run = to_run(values)
    except DecodeError:
        return
    assert 0 <= run.reserved_nusd <= MOST_NUSD
    assert run.spent_nusd is None or 0 <= run.spent_nusd <= MOST_NUSD
    assert type(run.reserved_nusd) is type(run.owner.pid) is int


@given(values=st.lists(anything, max_size=9))
def test_other_lists_are_refused_or_within_bounds(values: list[Any]) -> None:
    for decode in (to_budget, to_run, to_note):
        try:
            found = decode(values)
        except DecodeError:
            continue
        if isinstance(found, BudgetEntry):
            assert 0 <= found.cap_nusd <= MOST_NUSD
        elif isinstance(found, Note):
            assert found.most_nusd >= 0


@given(key=st.text(max_size=10), values=st.lists(anything, max_size=5), at=st.integers(0, 10**6), other=st.characters())
def test_a_changed_row_is_refused(key: str, values: list[Any], at: int, other: str) -> None:
    try:
        row = to_row(key, values)
    except UnicodeEncodeError:
        return
    check_row(row)
    assert json.dumps(entry_of(row)) == json.dumps(values)
    entry = row[1]
    changed = entry[: at % len(entry)] + other + entry[at % len(entry) + 1 :]
    if changed != entry:
        with pytest.raises((DecodeError, UnicodeEncodeError)):
            check_row((row[0], changed, row[2]))


@pytest.mark.parametrize("row", [("a", 1, "b"), (None, "[]", "b"), ("a", b"[]", "b"), ("a", "[" * 5000, "b")])
def test_rows_of_other_types_are_refused(row: Any) -> None:
    with pytest.raises(DecodeError, match="another type, or too long"):
        check_row(row)


@pytest.mark.parametrize("entry", ["{}", "1", "[", "[" * 3000])
def test_entries_that_are_no_lists_are_refused(entry: str) -> None:
    with pytest.raises(DecodeError, match="a row is no"):
        entry_of(("a", entry, ""))
