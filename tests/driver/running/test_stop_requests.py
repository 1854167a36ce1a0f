"""A run heeds the request of another process to stop."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from mlless_nb.driver.running import stop_requests
from mlless_nb.errors import ServiceError


class Run:
    """Ends when it is stopped; the first time its servers do not answer."""

    id = "a"
    stops_sweep = False

    def __init__(self) -> None:
        self._over, self.n_asked = threading.Event(), 0

    def stop(self) -> None:
        self.n_asked += 1
        if self.n_asked == 1:
            raise ServiceError("redis does not answer")
        self._over.set()


@pytest.mark.parametrize(("says", "stops_sweep"), [("", False), (stop_requests.SWEEP, True)])
def test_a_run_that_could_not_be_stopped_is_asked_again(
    says: str, stops_sweep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(stop_requests, "LOOK_S", 0.001)
    run: Any = Run()
    request = stop_requests.request_of(run.id)
    request.parent.mkdir(parents=True)
    request.write_text(says)
    stop_requests.heed(run)
    assert (run.n_asked, run.stops_sweep) == (2, stops_sweep)
    assert not request.exists()


@pytest.mark.parametrize(("says", "stops_sweep"), [("", False), (stop_requests.SWEEP, True)])
def test_a_request_that_comes_in_the_last_moment_of_a_trial_stops_its_sweep(
    says: str, stops_sweep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was removed unread: the next trial began, and who had asked was told that all had ended."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    run: Any = Run()
    request = stop_requests.request_of(run.id)
    request.parent.mkdir(parents=True)
    request.write_text(says)
    run._over.set()
    assert stop_requests.asks_sweep(run) == stops_sweep  # who follows the trial may look first
    stop_requests.heed(run)
    assert (run.n_asked, stop_requests.asks_sweep(run)) == (0, stops_sweep)
    assert not request.exists()
