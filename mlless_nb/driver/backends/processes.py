"""The processes of this user: which ones belong to runs, as their command lines say."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ...plurals import count

#: Longest wait for ``ps``, and for killed processes to end, seconds.
PS_S, GONE_S = 10.0, 10.0


@dataclass(frozen=True)
class Process:
    """A process of this user.

    Parameters
    ----------
    pid, group : int
    command : str
        Its command line, arguments separated by spaces.
    """

    pid: int
    group: int
    command: str


def all_processes() -> list[Process]:
    """The processes of this user except this one; zombies are not among them."""
    if not Path("/proc/self/cmdline").exists():
        return _listed()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            pid = int(folder.name)
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            if command and pid != os.getpid() and folder.stat().st_uid == os.getuid():
                found.append(Process(pid, os.getpgid(pid), command))
    return found


def _listed() -> list[Process]:
    """What ``ps`` says, where there is no /proc."""
    asked = ["ps", "-U", str(os.getuid()), "-ww", "-o", "pid=,pgid=,stat=,command="]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=PS_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [line.split(None, 3) for line in said.splitlines()]
    found = [Process(int(row[0]), int(row[1]), row[3]) for row in rows if len(row) == 4 and "Z" not in row[2]]
    return [process for process in found if process.pid != os.getpid()]


def kill(processes: Collection[Process]) -> None:
    """Kill these processes, with their groups where these are their own, and wait until they have ended.

    Each is looked at again before: a process id may be used anew.
    """
    give_up_at = time.monotonic() + GONE_S
    while alive := [process for process in all_processes() if process in processes]:
        for process in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if process.group == process.pid:
                    os.killpg(process.group, signal.SIGKILL)
                else:
                    os.kill(process.pid, signal.SIGKILL)
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{count(len(alive), 'process')} cannot be ended")
        time.sleep(0.02)


def has_members(group: int) -> bool:
    """Whether a process of ``group`` runs."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return bool(members(group))


def members(group: int) -> set[int]:
    """The processes of ``group`` that live; those that are dead and not buried do not."""
    return {process.pid for process in all_processes() if process.group == group}


def leaves(group: int) -> set[int]:
    """The processes of ``group`` that live and have started no other that does: Lithops starts functions by others."""
    alive = members(group)
    return alive - {_parent(pid) for pid in alive}


def children(pid: int) -> list[int]:
    """The processes that ``pid`` has started, by any of its threads, and not buried; none on other systems than Linux.

    Unlike `members` it does not look at all processes of the machine.
    """
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended, or one of its threads
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as listed:
                found += map(int, listed.read().split())
    return found


def _parent(pid: int) -> int:
    """The parent of a process, 0 if it is gone."""
    if not Path("/proc/self/stat").exists():
        return _parent_by_ps(pid)
    try:
        # "Field 4 (ppid)" of proc(5); the name in field 2 may contain spaces.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _parent_by_ps(pid: int) -> int:
    """As `_parent`, where there is no /proc."""
    asked = ["ps", "-o", "ppid=", "-p", str(pid)]
    with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
        return int(subprocess.run(asked, capture_output=True, text=True, timeout=PS_S, check=False).stdout)
    return 0


def started_at(pid: int) -> float | None:
    """When a process was started, monotonic clock, to a tick of the kernel's (10 ms); None if that is not known."""
    try:
        # "Field 22 (starttime)" of proc(5), ticks after the machine's start, pauses of the machine included.
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError, ValueError, IndexError):  # it has ended, or there is no /proc, or no such clock
        return None


def is_running(pid: int, groups: list[int]) -> bool:
    """Whether process ``pid`` belongs to one of these groups and is neither dead nor a zombie."""
    try:
        if os.getpgid(pid) not in groups:
            return False
        stat = Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return False
    except OSError:
        return True  # no /proc here
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
