"""Which steps the quorum's rule takes in."""

from __future__ import annotations

from mlless_nb import DBW
from mlless_nb.exchange import StepEntry
from mlless_nb.exchange.step_report import Report
from mlless_nb.supervisor.quorum import QuorumControl


def test_a_log_that_begins_with_a_later_step_than_the_first_does_not_end_the_run() -> None:
    """A supervisor that took over divided by the number of updates of the step before, which it does not have."""
    control = QuorumControl(DBW().to_json(), 2)
    report = Report(loss_sum=5.0, loss_count=10.0, mean_square=2.0, variance=0.5, learning_rate=0.1)
    control.note([StepEntry(step, float(step), {0: report, 1: report}, 2) for step in range(40, 60)], [])
    decided = control.decide(60.0)
    assert decided is None or 1 <= decided[0] <= 2
