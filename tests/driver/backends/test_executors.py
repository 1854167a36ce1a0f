"""Processes that are started by one another, e.g. those of a search with ``n_jobs=2``."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import lithops.utils
import pytest

from mlless_nb.driver.backends.executors import begin_session, is_free
from mlless_nb.stateless import nested

#: A process that has opened an executor, and then starts two others by a fork and two of its own program.
PROGRAM = """
import os, subprocess, sys
from lithops.utils import create_executor_id
from mlless_nb.driver.backends.executors import begin_session

begin_session()
print(create_executor_id(), flush=True)
if sys.argv[1] == "parent":
    for _ in range(2):
        subprocess.run([sys.executable, "-P", "-c", os.environ["PROGRAM"], "child"], check=True)
        if not (child := os.fork()):
            begin_session()
            print(create_executor_id(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    begin_session()
    print(create_executor_id())
"""


def test_executors_of_processes_that_one_process_has_started_have_ids_of_their_own() -> None:
    env = {**os.environ, "PROGRAM": PROGRAM}
    command = [sys.executable, "-P", "-c", PROGRAM, "parent"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=True)
    ids = done.stdout.split()
    assert len(set(ids)) == 6, ids


def test_an_executor_has_an_id_of_its_own_though_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lithops.utils, "_SESSION_ID", None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    ids = []
    for session in ("", "another", ""):
        before = dict(os.environ)
        begin_session()
        ids.append(lithops.utils.create_executor_id())
        os.environ.update(before, **({nested.SESSION: session} if session else {}))
    assert len(set(ids)) == 3, ids


def test_lithops_may_add_a_process_while_those_of_an_executor_are_looked_at() -> None:
    jobs: dict[str, Any] = {}

    class Ended:
        pid = 2**22 + 1  # of no process

        def poll(self) -> int:
            jobs[f"another {len(jobs)}"] = Ended()
            return 0

    jobs.update(first=Ended(), second=Ended())
    assert is_free(SimpleNamespace(compute_handler=SimpleNamespace(env=SimpleNamespace(jobs=jobs))))
    assert len(jobs) == 4
