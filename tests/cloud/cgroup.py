"""Limits of a function's processes all together: memory, share of the processors, and whether they run at all."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
#: Controllers of version 1, each a hierarchy of its own.
CONTROLLERS = ("memory", "cpu", "freezer")
#: Microseconds in which a share of the processors is counted.
PERIOD_US = 100_000
#: AWS Lambda: a whole core for so much memory, MB.
CORE_MB = 1769
#: Longest wait for processes to be frozen or gone, seconds.
WAIT_S = 5.0


def why_not() -> str | None:
    """Why this machine has no such limits; None if it has."""
    missing = [name for name in CONTROLLERS if not os.access(ROOT / name, os.W_OK)]
    return f"no writable cgroups (version 1) for {', '.join(missing)} in {ROOT}" if missing else None


def sweep() -> None:
    """Remove what boxes of processes that are gone have left."""
    for controller in CONTROLLERS:
        for left in (ROOT / controller).glob("mlless-box-*"):
            if not Path(f"/proc/{left.name.split('-')[2]}").exists():
                with contextlib.suppress(OSError):
                    left.rmdir()


class Cgroup:
    """One function's, or one pod's: as many ``cores`` as Kubernetes is asked for, else what AWS Lambda gives."""

    def __init__(self, name: str, memory_mb: int, cores: float | None = None) -> None:
        self._folders = {controller: ROOT / controller / name for controller in CONTROLLERS}
        for folder in self._folders.values():
            folder.mkdir(parents=True)
        self._set("memory", "memory.limit_in_bytes", memory_mb << 20)
        with contextlib.suppress(OSError):  # a kernel without accounting of swap
            self._set("memory", "memory.memsw.limit_in_bytes", memory_mb << 20)
        self._set("cpu", "cpu.cfs_period_us", PERIOD_US)
        share = memory_mb / CORE_MB if cores is None else cores
        self._set("cpu", "cpu.cfs_quota_us", max(int(PERIOD_US * share), 1000))

    def _set(self, controller: str, name: str, value: object) -> None:
        (self._folders[controller] / name).write_text(str(value))

    def files(self) -> list[str]:
        """What a process writes its number into to join."""
        return [str(folder / "cgroup.procs") for folder in self._folders.values()]

    @property
    def peak_mb(self) -> float:
        return int((self._folders["memory"] / "memory.max_usage_in_bytes").read_text()) / 2**20

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in (self._folders["freezer"] / "cgroup.procs").read_text().split()]

    def freeze(self) -> None:
        """Stop all processes where they are, as AWS does between two invocations."""
        state = self._folders["freezer"] / "freezer.state"
        state.write_text("FROZEN")
        give_up_at = time.monotonic() + WAIT_S
        while state.read_text().strip() != "FROZEN" and time.monotonic() < give_up_at:
            time.sleep(0.001)

    def thaw(self) -> None:
        self._set("freezer", "freezer.state", "THAWED")

    def remove(self) -> None:
        """Remove it, once its processes are gone."""
        for folder in self._folders.values():
            give_up_at = time.monotonic() + WAIT_S
            while folder.exists() and time.monotonic() < give_up_at:
                try:
                    folder.rmdir()
                except OSError:
                    time.sleep(0.01)
