"""Limits of a function's processes all together: memory, share of the processors, and whether they run at all.

Linux has them in version 1, a hierarchy for each controller, or in version 2, one for all. Where both are mounted,
version 1 has the controllers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
#: Controllers of version 1, and of version 2, which freezes without one.
CONTROLLERS, UNIFIED = ("memory", "cpu", "freezer"), ("memory", "cpu")
#: What version 2 needs of the kernel: these files in each cgroup.
NEEDED = ("memory.max", "memory.peak", "memory.oom.group", "cpu.max", "cgroup.freeze")
#: Microseconds in which a share of the processors is counted.
PERIOD_US = 100_000
#: AWS Lambda: a whole core for so much memory, MB.
CORE_MB = 1769
#: Longest wait for processes to be frozen or gone, and between two looks whether memory was too small, seconds.
WAIT_S, LOOK_S = 5.0, 0.05
#: What the names of all of a box begin with.
PREFIX = "mlless-box-"


def is_unified() -> bool:
    """Whether this machine has version 2 alone."""
    return (ROOT / "cgroup.controllers").exists()


def why_not() -> str | None:
    """Why this machine has no such limits; None if it has."""
    if is_unified():
        probe = ROOT / f"{PREFIX}{os.getpid()}-probe"
        try:
            (ROOT / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in UNIFIED))
            probe.mkdir()
        except OSError as error:
            return f"no cgroups of its own in {ROOT} (version 2): {error}"
        missing = [name for name in NEEDED if not (probe / name).exists()]
        probe.rmdir()
        return f"no {', '.join(missing)} in cgroups (version 2)" if missing else None
    missing = [name for name in CONTROLLERS if not os.access(ROOT / name, os.W_OK)]
    return f"no writable cgroups (version 1) for {', '.join(missing)} in {ROOT}" if missing else None


def sweep() -> None:
    """Remove what boxes of processes that are gone have left."""
    for folder in [ROOT] if is_unified() else [ROOT / name for name in CONTROLLERS]:
        for left in folder.glob(f"{PREFIX}*"):
            if not Path(f"/proc/{left.name.split('-')[2]}").exists():
                with contextlib.suppress(OSError):
                    left.rmdir()


def made(name: str, memory_mb: int, cores: float | None = None, *, ends_whole: bool = False) -> Cgroup:
    """One function's, or one pod's.

    Parameters
    ----------
    name : str
    memory_mb : int
    cores : float, optional
        Share of the processors; that of a function of AWS Lambda if None.
    ends_whole : bool
        Whether too little memory ends all processes and not the largest one alone.
    """
    share = memory_mb / CORE_MB if cores is None else cores
    group = (_Unified if is_unified() else _Separate)(name)
    group.limit(memory_mb << 20, max(int(PERIOD_US * share), 1000), ends_whole=ends_whole)
    return group


class Cgroup(ABC):
    """See `made`."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        for folder in folders:
            folder.mkdir(parents=True)

    @abstractmethod
    def limit(self, memory_bytes: int, quota_us: int, *, ends_whole: bool) -> None: ...

    def files(self) -> list[str]:
        """What a process writes its number into to join."""
        return [str(folder / "cgroup.procs") for folder in self._folders]

    @property
    @abstractmethod
    def peak_mb(self) -> float: ...

    @property
    @abstractmethod
    def is_out_of_memory(self) -> bool:
        """Whether all processes were ended since there was too little memory."""

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in (self._folders[-1] / "cgroup.procs").read_text().split()]

    def kill(self) -> None:
        """Kill all processes."""
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @abstractmethod
    def _set_frozen(self, is_frozen: bool) -> None: ...

    @property
    @abstractmethod
    def _is_frozen(self) -> bool: ...

    def freeze(self) -> None:
        """Stop all processes where they are, as AWS does between two invocations."""
        self._set_frozen(True)
        give_up_at = time.monotonic() + WAIT_S
        while not self._is_frozen and time.monotonic() < give_up_at:
            time.sleep(0.001)

    def thaw(self) -> None:
        self._set_frozen(False)

    def remove(self) -> None:
        """Remove it, once its processes are gone."""
        for folder in self._folders:
            give_up_at = time.monotonic() + WAIT_S
            while folder.exists() and time.monotonic() < give_up_at:
                try:
                    folder.rmdir()
                except OSError:
                    time.sleep(0.01)


class _Separate(Cgroup):
    """Version 1."""

    def __init__(self, name: str) -> None:
        super().__init__(*(ROOT / controller / name for controller in CONTROLLERS))
        self._memory, self._cpu, self._freezer = self._folders
        self._was_too_small = False

    def limit(self, memory_bytes: int, quota_us: int, *, ends_whole: bool) -> None:
        (self._memory / "memory.limit_in_bytes").write_text(str(memory_bytes))
        with contextlib.suppress(OSError):  # a kernel without accounting of swap
            (self._memory / "memory.memsw.limit_in_bytes").write_text(str(memory_bytes))
        (self._cpu / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (self._cpu / "cpu.cfs_quota_us").write_text(str(quota_us))
        if ends_whole:  # processes that need more then wait
            (self._memory / "memory.oom_control").write_text("1")
            threading.Thread(target=self._end_whole, daemon=True).start()

    def _end_whole(self) -> None:
        with contextlib.suppress(OSError):  # it was removed
            while "under_oom 1" not in (self._memory / "memory.oom_control").read_text():
                time.sleep(LOOK_S)
            self._was_too_small = True
            self.kill()

    @property
    def peak_mb(self) -> float:
        return int((self._memory / "memory.max_usage_in_bytes").read_text()) / 2**20

    @property
    def is_out_of_memory(self) -> bool:
        return self._was_too_small

    def _set_frozen(self, is_frozen: bool) -> None:
        (self._freezer / "freezer.state").write_text("FROZEN" if is_frozen else "THAWED")

    @property
    def _is_frozen(self) -> bool:
        return (self._freezer / "freezer.state").read_text().strip() == "FROZEN"


class _Unified(Cgroup):
    """Version 2."""

    def __init__(self, name: str) -> None:
        super().__init__(ROOT / name)
        (self._folder,), self._ends_whole = self._folders, False

    def limit(self, memory_bytes: int, quota_us: int, *, ends_whole: bool) -> None:
        (self._folder / "memory.max").write_text(str(memory_bytes))
        with contextlib.suppress(OSError):  # a kernel without accounting of swap
            (self._folder / "memory.swap.max").write_text("0")
        (self._folder / "memory.oom.group").write_text(str(int(ends_whole)))
        (self._folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        self._ends_whole = ends_whole

    @property
    def peak_mb(self) -> float:
        return int((self._folder / "memory.peak").read_text()) / 2**20

    @property
    def is_out_of_memory(self) -> bool:
        events = (self._folder / "memory.events").read_text().splitlines()
        return self._ends_whole and any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in events)

    def _set_frozen(self, is_frozen: bool) -> None:
        (self._folder / "cgroup.freeze").write_text(str(int(is_frozen)))

    @property
    def _is_frozen(self) -> bool:
        return "frozen 1" in (self._folder / "cgroup.events").read_text().splitlines()
