"""Rows of telemetry from the reports of workers, some of which have just taken over a slot."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from engine.threads import RATES, Job

from mlless_nb import BSP, PMF, SGD, SSP
from mlless_nb.exchange.step_report import Report, StepEntry
from mlless_nb.money.budget import Prepaid
from mlless_nb.supervisor.bill import Bill
from mlless_nb.supervisor.step_rows import StepRows


def test_residuals_are_told_once_all_workers_have_some() -> None:
    invocation = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 5, "mean", {}).invocation(0)
    bill = Bill(RATES, 2, Prepaid(RATES, 10**12, lambda: 0.0, lambda: 0), 0, "", 0)
    rows = StepRows(invocation, RATES, bill)

    def entry(step: int, *primal_squares: float) -> StepEntry:
        reports = {
            slot: Report(1.0, 10.0, position=step, primal_square=square, dual_residual=0.5 if square >= 0 else -1.0)
            for slot, square in enumerate(primal_squares)
        }
        return StepEntry(step, float(step), reports)

    found = list(rows.append([entry(1, -1.0, -1.0), entry(2, 4.0, 5.0), entry(3, 0.25, -1.0), entry(4, 8.0, 8.0)]))
    assert [(row.primal_residual, row.dual_residual) for row in found] == [(3.0, 0.5), (None, None), (4.0, 0.5)]
    assert all(math.isfinite(row.loss) for row in found)


def rows_and_entry(sync: Any) -> tuple[StepRows, Callable[[int], StepEntry]]:
    """Rows of two workers, and how an entry of the step log is made."""
    invocation = Job(PMF(rank=2), SGD(0.2), sync, 2, 5, "mean", {}).invocation(0)
    bill = Bill(RATES, 2, Prepaid(RATES, 10**12, lambda: 0.0, lambda: 0), 0, "", 0)
    return StepRows(invocation, RATES, bill), lambda step: StepEntry(
        step, float(step), {slot: Report(1.0, 10.0, position=step) for slot in range(2)}
    )


def test_a_supervisor_that_takes_over_late_goes_on_with_the_steps_that_the_log_still_has() -> None:
    """It waited for the first step for ever, told of no row, and took the best model for the last one."""
    rows, entry = rows_and_entry(BSP())
    rows.begin_at(0)
    assert [row.step for row in rows.append(map(entry, range(2000, 2500)))] == list(range(2000, 2499))
    assert rows.step == 2499
    # It gets no time while the log drops what it has not read.
    found = [*rows.append(map(entry, range(2500, 2510))), *rows.append(map(entry, range(13_000, 13_003)))]
    assert [row.step for row in found] == [*range(2499, 2510), 13_000, 13_001]
    assert [row.step for row in rows.append([entry(13_005)])] == [13_002]  # none comes that is three steps ahead
    assert [row.step for row in rows.last(None, 0)] == [13_005]


def test_steps_at_the_end_after_some_that_are_missing() -> None:
    rows, entry = rows_and_entry(BSP())
    assert [row.step for row in rows.append(map(entry, (1, 2, 4)))] == [1]
    assert [row.step for row in rows.last(None, 0)] == [2, 4]
    assert rows.step == 4


def test_a_step_that_completes_after_later_ones_is_waited_for() -> None:
    """Under bounded staleness the others go on before a leaving worker has taken its last step."""
    rows, entry = rows_and_entry(SSP(3))
    found = [row.step for step in (1, 3, 4, 5, 6, 2, 7) for row in rows.append([entry(step)])]
    assert found == [1, 2, 3, 4, 5, 6]
