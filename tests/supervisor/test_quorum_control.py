"""Which steps the quorum's rule takes in."""

from __future__ import annotations

from mlless_nb import DBW, AdaSync
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


def test_a_quorum_that_the_coordinator_has_forgotten_is_announced_again() -> None:
    """After a restart steps waited for as many updates as the first ones, until another number was better."""
    control = QuorumControl(AdaSync(first=2).to_json(), 8)

    def note(step: int, loss: float) -> None:
        control.note([StepEntry(step, float(step), {0: Report(loss_sum=loss, loss_count=1.0)}, 8)], [])

    control.repeat()
    note(1, 1.0)
    assert control.decide(1.0) is None  # that of the first steps
    note(2, 0.1)
    decided = control.decide(2.0)
    assert decided is not None
    assert decided[0] > 2
    assert control.decide(3.0) is None
    control.repeat()
    again = control.decide(4.0)
    assert again is not None
    assert again[0] == decided[0]
    assert control.decide(5.0) is None
