"""A step log that is written again from what checkpoints keep: it has what was reported, and nothing else."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.errors import DecodeError
from mlless_nb.exchange import StepEntry
from mlless_nb.exchange.kept_reports import KEPT_REPORTS, WIDTH, KeptReports, newest_entries
from mlless_nb.exchange.step_report import Report

BEGAN_S = 1000.0
NUMBERS = st.floats(-1e12, 1e12) | st.just(math.inf)


def report(step: int, slot: int) -> Report:
    """One that no other step or slot has."""
    return Report(loss_sum=step + 0.25, loss_count=slot + 1.0, position=step)


def kept(slot: int, *steps: int, n_updates: int = 2, n_workers: int = 0) -> KeptReports:
    """Those of a worker that takes a step each second."""
    reports = KeptReports()
    for step in steps:
        reports.add(step, step + slot / 10, n_updates, n_workers, report(step, slot))
    return reports


def entries(after: int, newest: int, *workers: KeptReports) -> list[StepEntry]:
    """What is written again of the log of these workers, numbered from 0."""
    return newest_entries(after, newest, {slot: one.table() for slot, one in enumerate(workers)}, BEGAN_S)


def expected(step: int, *slots: int, n_workers: int = 0) -> StepEntry:
    """The entry of a step; it was complete when the first of ``slots`` says so."""
    return StepEntry(step, BEGAN_S + step + slots[0] / 10, {slot: report(step, slot) for slot in slots}, n_workers)


def test_the_entries_are_those_of_the_steps_that_are_asked_for() -> None:
    workers = [kept(slot, *range(1, 9)) for slot in (0, 1)]
    assert entries(3, 6, *workers) == [expected(step, 0, 1) for step in (4, 5, 6)]
    assert entries(6, 6, *workers) == entries(7, 6, *workers) == []


def test_none_is_left_out_between_two_of_them() -> None:
    """Worker 1 has left after step 3, and worker 2 knows nothing of step 5."""
    workers = [kept(0, *range(1, 9), n_updates=2), KeptReports(), kept(2, 1, 2, 3, 4, 6, 7, 8)]
    assert entries(0, 8, *workers) == [expected(step, 0, 2) for step in (6, 7, 8)]
    assert entries(0, 5, *workers) == []
    assert entries(0, 9, *workers) == []


def test_those_of_a_quorum_are_of_the_updates_that_count() -> None:
    workers = [kept(0, 1, 2, 4, n_workers=3), kept(1, 1, 3, 4, n_workers=3), kept(2, 2, 3, n_workers=3)]
    counted = {1: (0, 1), 2: (0, 2), 3: (1, 2), 4: (0, 1)}
    assert entries(0, 4, *workers) == [expected(step, *slots, n_workers=3) for step, slots in counted.items()]


def test_times_do_not_fall_though_clocks_differ() -> None:
    first, second = KeptReports(), KeptReports()
    for step, at_s, other_s in ((1, 5.0, 5.1), (2, 4.0, 6.0), (3, 7.0, 7.0)):
        first.add(step, at_s, 2, 0, Report())
        second.add(step, other_s, 2, 0, Report())
    assert [entry.at_s - BEGAN_S for entry in entries(0, 3, first, second)] == [4.0, 4.0, 7.0]


def test_the_newest_are_kept_and_a_worker_that_goes_on_has_those_of_its_checkpoint() -> None:
    one = kept(0, *range(1, 9))
    table = one.table()
    one.add(9, 9.0, 2, 0, Report())
    other = kept(0, 50)
    other.go_on_from(table)
    for step in range(9, 9 + KEPT_REPORTS):
        other.add(step, float(step), 1, 0, report(step, 0))
        if step % 100 == 0:
            other.table()
    assert other.table().shape == (KEPT_REPORTS, WIDTH)
    assert [entry.step for entry in entries(0, 8 + KEPT_REPORTS, other)] == [*range(9, 9 + KEPT_REPORTS)]


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 2**62)), min_size=1))
def test_any_report_comes_back_as_it_was(measured: list[tuple[float, float, int]]) -> None:
    reports = [Report(loss_sum=loss, exit_s=exit_s, sent_bytes=n_bytes) for loss, exit_s, n_bytes in measured]
    worker = KeptReports()
    for step, one in enumerate(reports, 1):
        worker.add(step, 0.0, 1, 0, one)
    assert [entry.reports[0] for entry in entries(0, len(reports), worker)] == reports


@pytest.mark.parametrize(
    "table", [np.zeros((3, WIDTH - 1), np.int32), np.zeros((3, WIDTH), np.float32), np.zeros(WIDTH, np.int32)]
)
def test_a_table_of_something_else_is_refused(table: np.ndarray) -> None:
    with pytest.raises(DecodeError, match="reports of shape"):
        newest_entries(0, 3, {0: table}, BEGAN_S)
