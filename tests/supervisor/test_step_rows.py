"""Rows of telemetry from the reports of workers, some of which have just taken over a slot."""

from __future__ import annotations

import math

from engine.threads import RATES, Job

from mlless_nb import BSP, PMF, SGD
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
