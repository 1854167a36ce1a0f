"""Starts and ends a sandbox: the process on the box's side of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from cloud import network
from cloud.cgroup import Cgroup


def started(machine: str, asked: dict[str, Any], log: Path) -> subprocess.Popen[bytes]:
    """A sandbox in the network namespace ``machine``, whose program has just begun.

    Parameters
    ----------
    machine : str
    asked : dict
        What `cloud.sandbox` makes of it: ``folder``, ``groups``, ``binds``, ``tmp_mb``, ``command``, ``environment``;
        and for a container ``image``, the folder of its root.
    log : Path
        For its output.
    """
    into = ["nsenter", f"--net=/run/netns/{machine}", "unshare", "--mount", "--pid", "--ipc", "--uts", "--fork"]
    began, begins = os.pipe()  # the sandbox writes when the program takes its place
    with log.open("ab") as file:
        process = subprocess.Popen(
            [*into, "--kill-child", sys.executable, "-I", str(Path(__file__).with_name("sandbox.py")), str(begins)],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[begins],
        )
    os.close(begins)
    assert process.stdin is not None
    process.stdin.write(json.dumps(asked).encode())
    process.stdin.close()
    os.read(began, 1)
    os.close(began)
    return process


def remove(machine: str, group: Cgroup, process: subprocess.Popen[bytes]) -> None:
    """End a sandbox, and remove its network and its limits."""
    group.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    network.remove_machine(machine)
    group.remove()
