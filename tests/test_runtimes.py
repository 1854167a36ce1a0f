"""Functions that are forked from one interpreter are what a run's own are: processes with a session, and an end."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from runtimes import Forked, SharedRuntime

RUNNER = """
import os, sys, time
import mlless_nb.function.entry
print("nobody reads this")
open(sys.argv[2], "w").write(f"{os.getpid()} {os.getsid(0)} {os.getcwd()} {os.environ['FOR_ONE']}")
time.sleep(float(sys.argv[3]))
sys.exit(3)
"""


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    (tmp_path / "runner.py").write_text(RUNNER)
    return tmp_path / "runner.py"


def start(server: SharedRuntime | None, runner: Path, sleep_s: float) -> Forked:
    if server is None:
        pytest.skip("functions are not forked on this system")
    told = runner.with_name("told")
    process = server.Popen([server.interpreter, str(runner), "run_job", str(told), str(sleep_s)])
    assert isinstance(process, Forked)
    return process


def test_a_runner_has_a_session_and_the_environment_and_tells_its_end(
    function_server: SharedRuntime | None, runner: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOR_ONE", "run")
    monkeypatch.chdir(runner.parent)
    process = start(function_server, runner, 0.0)
    assert process.wait(60) == process.poll() == process.returncode == 3
    assert process.communicate() == (b"", b"")
    assert runner.with_name("told").read_text() == f"{process.pid} {process.pid} {runner.parent} run"


def test_a_runner_that_is_killed_says_so(
    function_server: SharedRuntime | None, runner: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOR_ONE", "run")
    process = start(function_server, runner, 600.0)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL


def test_where_the_interpreter_would_start_otherwise_it_starts(
    function_server: SharedRuntime | None, runner: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOR_ONE", "run")
    monkeypatch.setenv("MLLESS_KERNELS", "" if os.environ.get("MLLESS_KERNELS") else "generic")
    if function_server is None:
        pytest.skip("functions are not forked on this system")
    command = [function_server.interpreter, str(runner), "run_job", str(runner.with_name("told")), "0"]
    with function_server.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        assert isinstance(process, subprocess.Popen)
        assert process.wait(60) == 3
