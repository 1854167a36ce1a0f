"""The state behind the strip of workers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mlless_nb.exchange.step_report import Report
from mlless_nb.supervisor.worker_times import MOST_ENTRIES, WorkerTimes, entries

TIMES = (0.015, 0.008, 0.004)


def test_one_entry_for_each_worker() -> None:
    found = entries({0: TIMES, 1: TIMES, 2: TIMES}, {1: 40}, {1, 2}, {0: 2})
    assert found == [[0, 1, *TIMES, 0, 0, 0, 2], [1, 1, 0.0, 0.0, 0.0, 1, 40, 0, 0], [2, 1, *TIMES, 0, 0, 1, 0]]
    assert entries({}, {}, set(), {}) == []


@pytest.mark.parametrize("n_workers", [64, 65, 200, 4096])
def test_many_workers_share_entries(n_workers: int) -> None:
    found = entries(dict.fromkeys(range(n_workers), TIMES), {0: 9}, set(), {})
    assert len(found) <= MOST_ENTRIES
    assert sum(entry[1] for entry in found) == n_workers
    assert found[0][5] == 1
    assert found[-1][2:5] == list(TIMES)


def test_times_are_moving_means_and_made_once_a_second() -> None:
    workers: Any = SimpleNamespace(started={0}, ended={})
    incoming: Any = SimpleNamespace(leaving=set(), replacements={})
    times = WorkerTimes(workers, incoming)
    first = times.state({0: Report(compute_s=0.01)}, 1.0)
    assert (first["n_workers_started"], first["worker_times"][0][2]) == (1, 0.01)
    assert "worker_times" not in times.state({0: Report(compute_s=0.02)}, 1.5)
    # the first step waited for the last worker to come
    assert times.state({0: Report(compute_s=0.02)}, 2.0)["worker_times"][0][2] == pytest.approx(0.02)
    assert times.state({0: Report(compute_s=0.03)}, 3.0)["worker_times"][0][2] == pytest.approx(0.023)
    assert "worker_times" not in times.state({}, 9.0)


def test_there_are_no_entries_before_the_second_step() -> None:
    """The first step's report comes before its times are known: a second of columns without bars."""
    workers: Any = SimpleNamespace(started={0}, ended={})
    times = WorkerTimes(workers, SimpleNamespace(leaving=set(), replacements={}))  # type: ignore[arg-type]
    assert "worker_times" not in times.state({0: Report()}, 1.0)
    assert times.state({0: Report(compute_s=0.01)}, 1.1)["worker_times"][0][2] == 0.01


def test_nobody_is_shown_waiting_for_a_worker_that_has_left() -> None:
    workers: Any = SimpleNamespace(started={0, 1}, ended={})
    incoming: Any = SimpleNamespace(leaving=set(), replacements={})
    times = WorkerTimes(workers, incoming)
    for second in range(3):
        times.state({0: Report(wait_s=0.1), 1: Report(compute_s=0.1)}, float(second))
    workers.ended[1] = SimpleNamespace(step=40)
    assert times.state({0: Report(wait_s=0.0)}, 4.0)["worker_times"][0][4] == 0.0
