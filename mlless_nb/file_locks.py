"""Locks on files and folders that this machine's processes share: waited for within limits, and who holds one is told.

A lock ends with its process, however that ends. One that is stopped (Ctrl-Z, a debugger, a paused container) keeps it.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

#: Pauses between two tries to get a lock that is held for microseconds, seconds: the first, and the longest.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.0002, 0.02


@contextlib.contextmanager
def locked(path: str, limit_s: float, program: str = "", lease_s: float = math.inf) -> Iterator[None]:
    """Hold the lock of a file or folder that is there.

    Parameters
    ----------
    path : str
    limit_s : float
        Longest wait for other processes, seconds.
    program : str
        A process of this program that is stopped, but not by a debugger, is killed after a wait of ``lease_s``.
    lease_s : float

    Raises
    ------
    TimeoutError
        If it is still held; names the process.
    """
    descriptor, began, pause_s = os.open(path, os.O_RDONLY), time.monotonic(), FIRST_PAUSE_S
    try:
        while not _has_locked(descriptor):
            waited_s = time.monotonic() - began
            if waited_s > lease_s:
                _kill_stopped(_holder(path), program)
            if waited_s > limit_s:
                raise TimeoutError(f"{path} has been locked for {limit_s:g} s by {holder_of(path)}")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _has_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _kill_stopped(pid: int | None, program: str) -> None:
    """Kill a process of ``program`` that is stopped, and gives up no lock."""
    with contextlib.suppress(OSError):
        if pid and _state(pid)[1] == "T" and program.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            os.kill(pid, signal.SIGKILL)


def holder_of(path: str | Path, byte: int | None = None) -> str:
    """The process that holds the exclusive lock of ``path``, in words: its number, name, and whether it is stopped.

    With ``byte``, the lock that begins there. "another process" where the system does not say.
    """
    pid = _holder(path, byte)
    return "another process" if pid is None else _process(pid)


def _holder(path: str | Path, byte: int | None = None) -> int | None:
    with contextlib.suppress(OSError, IndexError, ValueError):
        found = os.stat(path)
        file = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        for line in Path("/proc/locks").read_text("ascii").splitlines():
            fields = line.split()  # number, kind, ADVISORY, WRITE, process, device:inode, first and last byte
            is_it = fields[1] != "->" and fields[3] == "WRITE" and fields[5] == file
            if is_it and byte in (None, int(fields[6])) and int(fields[4]) != os.getpid():
                return int(fields[4])
    return None


def _process(pid: int) -> str:
    """A process in words; 0 or less is one of another container."""
    name, state = _state(pid)
    if not name:
        return "another process" if pid <= 0 else f"process {pid}"
    if state in ("T", "t"):
        return f"process {pid} ({name}), which is stopped: end it by kill -9 {pid}, or let it go on by kill -CONT {pid}"
    return f"process {pid} ({name})"


def _state(pid: int) -> tuple[str, str]:
    """The name of a process, and its state (T: stopped, t: by a debugger); both "" where the system does not say."""
    with contextlib.suppress(OSError, IndexError):
        _, _, rest = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").partition("(")
        name, _, rest = rest.rpartition(")")
        return name, rest.split()[0]
    return "", ""
