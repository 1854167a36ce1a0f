"""What a driver restores after the servers have lost a run's data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from driver.recovery.test_recovery import of_three

from mlless_nb.bus.messages import Message, Replaced
from mlless_nb.exchange import Restart
from mlless_nb.exchange.kept_reports import KeptReports
from mlless_nb.exchange.step_report import Report
from mlless_nb.storage.run_objects import Checkpoint, part_key
from mlless_nb.storage.worker_state import REPORTS, WorkerState
from mlless_nb.telemetry.live import COLUMNS


@pytest.mark.parametrize("is_local", [True, False])
def test_what_is_restored_is_what_was_known_and_no_more_than_the_cap(is_local: bool) -> None:
    handler, hub, _ = of_three(is_local=is_local)
    assert handler.handle(is_due=True) is None
    create, leased = hub.create, list[bool]()

    def watched(*given: Any) -> None:
        leased.append("driver" in hub.leases)
        create(*given)

    hub.create = watched  # type: ignore[method-assign]
    hub.lose()
    assert handler.handle(is_due=True) is None
    assert (hub.plan.leaves, hub.reserved, hub.restart.number) == ({2: 9}, 1000, 1)
    assert leased == [True]  # without a lease the supervisor takes the driver for gone


@pytest.mark.parametrize("n_rows", [0, 2, 3, 4])
def test_after_lost_data_the_run_goes_on_from_its_newest_checkpoint_which_has_the_reports_that_nobody_has_read(
    n_rows: int,
) -> None:
    """It went on from one of a step with a row, which was that of the first step if only newer ones were kept."""
    handler, hub, _ = of_three(is_local=True)
    objects, kept = handler._services.launcher.objects, [KeptReports() for _ in range(3)]
    for slot, reports in enumerate(kept):
        for step in (1, 2, 3):
            reports.add(step, float(step), 3, 0, Report(loss_sum=10.0 * step + slot))
        part = WorkerState(3, slot, [0, 1, 2], {}, {REPORTS: reports.table()})
        objects.put(part_key("run", Checkpoint(0, 3), slot), part.encode())
    rows = np.zeros((n_rows, len(COLUMNS)))
    rows[:, 0] = range(1, n_rows + 1)
    handler._telemetry.append(rows)
    handler._telemetry.update(budget_usd=None)  # the driver pays for looking for checkpoints
    sent = list[bytes]()
    handler._services.bus.send = lambda _, body: sent.append(body)  # type: ignore[method-assign]
    hub.lose()
    assert handler.handle(is_due=True) is None
    assert hub.restart == Restart(1, 3)
    losses = {entry.step: [report.loss_sum for report in entry.reports.values()] for entry in hub.steps}
    assert losses == {step: [10.0 * step + slot for slot in range(3)] for step in range(n_rows + 1, 4)}
    (news,) = [one for one in map(Message.decode, sent) if isinstance(one, Replaced)]
    assert (news.step, news.log_after) == (3, min(n_rows, 3))
