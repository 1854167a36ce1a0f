"""The step log in the object storage, for a reader that comes late."""

from __future__ import annotations

import pytest

from mlless_nb.exchange.step_report import Report
from mlless_nb.exchange.storage import step_log
from mlless_nb.exchange.storage.step_log import StepLog
from mlless_nb.storage.conditional import conditional
from mlless_nb.storage.objects import MemoryObjects


def test_a_reader_that_comes_late_goes_on_with_the_oldest_step_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_log, "KEPT_STEPS", 5)
    monkeypatch.setattr(step_log, "LISTED_AFTER_S", 0.0)
    storage, asked = conditional(MemoryObjects()), [0, 0]

    def note(gets: int, puts: int) -> None:
        asked[:] = asked[0] + gets, asked[1] + puts

    writer, reader = (StepLog(storage, "log/", 0.0, note) for _ in range(2))
    for step in range(1, 5):
        writer.append(step, {0: Report()})
    assert [entry.step for entry in reader.read(0.001)] == [1, 2, 3, 4]
    for step in range(5, 13):
        writer.append(step, {0: Report()})
    assert [entry.step for entry in reader.read(0.001)] == [8, 9, 10, 11, 12]
    monkeypatch.setattr(step_log, "LISTED_AFTER_S", 10.0)
    patient = StepLog(storage, "log/", 0.0, note)
    asked[:] = [0, 0]
    assert [*patient.read(0.0), *patient.read(0.0)] == []
    assert asked == [2, 0]  # a listing costs as much as a write
