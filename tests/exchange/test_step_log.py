"""The step log in the object storage, for a reader that comes late."""

from __future__ import annotations

import pytest

from mlless_nb.errors import ServiceError
from mlless_nb.exchange.step_report import LateArrival, Report
from mlless_nb.exchange.storage import step_log
from mlless_nb.exchange.storage.step_log import StepLog
from mlless_nb.storage.conditional import conditional
from mlless_nb.storage.objects import MemoryObjects


class Refusing(MemoryObjects):
    """Refuses the first request for ``refused``, a key or a prefix, as a storage that is asked too often."""

    def __init__(self, refused: str) -> None:
        super().__init__()
        self._refused = {refused}

    def _refuse(self, key: str) -> None:
        if key in self._refused:
            self._refused.remove(key)
            raise ServiceError("object storage: slow down (503)")

    def get(self, key: str, first: int = 0, end: int | None = None) -> bytes:
        self._refuse(key)
        return super().get(key, first, end)

    def list(self, prefix: str) -> list[str]:
        self._refuse(prefix)
        return super().list(prefix)


@pytest.mark.parametrize("refused", ["log/steps/3", "log/late/", "log/late/2-1"])
def test_a_storage_that_refuses_a_request_costs_neither_a_step_nor_a_late_arrival(refused: str) -> None:
    """The steps that were read before were missing in the history."""
    storage = conditional(Refusing(refused))
    writer, reader = (StepLog(storage, "log/", 0.0, lambda *_: None) for _ in range(2))
    for step in range(1, 5):
        writer.append(step, {0: Report()}, 2, [1.0])
    writer.note_late(LateArrival(2, 1, 9.0))
    steps = [entry.step for _ in range(2) for entry in reader.read(0.0)]
    writer.append(5, {0: Report()}, 2, [1.0])
    steps += [entry.step for entry in reader.read(0.0)]
    assert (steps, reader.take_late()) == ([1, 2, 3, 4, 5], [LateArrival(2, 1, 9.0)])


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
