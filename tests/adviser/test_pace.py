"""How fast this machine is at a worker's loop is measured on a tiny job, which leaves nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mlless_nb.adviser.pace import RUNS, STEPS, loop_s
from mlless_nb.adviser.probe import probe
from mlless_nb.data.datasets import synthetic_ratings
from mlless_nb.job.job import TrainingJob
from mlless_nb.models import PMF
from mlless_nb.worker.loop import Worker


def test_the_loop_is_run_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    run = Worker.run

    def note(self: Worker) -> object:
        last = run(self)
        steps.append(last.step)
        return last

    monkeypatch.setattr(Worker, "run", note)
    assert loop_s() > 0.0
    assert steps == RUNS * [STEPS]


def test_two_at_once_do_not_meet() -> None:
    before = set(threading.enumerate())
    with ThreadPoolExecutor(2) as both:
        assert all(taken > 0.0 for taken in both.map(lambda _: loop_s(), range(2)))
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(10.0)
    assert not [thread.name for thread in left if thread.is_alive()]


@pytest.mark.parametrize(("backend", "is_measured"), [("embedded", True), ("aws_lambda", False)])
def test_it_is_measured_for_jobs_of_this_machine(backend: str, is_measured: bool) -> None:
    job = TrainingJob(PMF(rank=2), data=synthetic_ratings(40, 30, 400, seed=1), minibatch=50, backend=backend)
    assert (probe(job, 0.01).loop_s is not None) == is_measured
