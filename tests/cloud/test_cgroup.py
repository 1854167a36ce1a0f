"""The limits of functions in version 2 of Linux' cgroups, as far as a machine with version 1 can show them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cloud import cgroup

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cgroups are of Linux")


@pytest.fixture
def unified(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that looks as the hierarchy of version 2 does."""
    (tmp_path / "cgroup.controllers").touch()
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize("ends_whole", [False, True])
def test_the_limits_of_version_two(unified: Path, ends_whole: bool) -> None:
    group = cgroup.made("one", 256, ends_whole=ends_whole)
    folder = unified / "one"
    share = int(100_000 * 256 / cgroup.CORE_MB)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "memory.max": str(256 << 20),
        "memory.swap.max": "0",
        "memory.oom.group": str(int(ends_whole)),
        "cpu.max": f"{share} 100000",
    }
    assert group.files() == [str(folder / "cgroup.procs")]
    (folder / "memory.peak").write_text(str(100 << 20))
    assert group.peak_mb == 100
    for n_killed in (0, 2):
        (folder / "memory.events").write_text(f"oom {n_killed}\noom_kill {n_killed}\n")
        assert group.is_out_of_memory == (ends_whole and n_killed > 0)
    assert (cgroup.made("two", 256, cores=0.5)._folders[0] / "cpu.max").read_text() == "50000 100000"


def test_a_machine_of_version_two_says_what_it_lacks(unified: Path) -> None:
    assert cgroup.why_not() == f"no {', '.join(cgroup.NEEDED)} in cgroups (version 2)"
    assert (unified / "cgroup.subtree_control").read_text() == "+memory +cpu"
    assert not [path for path in unified.iterdir() if path.is_dir()]


def test_processes_are_frozen_and_killed_in_version_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """That needs no controller: it is so, too, where version 1 has all of these."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    root = next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)
    if root is None or not os.access(root, os.W_OK):
        pytest.skip("no cgroups of version 2 that this process may write")
    monkeypatch.setattr(cgroup, "ROOT", root)
    group = cgroup._Unified(f"{cgroup.PREFIX}{os.getpid()}-frozen")
    try:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
            try:
                for path in group.files():
                    Path(path).write_text(str(process.pid))
                assert group.pids == [process.pid]
                group.freeze()
                assert group._is_frozen
                group.thaw()
                assert not group._is_frozen
                group.freeze()
                group.kill()
                assert process.wait(10) == -9
            finally:
                process.kill()
    finally:
        group.remove()
    assert not (root / f"{cgroup.PREFIX}{os.getpid()}-frozen").exists()
