"""What is kept of a run on this machine; a disk that cannot keep it costs the record, never the run."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from engine.jobs import finish, job

from mlless_nb import CommandError, Stop
from mlless_nb.telemetry import record
from mlless_nb.telemetry.live import COLUMNS
from mlless_nb.telemetry.record import END, ROWS, Record, find, runs_folder, to_array


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's data directory of the test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    if not runs_folder().is_relative_to(tmp_path):
        monkeypatch.setattr(record, "runs_folder", lambda: tmp_path / "data" / "mlless_nb" / "runs")
    return tmp_path / "data"


def row(step: int) -> list[float | None]:
    """A row whose columns tell its step, without a validation loss."""
    return [float(step) if name != "validation_loss" else None for name in COLUMNS]


def summary(run_id: str, name: str = "run") -> dict[str, Any]:
    """What is written when a run has ended."""
    return {"state": {"run_id": run_id, "name": name, "status": "finished"}, "cost": {"workers": 0.1}}


def keep(run_id: str, name: str = "run", n_rows: int = 3) -> Record:
    """The record of an ended run."""
    kept = Record(run_id)
    kept.append([row(1)])
    kept.append([row(step) for step in range(2, n_rows + 1)])
    kept.end(summary(run_id, name))
    return kept


def test_what_is_kept_is_found_by_id_and_by_name() -> None:
    kept = keep("id-1", "first")
    assert kept.is_complete
    for name in ("id-1", "first"):
        found, rows, folder = find(name)
        assert found == summary("id-1", "first")
        assert rows.shape == (3, len(COLUMNS))
        assert rows[:, 0].tolist() == [1.0, 2.0, 3.0]
        assert np.isnan(rows[:, COLUMNS.index("validation_loss")]).all()
        assert folder == kept.folder
    assert stat.S_IMODE(kept.folder.stat().st_mode) & 0o077 == 0


def test_a_record_from_before_the_last_column_is_read() -> None:
    kept = keep("older")
    lines = [json.loads(line) for line in (kept.folder / ROWS).read_text().splitlines()]
    (kept.folder / ROWS).write_text("".join(json.dumps(line[:-1]) + "\n" for line in lines))
    rows = find("older")[1]
    assert rows.shape == (3, len(COLUMNS))
    assert np.isnan(rows[:, -1]).all()
    assert rows[:, 0].tolist() == [1.0, 2.0, 3.0]


def test_the_newest_of_a_name_is_found() -> None:
    for number in range(3):
        kept = keep(f"id-{number}", "same", n_rows=number + 1)
        os.utime(kept.folder / END, (1000.0 + number, 1000.0 + number))
    assert find("same")[0]["state"]["run_id"] == "id-2"
    assert find("id-0")[1].shape == (1, len(COLUMNS))


def test_a_record_that_is_forgotten_meanwhile_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another notebook does by `forget`."""
    ended = [kept.folder / END for kept in (keep("id-0", "same"), keep("id-1", "same"))]
    monkeypatch.setattr(record, "runs_folder", lambda: SimpleNamespace(glob=lambda _: ended))
    ended[1].unlink()
    assert find("same")[0]["state"]["run_id"] == "id-0"


def test_a_run_that_has_not_ended_is_not_found() -> None:
    Record("live").append([row(1)])
    keep("id-1")
    with pytest.raises(CommandError, match="no ended run is called 'live'; ended runs on this machine: run \\(id-1\\)"):
        find("live")


def test_a_name_that_is_nearly_right_is_told() -> None:
    keep("id-1", "first")
    with pytest.raises(CommandError, match=r"no ended run is called 'frist'; is 'first' meant\? ended runs on this"):
        find("frist")


def test_a_run_whose_process_is_gone_has_ended_with_its_last_row() -> None:
    keep("id-0", "same")
    cut = Record("id-1")
    cut.begin({"state": {"run_id": "id-1", "name": "same", "status": "starting", "step": 0, "time_s": 0.0}, "cost": {}})
    cut.append([row(1), row(2)])
    cut.append_events([{"time_s": 1.5, "text": "Removed worker 1"}, {"time_s": 1.6, "text": ""}])
    assert find("same")[0]["state"]["run_id"] == "id-0"
    with pytest.raises(CommandError, match="run 'id-1' is live in another process"):
        find("id-1")

    assert cut._driven is not None
    cut._driven.close()  # as the system does at the end of a process

    found, rows, _ = find("same")
    assert (found["state"]["status"], found["state"]["step"], found["state"]["time_s"]) == ("failed", 2, 2.0)
    assert "the last recorded step is 2" in found["state"]["reason"]
    assert [event["text"][:16] for event in found["state"]["events"]] == ["Removed worker 1", "failed: its end "]
    assert rows[:, 0].tolist() == [1.0, 2.0]


def test_a_forked_child_does_not_keep_a_run_alive() -> None:
    cut = Record("id-1")
    cut.begin({"state": {"run_id": "id-1", "name": "run", "status": "starting", "step": 0, "time_s": 0.0}, "cost": {}})
    ready, over = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.write(ready[1], b"x")
        os.read(over[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    assert cut._driven is not None
    cut._driven.close()
    assert find("id-1")[0]["state"]["status"] == "failed"
    os.write(over[1], b"x")
    os.waitpid(child, 0)
    for end in (*ready, *over):
        os.close(end)


def test_an_ended_run_leaves_no_lock() -> None:
    kept = Record("id-1")
    kept.begin(summary("id-1"))
    kept.end(summary("id-1"))
    assert [path.name for path in kept.folder.iterdir()] == [END]


def test_where_nothing_was_ever_kept_it_says_so() -> None:
    with pytest.raises(CommandError, match="ended runs on this machine: none"):
        find("anything")


def test_a_run_without_a_step_has_no_rows() -> None:
    kept = Record("id-1")
    kept.append([])
    kept.end(summary("id-1"))
    assert not (kept.folder / ROWS).exists()
    assert find("id-1")[1].shape == (0, len(COLUMNS))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"state":{}}', '{"state":[]}', "\x00"])
def test_a_damaged_record_hides_no_other(text: str) -> None:
    keep("id-1", "good")
    (keep("id-2", "bad").folder / END).write_text(text)
    assert find("good")[0]["state"]["run_id"] == "id-1"
    with pytest.raises(CommandError, match="no ended run"):
        find("bad")


@pytest.mark.parametrize("text", ["[1.0, 2.0", "[1.0]\n", "junk\n", '"text"\n', "{}\n"])
def test_rows_are_read_up_to_the_first_that_is_not_whole(text: str) -> None:
    kept = keep("id-1")
    with (kept.folder / ROWS).open("a") as file:
        file.write(text)
    kept.append([row(4)])
    assert find("id-1")[1][:, 0].tolist() == [1.0, 2.0, 3.0]


def test_a_name_like_a_path_finds_nothing_elsewhere(tmp_path: Path) -> None:
    (tmp_path / END).write_text(json.dumps(summary("elsewhere")))
    for name in ("../..", str(tmp_path), "*", ""):
        with pytest.raises(CommandError):
            find(name)


def test_numbers_survive_to_the_last_bit() -> None:
    values = [[0.1 + step / 3 for step in range(len(COLUMNS))], [float("nan")] * len(COLUMNS)]
    kept = Record("id-1")
    kept.append(values)  # type: ignore[arg-type]
    kept.end(summary("id-1"))
    np.testing.assert_array_equal(find("id-1")[1], np.array(values))
    assert to_array([]).shape == (0, len(COLUMNS))


def test_a_folder_that_cannot_be_made_costs_the_record(data_home: Path) -> None:
    data_home.write_text("a file where the folder should be")
    kept = keep("id-1")
    assert not kept.is_complete
    assert data_home.read_text() == "a file where the folder should be"


def test_a_disk_that_fills_up_costs_the_record() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here; Linux has one")
    kept = Record("id-1")
    assert kept.is_complete
    (kept.folder / ROWS).symlink_to("/dev/full")
    kept.append([row(1)])
    assert not kept.is_complete


def test_a_folder_that_is_gone_costs_the_record() -> None:
    kept = Record("id-1")
    kept.folder.rmdir()
    kept.append([row(1)])
    assert not kept.is_complete
    kept.end(summary("id-1"))
    assert not kept.folder.exists()


def test_an_interrupted_end_leaves_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = keep("id-1", "before")

    def fail(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", fail)
    kept.end(summary("id-1", "after"))
    assert not kept.is_complete
    assert find("id-1")[0]["state"]["name"] == "before"


def test_a_run_is_trained_to_its_end_where_nothing_can_be_kept(data_home: Path) -> None:
    data_home.write_text("")
    run = finish(job(workers=1, stop=Stop(steps=3)))
    assert run.status == "finished", run.reason
    assert run.history["step"].tolist() == [1.0, 2.0, 3.0]
    assert run.model.predict([0], [0]).shape == (1,)
    assert any("history incomplete" in event.text for event in run.telemetry.state.events)
