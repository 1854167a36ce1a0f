"""The record of a run on disk: its start, rows, decisions, end and model. `attach` reads it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

from ..errors import CommandError, DecodeError
from ..models import FittedModel
from ..redaction import scrubbed_values
from ..validation import nearest
from .live import COLUMNS, LIVE

ROWS, EVENTS, END, MODEL, LAST = "rows.jsonl", "events.jsonl", "run.json", "model.npz", "last.npz"
#: When each function of a stateless run began and ended, and its requests.
TRACE = "trace.jsonl"
#: The last parameters in the units of training, and the optimiser's state: a `mlless_nb.storage.checkpoint.Progress`.
PROGRESS = "progress.bin"
#: Least columns of a row: the oldest records that can still be read have so many.
LEAST_COLUMNS = len(COLUMNS) - 4
#: Most characters of the summary and of a line of the other files, and most lines.
MOST_SUMMARY, MOST_LINE, MOST_LINES = 64 << 20, 1 << 20, 10_000_000
#: Lock file, held by the process that drives the run while it lives; the system releases it even after kill -9.
DRIVEN = "driven"
_driven: weakref.WeakSet[IO[str]] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_driven):  # a child must not hold them after its parent's end
        lock.close()


os.register_at_fork(after_in_child=_after_fork)


def runs_folder() -> Path:
    """The folder of all records: ``runs`` in the user's data directory."""
    return platformdirs.user_data_path("mlless_nb") / "runs"


class Record:
    """The record of one run. If the disk is full or read-only, the record is incomplete, but the run goes on.

    Attributes
    ----------
    is_complete : bool
        Whether everything so far could be written.
    """

    def __init__(self, run_id: str) -> None:
        self.folder = runs_folder() / run_id
        self.is_complete = True
        self._driven: IO[str] | None = None
        with self._tolerant():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    @contextlib.contextmanager
    def _tolerant(self) -> Any:
        try:
            yield
        except OSError:
            self.is_complete = False

    def append(self, rows: Sequence[Sequence[float | None]]) -> None:
        """Add rows of telemetry."""
        self._append(ROWS, rows)

    def append_events(self, events: list[dict[str, Any]]) -> None:
        """Add decisions of the auto-tuner, with the figures that they are based on."""
        self._append(EVENTS, events)

    def append_trace(self, entries: list[dict[str, Any]]) -> None:
        """Add what stateless functions did, see `mlless_nb.stateless.function_reports`."""
        self._append(TRACE, entries)

    def _append(self, name: str, entries: Sequence[Any]) -> None:
        if entries:
            with self._tolerant(), (self.folder / name).open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(scrubbed_values(entry)) + "\n" for entry in entries)

    def begin(self, summary: dict[str, Any]) -> None:
        """Write what is known before the first step, in case this process is killed before `end`.

        Not done if files cannot be locked, since readers could not find out whether the process lives.
        """
        with contextlib.suppress(OSError):
            self._driven = (self.folder / DRIVEN).open("w")
            _driven.add(self._driven)
            fcntl.flock(self._driven, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write(summary)

    def end(self, summary: dict[str, Any]) -> None:
        """Write how the run ended."""
        with self._tolerant():
            self._write(summary)
            (self.folder / DRIVEN).unlink(missing_ok=True)
        if self._driven is not None:
            self._driven.close()

    def keep_model(self, model: FittedModel, name: str = MODEL) -> None:
        """Write a model atomically: the returned one, or the `LAST` one."""
        with self._tolerant():
            draft = self.folder / (name + ".tmp")
            model.save(draft)
            os.replace(draft, self.folder / name)

    def keep_progress(self, blob: bytes) -> None:
        """Write the progress that another run can resume from, atomically."""
        with self._tolerant():
            draft = self.folder / (PROGRESS + ".tmp")
            draft.write_bytes(blob)
            os.replace(draft, self.folder / PROGRESS)

    def _write(self, summary: dict[str, Any]) -> None:
        """Write ``summary`` atomically."""
        draft = self.folder / (END + ".tmp")
        draft.write_text(json.dumps(scrubbed_values(summary)), "utf-8")
        os.replace(draft, self.folder / END)


def find(run: str) -> tuple[dict[str, Any], NDArray[np.float64], Path]:
    """Summary, rows and folder of the newest ended run whose id or name is ``run``.

    A run whose process was killed ends with the last recorded row.

    Raises
    ------
    CommandError
        If there is no such run, or it is live in another process.
    """
    is_live, ended, known = False, [], set[str]()
    folders = sorted(runs_folder().glob(f"*/{END}"), key=_written_s, reverse=True)
    for path in folders:
        driven = is_driven(path.parent)  # read first: the end is written before the lock is released
        try:
            summary = read_summary(path.parent)
            names = (summary["state"]["run_id"], summary["state"]["name"])
            has_end = summary["state"]["status"] not in LIVE
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            continue  # skip a damaged record
        if run in names and (has_end or not driven):
            rows = _read_rows(path.parent / ROWS)
            return summary if has_end else _cut_off(summary, rows, path.parent), rows, path.parent
        is_live = is_live or run in names
        if not driven:
            known.update(filter(None, names))
            ended.append(f"{names[1]} ({names[0]})" if names[1] else names[0])
    if is_live:
        raise CommandError(
            f"run {run!r} is live in another process: its record can be read once it has ended (one that was started "
            "with detach=True can be attached to before)"
        )
    newest = ", ".join(ended[:8]) or "none"
    near = nearest(run, known)
    meant = "" if near is None else f"is {near!r} meant? "
    raise CommandError(f"no ended run is called {run!r}; {meant}ended runs on this machine: {newest}")


def _written_s(path: Path) -> float:
    """When a file was written, unix time; 0 if another process has removed it meanwhile."""
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary in the record ``folder``; OSError, ValueError or RecursionError if there is no good one."""
    summary: dict[str, Any] = json.loads(_text_of(folder / END))
    return summary


def completed(summary: dict[str, Any], folder: Path) -> dict[str, Any]:
    """``summary``, written at the start of a run that was killed, with an end by the rows in the record ``folder``."""
    return _cut_off(summary, _read_rows(folder / ROWS), folder)


def recorded_cost_usd(run_id: str) -> float | None:
    """What an ended run has cost by its record, US dollars; None if its end is not recorded, or not well."""
    try:
        summary = json.loads((runs_folder() / run_id / END).read_text("utf-8"))
        if summary["state"]["status"] in LIVE:
            return None
        total = math.fsum(float(usd) for usd in summary["cost"].values())
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    return total if math.isfinite(total) and total >= 0 else None


def has_ended(folder: Path) -> bool:
    """Whether the end of the run with the record ``folder`` is recorded."""
    return recorded_cost_usd(folder.name) is not None


def recorded_name(path: Path) -> str:
    """The run's name in the summary ``path``, "" if there is none."""
    try:
        return str(json.loads(path.read_text("utf-8"))["state"]["name"])
    except (OSError, ValueError, TypeError, KeyError):
        return ""


def last_spent_usd(folder: Path) -> float:
    """The run's cost by its newest recorded row, US dollars; 0 if there is none."""
    with contextlib.suppress(OSError, ValueError, TypeError), (folder / ROWS).open("rb") as rows:
        rows.seek(0, os.SEEK_END)
        rows.seek(max(rows.tell() - 8192, 0))
        for line in reversed(rows.read().split(b"\n")[:-1]):  # after the last newline is nothing, or half a row
            usd = float(to_array([json.loads(line)])[0, COLUMNS.index("spent_usd")])
            return usd if math.isfinite(usd) else 0.0
    return 0.0


def read_trace(run_id: str) -> list[dict[str, Any]]:
    """What the functions of a stateless run did, see `mlless_nb.stateless.function_reports`; empty for other runs."""
    return _lines(runs_folder() / run_id / TRACE)


def read_progress(folder: Path, most_bytes: int) -> bytes:
    """What `Record.keep_progress` wrote.

    Raises
    ------
    OSError
        If there is no such file.
    DecodeError
        If it is longer than ``most_bytes``.
    """
    with (folder / PROGRESS).open("rb") as file:
        blob = file.read(most_bytes + 1)
    if len(blob) > most_bytes:
        raise DecodeError(f"{folder / PROGRESS}: must have at most {most_bytes} bytes")
    return blob


def is_driven(folder: Path) -> bool:
    """Whether the process that drives the run with the record ``folder`` is alive."""
    try:
        with (folder / DRIVEN).open() as driven:
            fcntl.flock(driven, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _cut_off(summary: dict[str, Any], rows: NDArray[np.float64], folder: Path) -> dict[str, Any]:
    """``summary``, written at the start, completed with an end that is derived from the recorded rows."""
    state = {**summary["state"], "status": "failed", "pending": [], "rate_usd_s": 0.0}
    cost: dict[str, float] = {}
    if len(rows):
        last = dict(zip(COLUMNS, rows[-1].tolist(), strict=True))
        state |= {name: last[name] for name in ("epoch", "time_s", "loss")}
        state |= {name: int(last[name]) for name in ("step", "n_workers")}
        evaluated = rows[:, COLUMNS.index("validation_loss")]
        state["validation_loss"] = next(iter(evaluated[np.isfinite(evaluated)][::-1].tolist()), None)
        cost = {"workers": last["spent_usd"] - last["servers_usd"], "redis": last["servers_usd"]}
    state["reason"] = (
        f"its end was not recorded: the process that trained it was killed, or the disk was full; "
        f"the last recorded step is {state['step']}"
    )
    if not (folder / MODEL).exists():
        state["reason"] += ", and its model went with it"
    decided = [(entry["time_s"], entry["text"]) for entry in _lines(folder / EVENTS) if entry["text"]]
    told = [*decided, (state["time_s"], f"failed: {state['reason']}")]
    state["events"] = [{"time_s": time_s, "text": text} for time_s, text in told]
    return {**summary, "state": state, "cost": cost}


def _text_of(path: Path) -> str:
    """The text of a summary; ValueError if it is longer than any is."""
    with path.open(encoding="utf-8") as file:
        text = file.read(MOST_SUMMARY + 1)
    if len(text) > MOST_SUMMARY:
        raise ValueError(f"{path}: more than {MOST_SUMMARY} characters")
    return text


def _lines(path: Path) -> list[Any]:
    """The JSON lines of the file ``path``, up to the first incomplete one (e.g. if the disk was full).

    A line that is longer than any of ours ends them, too, and so does the last of as many as a run may have.
    """
    found: list[Any] = []
    with contextlib.suppress(OSError, ValueError, RecursionError), path.open(encoding="utf-8") as lines:
        while len(found) < MOST_LINES and (line := lines.readline(MOST_LINE)).endswith("\n"):
            found.append(json.loads(line))
    return found


def _read_rows(path: Path) -> NDArray[np.float64]:
    """The rows in the file ``path``, up to the first invalid one."""
    rows: list[NDArray[np.float64]] = [to_array([])]
    with contextlib.suppress(ValueError, TypeError):
        for line in _lines(path):
            rows.append(to_array([line]))
    return np.concatenate(rows)


def to_array(rows: Sequence[Sequence[float | None]]) -> NDArray[np.float64]:
    """Rows as float64 (n, columns); None becomes NaN, and so do last columns that an older record lacks."""
    filled = [[*row, *[None] * (len(COLUMNS) - len(row))] if len(row) >= LEAST_COLUMNS else row for row in rows]
    return np.array(filled, dtype=np.float64).reshape(len(rows), len(COLUMNS))
