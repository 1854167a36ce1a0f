"""The way to a run that lives in another process of this machine: a Unix socket in the folder of its record.

`Control` is the side of the process that drives the run. Each connection is one JSON object a line: states, rows and at
last the cost go out; commands come in, and each is answered. Only the user can open the socket: the folder has mode
0700.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...bus.messages import Command, Message
from ...errors import DecodeError, JobError, MllessError
from ...telemetry.live import RunState
from ...telemetry.record import runs_folder
from ..run import TrainingRun
from ..servers.places import CONTROL
from . import handover

#: Seconds between two batches of rows, and between two looks for the end when nothing changes.
BATCH_S, BEAT_S = 0.05, 1.0
#: Most rows in a line, and longest line, bytes.
MOST_ROWS, MOST_LINE = 1000, 16 << 20
#: Longest path of a socket, bytes.
MOST_PATH = 100
#: Longest that a client may not read, and that the end waits for clients, seconds.
SEND_S, CLOSE_S = 10, 5.0


@contextlib.contextmanager
def short_path(folder: Path) -> Iterator[str]:
    """The path of the socket in ``folder``; through a link if it is longer than the system takes."""
    path = folder / CONTROL
    if len(os.fsencode(path)) < MOST_PATH:
        yield str(path)
        return
    with tempfile.TemporaryDirectory(prefix="mlless-", dir="/tmp" if os.path.isdir("/tmp") else None) as place:
        link = Path(place) / "run"
        link.symlink_to(folder)
        yield f"{link}/{CONTROL}"


def check() -> None:
    """Raise JobError unless the user's data directory takes sockets."""
    folder = runs_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (
            tempfile.TemporaryDirectory(dir=folder) as place,
            short_path(Path(place)) as path,
            socket.socket(socket.AF_UNIX) as probe,
        ):
            probe.bind(path)
    except OSError as error:
        valid = f"False where the data directory takes no socket: {folder} ({error}); XDG_DATA_HOME names another one"
        raise JobError("detach", True, valid) from None


class Control:
    """Lets other processes follow and command a run of this one.

    Parameters
    ----------
    run : TrainingRun

    Raises
    ------
    OSError
        If the folder of its record takes no socket.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._run, self._threads = run, list[threading.Thread]()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        folder = runs_folder() / run.id
        self._path = folder / CONTROL
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._path.unlink(missing_ok=True)
            with short_path(folder) as path:
                self._listener.bind(path)
            self._listener.listen()
        except OSError:
            self._listener.close()
            raise
        threading.Thread(target=self._accept, name="mlless-control", daemon=True).start()

    def close(self) -> None:
        """Once the run has ended: accept nobody else, and wait until all know how."""
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._path.parent.rmdir()  # of a run that has no record
        for thread in list(self._threads):
            thread.join(CLOSE_S)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), name="mlless-client", daemon=True)
            self._threads = [*(each for each in self._threads if each.is_alive()), thread]
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        """Answer the first line of ``client``: it wants to follow the run, or its job."""
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_S, 0))
        with contextlib.suppress(OSError, ValueError, MllessError), client, client.makefile("rwb") as stream:
            if stream.readline(MOST_LINE) == b"job\n":
                assert self._run.job is not None
                handover.write(stream, self._run.job)
                return
            lock = threading.Lock()
            threading.Thread(
                target=self._read_commands, args=(stream, lock), name="mlless-commands", daemon=True
            ).start()
            try:
                self._send_changes(stream, lock)
            finally:
                client.shutdown(socket.SHUT_RDWR)  # ends the other thread's reading

    def _send_changes(self, stream: Any, lock: threading.Lock) -> None:
        """Send states and rows until the end, which is sent last."""
        run, telemetry, sent, seen = self._run, self._run.telemetry, 0, 0
        told: RunState | None = None
        send(stream, lock, {"run_id": run.id, "name": run.name, "workers": run.n_slots, "n_rows": telemetry.n_rows})
        while True:
            is_over = run._over.is_set()  # read first, and the state before the rows: nothing comes after the end
            state, rows = telemetry.state, telemetry.rows_since(sent)
            if state is not told:
                send(stream, lock, {"state": changes(told, state)})
            for first in range(0, len(rows), MOST_ROWS):
                send(stream, lock, {"first": sent + first, "rows": rows[first : first + MOST_ROWS].tolist()})
            if is_over:
                cost = run.cost
                store = cost.store.to_json() if cost.store is not None else None
                send(stream, lock, {"end": dict(cost), "store": store})
                return
            sent, told = sent + len(rows), state
            if state.is_live:
                seen = telemetry.wait_for_change(seen, BEAT_S)
            run._over.wait(BATCH_S)

    def _read_commands(self, stream: Any, lock: threading.Lock) -> None:
        """Carry out commands until the client goes."""
        with contextlib.suppress(OSError, ValueError):
            while line := stream.readline(MOST_LINE):
                send(stream, lock, self._answer(line))

    def _answer(self, line: bytes) -> dict[str, Any]:
        answer = {"answer": "", "refused": ""}
        try:
            command, pending = asked(line)
            answer["answer"] = command.id
            self._run._ask(command, pending)
        except MllessError as error:
            answer["refused"] = str(error)
        return answer


def asked(line: bytes) -> tuple[Command, str]:
    """The command in a client's line, and the sentence that is shown while it is pending; DecodeError if it is none."""
    try:
        message = json.loads(line)
        command, pending = Message.decode(message["command"].encode()), message["pending"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DecodeError(f"not a command: {type(error).__name__}") from None
    if not isinstance(command, Command) or not isinstance(pending, str):
        raise DecodeError("not a command")
    return command, pending


def changes(old: RunState | None, new: RunState) -> dict[str, Any]:
    """The fields of ``new`` that differ from those of ``old``, as plain JSON; all if there is none."""
    changed = {
        name: value
        for name, value in vars(new).items()
        if old is None or ((was := getattr(old, name)) is not value and (name == "events" or was != value))
    }
    if "events" in changed:
        changed["events"] = [[event.time_s, event.text] for event in new.events]
    return changed


def send(stream: Any, lock: threading.Lock, message: dict[str, Any]) -> None:
    """Write one line."""
    with lock:
        stream.write(json.dumps(message).encode() + b"\n")
        stream.flush()
