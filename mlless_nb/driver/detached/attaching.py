"""The handle on a run that another process drives: the client of `mlless_nb.driver.detached.control`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ...bus.messages import Command
from ...errors import CommandError, MllessError, ServiceError
from ...job.job import TrainingJob
from ...models import load_model
from ...money import Cost, StoreUse
from ...telemetry import record
from ...telemetry.live import COLUMNS, ENDED, Event
from ..run import TrainingRun
from ..servers.places import CONTROL, all_places
from . import handover
from .control import MOST_LINE, send, short_path

#: Longest wait for an answer to a command, seconds: the driver may be waiting for its servers.
ANSWER_S = 30.0
#: Seconds until a lost connection is made again, and the tries to read the record of a run whose driver has gone.
AGAIN_S, TRIES = 0.05, 100


def live_runs() -> dict[Path, tuple[str, str]]:
    """Folder, and id and name, of each run that lives in a process that can be attached to, oldest first."""
    places, found = {each.run_id: each for each in all_places()}, {}
    for path in sorted(record.runs_folder().glob(f"*/{CONTROL}")):
        folder, place = path.parent, places.get(path.parent.name)
        lives = record.is_driven(folder) or (place is not None and not place.owner.is_gone)
        if lives and not record.has_ended(folder):
            name = place.name if place is not None else record.recorded_name(folder / record.END)
            found[folder] = folder.name, name
    return found


def live(run: str) -> Path | None:
    """The folder of the newest of these whose id or name is ``run``."""
    return next((folder for folder, names in reversed(live_runs().items()) if run in names), None)


def recorded(run: str) -> TrainingRun:
    """The ended run of this id or name, from its record.

    Raises
    ------
    CommandError
        If there is none.
    """
    others = [name or run_id for run_id, name in live_runs().values()]
    try:
        summary, rows, folder = record.find(run)
    except CommandError as error:
        raise CommandError(f"{error}; live: {', '.join(others)}" if others else str(error)) from None
    state = summary["state"]
    found = TrainingRun(None, state["run_id"], state["name"])
    found.telemetry.append(rows)
    _end(found, state, _cost_of(summary), folder)
    return found


def _cost_of(summary: dict[str, Any]) -> Cost:
    """The cost in a record; that of an earlier version, and of a run that was killed, has nothing on its store."""
    return Cost(StoreUse.from_json(summary.get("store")), **summary["cost"])


def _end(run: TrainingRun, state: dict[str, Any], cost: Cost, folder: Path) -> None:
    """End ``run`` as its record or its driver says; its models are in ``folder``."""
    model, last = (
        load_model(folder / name) if (folder / name).exists() else None for name in (record.MODEL, record.LAST)
    )
    state.pop("pending", None)
    run._end(model, cost, last, **_plain(state))


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    """Fields of a state from JSON."""
    events = state.get("events")
    if events is not None:
        pairs = [(each["time_s"], each["text"]) if isinstance(each, dict) else each for each in events]
        state = {**state, "events": tuple(Event(time_s, text) for time_s, text in pairs)}
    if "pending" in state:
        state = {**state, "pending": tuple(state["pending"])}
    return state


class Attached:
    """A connection to a live run, as long as it lives.

    Parameters
    ----------
    folder : Path
        Of the run's record.
    on_end : callable
        Called with the run before threads that wait for it continue.
    job : TrainingJob, optional
        Its job, if that is known here.
    process : subprocess.Popen, optional
        The process that drives it, if that is a child of this one.

    Attributes
    ----------
    run : TrainingRun

    Raises
    ------
    OSError
        If nobody listens.
    """

    def __init__(
        self,
        folder: Path,
        on_end: Callable[[TrainingRun], None],
        job: TrainingJob | None = None,
        process: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self._folder, self._on_end, self._process = folder, on_end, process
        self._state: dict[str, Any] = {}  # the latest that was heard
        self._answers: dict[str, str] = {}
        self._answered, self._lock = threading.Condition(), threading.Lock()
        self._stream = _connect(folder, b"follow\n")
        hello = self._received()
        self.run = TrainingRun(job, hello["run_id"], hello["name"], self._send)
        self.run.n_slots, self.run._find_job = hello["workers"], self._job
        while not self._state or self.run.telemetry.n_rows < hello["n_rows"]:
            self._take(self._received())
        threading.Thread(target=self._listen, name=f"mlless-attached-{self.run.name}", daemon=True).start()

    def _received(self) -> dict[str, Any]:
        """The next message; ConnectionError if there is none."""
        if (message := self._line()) is None:
            raise ConnectionError(f"{self._folder}: the driver went away")
        return message

    def _line(self) -> dict[str, Any] | None:
        """The next message; None if the connection has ended."""
        with contextlib.suppress(OSError, ValueError, RecursionError):
            line = self._stream.readline(MOST_LINE)
            if line.endswith(b"\n"):
                message: dict[str, Any] = json.loads(line)
                return message
        return None

    def _job(self) -> TrainingJob | None:
        """The run's job with its rows; None if they are not in its driver's memory."""
        with contextlib.suppress(OSError, MllessError), _connect(self._folder, b"job\n") as stream:
            return dataclasses.replace(handover.read(stream)[0], detach=True)
        return None

    def _take(self, message: dict[str, Any]) -> None:
        """Take in what the driver told."""
        telemetry = self.run.telemetry
        if "answer" in message:
            with self._answered:
                self._answers[message["answer"]] = message["refused"]
                self._answered.notify_all()
        if "rows" in message:
            rows = np.array(message["rows"], np.float64).reshape(-1, len(COLUMNS))
            telemetry.append(rows[max(telemetry.n_rows - message["first"], 0) :])
        self._state |= (state := message.get("state", {}))
        if state and self._state["status"] not in ENDED:  # the end is shown once the model is there
            telemetry.update(**_plain(state))

    def _listen(self) -> None:
        message: dict[str, Any] | None = {}
        while message is None or "end" not in message:
            message = self._line()
            if message is not None:
                self._take(message)
            elif not self._reconnect():
                break
        if self._process is not None:
            self._process.wait()
        self._on_end(self.run)
        self._stream.close()
        try:
            if message is not None:
                _end(self.run, self._state, _cost_of({**message, "cost": message["end"]}), self._folder)
            else:
                self._end_by_record()
        except Exception as error:  # e.g. a model's file that is damaged: nobody may wait for ever
            self.run._end(None, self.run.cost, status="failed", reason=f"how it ended cannot be read: {error}")
        with self._answered:
            self._answered.notify_all()

    def _reconnect(self) -> bool:
        """Whether the driver lives, and is connected to again."""
        self.run._over.wait(AGAIN_S)
        try:
            self._stream.close()
            self._stream = _connect(self._folder, b"follow\n")
        except OSError:
            return False
        return True

    def _end_by_record(self) -> None:
        """End the run whose driver has ended without a final message."""
        run, tries = self.run, TRIES
        while record.is_driven(self._folder) and (tries := tries - 1):  # its files are being closed
            run._over.wait(AGAIN_S)
        try:
            summary, rows, folder = record.find(run.id)
        except CommandError:
            reason = "its driver's process was killed before the run had begun"
            _end(run, {**self._state, "status": "failed", "reason": reason}, Cost(), self._folder)
            return
        run.telemetry.append(rows[run.telemetry.n_rows :])
        _end(run, summary["state"], _cost_of(summary), folder)

    def _send(self, command: Command, pending: str) -> None:
        """Send a command, and wait until the driver has taken it; no effect if the run has ended.

        Raises
        ------
        CommandError
            If the driver refuses it.
        ServiceError
            If the driver does not answer.
        """
        asked = {"command": command.encode().decode(), "pending": pending}
        over = self.run._over
        try:
            send(self._stream, self._lock, asked)
        except (OSError, ValueError):
            if not over.wait(ANSWER_S):
                raise ServiceError(f"the driver of run {self.run.name!r} does not answer") from None
            return
        with self._answered:
            self._answered.wait_for(lambda: command.id in self._answers or over.is_set(), ANSWER_S)
            refused = self._answers.pop(command.id, None)
        if refused:
            raise CommandError(refused)
        if refused is None and not over.is_set():
            raise ServiceError(f"the driver of run {self.run.name!r} does not answer")


def _connect(folder: Path, wanted: bytes) -> Any:
    """A connection to the driver of the run with the record ``folder``, as a file."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(folder) as path:
            client.connect(path)
        client.sendall(wanted)
        return client.makefile("rwb")
    finally:
        client.close()  # the file holds the connection
