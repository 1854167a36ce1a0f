"""Functions that are forked from one interpreter of the whole test run, instead of from one that each run starts.

A run's functions are processes all the same, with a session of their own, Lithops' runner and the package's preload.
What is saved is the start of an interpreter and its imports, the larger part of the processor time of a small run.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from servers import START_S

from mlless_nb.driver.backends.processes import has_members

SERVER = Path(__file__).with_name("runtime_server.py")
#: What an interpreter looks at when it starts: where these are others, a run has an interpreter of its own.
AT_START = ("MLLESS_", "NPY_", "PYTHON", "OMP_", "OPENBLAS_", "GLIBC_", "MALLOC_")


def seen_at_start() -> dict[str, str]:
    """The environment as far as an interpreter looks at it when it starts."""
    return {name: value for name, value in environment().items() if name.startswith(AT_START)}


def environment() -> dict[str, str]:
    """The environment without the driver's process, with which an interpreter ends: here that is the server."""
    return {name: value for name, value in os.environ.items() if name != "MLLESS_DRIVER"}


class Forked:
    """The `subprocess.Popen` of a runner that was forked: what Lithops and the launcher use of one."""

    def __init__(self, path: str, argv: list[str]) -> None:
        self._client = socket.socket(socket.AF_UNIX)
        self._client.connect(path)
        request = {"argv": argv, "env": environment(), "cwd": os.getcwd()}
        self._client.sendall(json.dumps(request).encode() + b"\n")
        self._said, self._incoming = b"", threading.Lock()
        self.args, self.returncode = argv, None
        while b"\n" not in self._said:
            self._hear()
        line, _, self._said = self._said.partition(b"\n")
        self.pid = int(line)

    def _hear(self) -> None:
        part = self._client.recv(64)
        if not part:
            raise ConnectionError("the server of functions is gone")
        self._said += part

    def poll(self) -> int | None:
        """The return code, None while it runs."""
        return self._await(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The return code once it has ended."""
        code = self._await(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def communicate(self) -> tuple[bytes, bytes]:
        """Wait for the end of all that a real one's output would go through: its functions may outlive the runner."""
        self.wait()
        while has_members(self.pid):
            time.sleep(0.01)
        return b"", b""

    def _await(self, timeout: float | None) -> int | None:
        give_up_at = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left_s = None if give_up_at is None else max(give_up_at - time.monotonic(), 0.0)
            if not select.select([self._client], [], [], left_s)[0]:
                break
            self._learn()
        return self.returncode

    def _learn(self) -> None:
        # Lithops waits in a thread of its own while others ask: what comes is read by one of them.
        with self._incoming:
            if self.returncode is not None:
                return
            try:
                self._hear()
            except ConnectionError:
                self.returncode = -signal.SIGKILL
            if self._said.endswith(b"\n"):
                self.returncode = int(self._said)


class SharedRuntime:
    """Stands for the module `subprocess` in Lithops' localhost backend: jobs are forked, all else is started.

    A job is started, too, where the environment is not the one in which the server's own interpreter was.

    Parameters
    ----------
    interpreter : str
        The executable that runs what it is told under the interpreter of local functions.
    folder : Path
        Of the socket.
    prefix : list of str
        What the command of the server begins with.
    """

    PIPE, run = subprocess.PIPE, staticmethod(subprocess.run)

    def __init__(self, interpreter: str, folder: Path, prefix: list[str]) -> None:
        self.interpreter, self._path, self._environment = interpreter, str(folder / "socket"), seen_at_start()
        with open(folder / "output", "wb") as output:
            command = [*prefix, interpreter, str(SERVER), self._path]
            self._server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        give_up_at = time.monotonic() + START_S
        while not os.path.exists(self._path):
            if self._server.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"the server of functions does not start:\n{(folder / 'output').read_text()}")
            time.sleep(0.01)

    def Popen(self, command: list[str], **options: Any) -> Any:  # noqa: N802 - the name that it stands for
        """Fork ``command`` where it is a job under the interpreter that is shared; start it where it is not."""
        interpreter, *argv = command
        if interpreter == self.interpreter and argv[1:2] == ["run_job"] and seen_at_start() == self._environment:
            return Forked(self._path, argv)
        return subprocess.Popen(command, **options)

    def close(self) -> None:
        """End the server; runs that are not over keep their processes."""
        self._server.kill()
        self._server.wait()
