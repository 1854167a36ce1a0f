"""Which processes of a group are functions, and not what has started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from mlless_nb.driver.backends import processes
from mlless_nb.driver.backends.processes import children, leaves, members

#: A process with two children, of which one has a child itself, as Lithops' runner has.
TREE = """
import os, time
if os.fork() and not os.fork():
    if not os.fork():
        os.write(1, b"%d\\n" % os.getpid())
elif os.getpid() != os.getsid(0):
    os.write(1, b"%d\\n" % os.getpid())
time.sleep(600)
"""


@pytest.mark.parametrize("has_proc", [True, False])
def test_what_has_started_others_is_no_function(has_proc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody was seen to be gone, since the processes that Lithops starts functions by outlive them."""
    if not has_proc:
        monkeypatch.setattr(processes, "_parent", processes._parent_by_ps)
    tree = subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert tree.stdout is not None
    try:
        pids = {int(tree.stdout.readline()) for _ in range(2)}
        assert len(members(tree.pid)) == 4
        assert leaves(tree.pid) == pids
        if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):  # not on every kernel
            below = [pid for child in children(tree.pid) for pid in (child, *children(child))]
            assert set(below) == members(tree.pid) - {tree.pid}
    finally:
        os.killpg(tree.pid, signal.SIGKILL)
        tree.wait()
        tree.stdout.close()


def test_a_process_that_is_gone_has_no_children() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert children(gone.pid) == []
