"""What is kept of a run on this machine: rows and decisions while it goes, its end, its model. `attach` reads it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

from .errors import CommandError

ROWS, EVENTS, END, MODEL = "rows.jsonl", "events.jsonl", "run.json", "model.npz"


def runs_folder() -> Path:
    """Where the records lie: ``runs`` in the user's data directory."""
    return platformdirs.user_data_path("mlless_nb") / "runs"


class Record:
    """The record of one run. A disk that is full or read-only costs the record, never the run.

    Attributes
    ----------
    is_complete : bool
        Whether everything so far could be written.
    """

    def __init__(self, run_id: str) -> None:
        self.folder = runs_folder() / run_id
        self.is_complete = True
        with self._tolerant():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    @contextlib.contextmanager
    def _tolerant(self) -> Any:
        try:
            yield
        except OSError:
            self.is_complete = False

    def append(self, rows: list[list[float | None]]) -> None:
        """Add rows of telemetry."""
        self._append(ROWS, rows)

    def append_events(self, events: list[dict[str, Any]]) -> None:
        """Add decisions of the auto-tuner, with their numbers."""
        self._append(EVENTS, events)

    def _append(self, name: str, entries: Sequence[Any]) -> None:
        if entries:
            with self._tolerant(), (self.folder / name).open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(entry) + "\n" for entry in entries)

    def end(self, summary: dict[str, Any]) -> None:
        """Write how the run ended, in one piece."""
        with self._tolerant():
            draft = self.folder / (END + ".tmp")
            draft.write_text(json.dumps(summary), "utf-8")
            os.replace(draft, self.folder / END)

    @property
    def model_path(self) -> Path:
        """Where the model is kept."""
        return self.folder / MODEL


def find(run: str) -> tuple[dict[str, Any], NDArray[np.float64], Path]:
    """Summary, rows and model path of the newest ended run whose id or name is ``run``.

    Raises
    ------
    CommandError
        When there is none.
    """
    folders = sorted(runs_folder().glob(f"*/{END}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in folders:
        try:
            summary = json.loads(path.read_text("utf-8"))
            names = (summary["state"]["run_id"], summary["state"]["name"])
        except (OSError, ValueError, TypeError, KeyError):
            continue  # a damaged record hides no other
        if run in names:
            return summary, _read_rows(path.parent / ROWS), path.parent / MODEL
    newest = ", ".join(path.parent.name for path in folders[:8]) or "none"
    raise CommandError(f"no ended run is called {run!r}; ended runs on this machine: {newest}")


def _read_rows(path: Path) -> NDArray[np.float64]:
    """The rows in the file ``path``, up to the first that was not written whole (the disk was full, say)."""
    rows: list[NDArray[np.float64]] = [to_array([])]
    with contextlib.suppress(OSError, ValueError, TypeError), path.open(encoding="utf-8") as lines:
        for line in lines:
            rows.append(to_array([json.loads(line)]))
    return np.concatenate(rows)


def to_array(rows: list[list[float | None]]) -> NDArray[np.float64]:
    """Rows as float64 (n, columns); None becomes NaN."""
    from .telemetry import COLUMNS

    return np.array(rows, dtype=np.float64).reshape(len(rows), len(COLUMNS))
