"""The process that a reservation belongs to: named so that another process can find out whether it still lives."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

#: Longest wait for ``ps`` where there is no /proc, seconds.
PS_S = 5.0


@dataclass(frozen=True)
class Owner:
    """One process.

    Parameters
    ----------
    host : str
        The machine's name and, where known, the namespace of its process ids.
    boot : str
        The machine's boot, "" if unknown.
    pid : int
    started : str
        When the process started, in the system's own words: process ids are used again.
    """

    host: str
    boot: str
    pid: int
    started: str

    @classmethod
    def this(cls) -> Owner:
        """This process."""
        host, boot = _machine()
        return cls(host, boot, os.getpid(), _started(os.getpid()))

    @property
    def is_here(self) -> bool:
        """Whether its process ids are those of this machine, so that one can look for it."""
        return self.host == _machine()[0]

    @property
    def is_gone(self) -> bool:
        """Whether it has certainly ended. A process of another machine or container is never certainly gone."""
        host, boot = _machine()
        if self.host != host:
            return False
        if self.boot != boot:
            return True  # the machine was started again
        return _started(self.pid) != self.started


@functools.cache
def _machine() -> tuple[str, str]:
    """The name of this machine, with the namespace of its process ids, and of its boot."""
    namespace = boot = ""
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{socket.gethostname()} {namespace}".strip()[:200], boot[:64]


def _started(pid: int) -> str:
    """When process ``pid`` started, "" if there is none; a zombie has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        return "" if fields[0] in ("Z", "X") else fields[19]
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return ""
    except (OSError, IndexError):
        return "unknown"
    asked = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=PS_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return " ".join(said.split())[:64]
