"""Functions of this machine write their requests down where a kill does not take them away."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.synchronize import Semaphore
from pathlib import Path

import pytest

from mlless_nb.storage.request_tally import RequestTally, TallyEntry

N = 4


def request(path: str, number: int, done: Semaphore) -> None:
    entry = TallyEntry(path)
    for count in range(1, 101):
        entry.note(count, number)
    done.release()
    signal.pause()


def test_requests_of_killed_functions_are_counted(tmp_path: Path) -> None:
    path = tmp_path / ".requests"
    path.touch()
    tally = RequestTally(str(path))
    context = multiprocessing.get_context("fork")
    done = context.Semaphore(0)
    functions = [context.Process(target=request, args=(str(path), number, done)) for number in range(N)]
    for function in functions:
        function.start()
    for _ in functions:
        assert done.acquire(timeout=30)
    for function in functions:
        assert function.pid is not None
        os.kill(function.pid, signal.SIGKILL)
        function.join(30)
    path.unlink()
    assert tally.counts() == (100 * N, sum(range(N)))
    tally.close()
    tally.close()
    assert tally.counts() == (100 * N, sum(range(N)))


def test_a_function_that_comes_when_the_run_is_over_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TallyEntry(str(tmp_path / "run" / ".requests"))
    assert not [*tmp_path.iterdir()]
