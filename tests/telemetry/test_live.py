"""Telemetry: rows and a state, written by one thread and read by any number."""

from __future__ import annotations

import json
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.errors import MllessError
from mlless_nb.telemetry.live import COLUMNS, ENDED, LIVE, Best, Event, RunState, Telemetry


def rows(first: int, last: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Rows of the steps ``first`` to ``last``; every column tells its step."""
    steps = np.arange(first, last + 1, dtype=np.float64)
    return np.repeat(steps[:, None], len(COLUMNS), axis=1)


@given(st.lists(st.integers(0, 300), max_size=8))
def test_rows_are_kept_whatever_their_number(sizes: list[int]) -> None:
    telemetry = Telemetry()
    n_rows = 0
    for size in sizes:
        telemetry.append(rows(n_rows + 1, n_rows + size))
        n_rows += size
        assert telemetry.n_rows == n_rows
    np.testing.assert_array_equal(telemetry.rows_since(0), rows(1, n_rows))
    np.testing.assert_array_equal(telemetry.rows_since(n_rows // 2), rows(n_rows // 2 + 1, n_rows))
    assert telemetry.rows_since(n_rows + 5).shape == (0, len(COLUMNS))


def test_history_is_a_snapshot_by_column() -> None:
    telemetry = Telemetry()
    telemetry.append(rows(1, 3))
    history = telemetry.history()
    telemetry.append(rows(4, 4))
    assert history.n_steps == 3
    assert history["loss"].tolist() == [1.0, 2.0, 3.0]
    assert list(history) == list(COLUMNS)
    assert len(history) == len(COLUMNS)
    assert {name: column.shape for name, column in history.items()} == dict.fromkeys(COLUMNS, (3,))
    assert "3 steps" in repr(history)
    with pytest.raises(KeyError, match="'losses' is not a column; there are step, epoch"):
        history["losses"]
    assert "losses" not in history


def test_history_is_what_pandas_and_polars_take() -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    telemetry = Telemetry()
    telemetry.append(rows(1, 3))
    history = telemetry.history()
    for frame in (pd.DataFrame(history), history.to_pandas(), pl.DataFrame(history)):
        assert list(frame.columns) == list(COLUMNS)
        assert list(frame["loss"]) == [1.0, 2.0, 3.0]


def test_the_best_is_the_first_of_the_lowest_validation_losses() -> None:
    telemetry = Telemetry()
    assert telemetry.history().best is None
    block = rows(1, 6)
    block[:, COLUMNS.index("validation_loss")] = [np.nan, 0.9, np.nan, 0.7, 0.7, np.inf]
    block[:, COLUMNS.index("epoch")] /= 4
    telemetry.append(block)
    assert telemetry.history().best == Best(0.7, 4, 1.0)
    assert "validation loss 0.7 at best at step 4" in repr(telemetry.history())
    assert telemetry.state.best is None
    telemetry.update(best_loss=0.7, best_step=4, best_epoch=1.0)
    assert telemetry.state.best == telemetry.history().best


def test_an_empty_history_has_every_column() -> None:
    history = Telemetry().history()
    assert history.n_steps == 0
    assert all(history[name].shape == (0,) for name in COLUMNS)


def test_a_history_is_a_data_frame_where_there_is_pandas() -> None:
    pytest.importorskip("pandas")
    telemetry = Telemetry()
    telemetry.append(rows(1, 2))
    frame = telemetry.history().to_pandas()
    assert frame.shape == (2, len(COLUMNS))
    assert frame["spent_usd"].tolist() == [1.0, 2.0]


def test_without_pandas_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MllessError, match="pip install pandas"):
        Telemetry().history().to_pandas()


def test_what_a_reader_does_with_rows_changes_nothing() -> None:
    telemetry = Telemetry()
    telemetry.append(rows(1, 2))
    telemetry.rows_since(0)[:] = -1
    telemetry.history()["loss"][:] = -1
    np.testing.assert_array_equal(telemetry.rows_since(0), rows(1, 2))


def test_the_state_is_replaced_field_by_field() -> None:
    telemetry = Telemetry()
    before = telemetry.state
    telemetry.update(status="running", step=3)
    telemetry.update(loss=0.5)
    assert (telemetry.state.status, telemetry.state.step, telemetry.state.loss) == ("running", 3, 0.5)
    assert before == RunState()
    with pytest.raises(TypeError, match="moon"):
        telemetry.update(moon="full")
    assert telemetry.state.loss == 0.5


def test_the_newest_events_are_kept() -> None:
    telemetry = Telemetry()
    for number in range(250):
        telemetry.add_event(float(number), f"event {number}")
    assert len(telemetry.state.events) == 200
    assert telemetry.state.events[-1] == Event(249.0, "event 249")
    assert telemetry.state.events[0].time_s == 50.0


def test_a_state_is_live_or_ended_and_plain_json() -> None:
    for status in LIVE + ENDED:
        assert RunState(status=status).is_live == (status in LIVE)
    state = RunState(events=(Event(1.0, "one"),), pending=("stopping ...",))
    plain = json.loads(json.dumps(state.to_json()))
    assert plain["events"] == [{"time_s": 1.0, "text": "one"}]
    assert plain["pending"] == ["stopping ..."]


def test_waiting_returns_at_once_when_something_changed_meanwhile() -> None:
    telemetry = Telemetry()
    seen = telemetry.wait_for_change(0, 0.0)
    for change in (
        lambda: telemetry.append(rows(1, 1)),
        lambda: telemetry.update(step=1),
        lambda: telemetry.add_event(0.0, "one"),
    ):
        change()
        latest = telemetry.wait_for_change(seen, 60.0)
        assert latest == seen + 1
        seen = latest
    assert telemetry.wait_for_change(seen, 0.0) == seen


def test_a_change_wakes_those_who_wait() -> None:
    telemetry = Telemetry()
    woken = threading.Barrier(4)

    def wait() -> None:
        telemetry.wait_for_change(0, 60.0)
        woken.wait(60.0)

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    telemetry.add_event(0.0, "wake up")
    woken.wait(60.0)
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive()


def test_readers_see_whole_rows_while_a_writer_writes() -> None:
    telemetry = Telemetry()
    last = 3000
    wrong: list[str] = []

    def read() -> None:
        seen = n_seen = 0
        while n_seen < last:
            seen = telemetry.wait_for_change(seen, 60.0)
            fresh = telemetry.rows_since(n_seen)
            if not np.array_equal(fresh, rows(n_seen + 1, n_seen + len(fresh))):
                wrong.append(f"after {n_seen}")
            n_seen += len(fresh)

    threads = [threading.Thread(target=read, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for step in range(1, last + 1, 3):
        telemetry.append(rows(step, step + 2))
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive()
    assert not wrong
