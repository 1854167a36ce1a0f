"""A driver and its watchdog are killed together, so that nobody cleans up; another process' run goes on beside.

And what a run leaves that was not killed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from engine.jobs import PATIENCE_S, finish, job
from folders import paths_below

import mlless_nb
from mlless_nb import Stop
from mlless_nb.driver import leftovers, spending
from mlless_nb.driver.backends import lithops_paths
from mlless_nb.driver.backends.processes import all_processes
from mlless_nb.driver.cleaning import survey
from mlless_nb.driver.leftovers import Leftover
from mlless_nb.driver.servers.places import Places, all_places

#: A run under a session's budget; says when it has taken a step, and how many when asked.
CELL = """
import sys
sys.path.insert(0, {tests!r})
import mlless_nb
from engine.jobs import job, wait_for_step
from mlless_nb import Stop
mlless_nb.session({session!r}, budget=0.5)
run = mlless_nb.train(job(stop=Stop(steps=10**6), redis={redis!r}, name={name!r}))
wait_for_step(run, 5)
print(run.id, flush=True)
for line in sys.stdin:
    wait_for_step(run, run.telemetry.state.step + 5)
    print(run.status, flush=True)
run.stop()
run.wait()
print(run.status, run.reason, flush=True)
"""


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data directory of its own for each test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(spending, "_in_force", {})
    monkeypatch.setattr(leftovers, "BASES", ())  # not those of this machine's other runs


class Notebook:
    """A process with one live run."""

    def __init__(self, name: str, redis_url: str | None) -> None:
        code = CELL.format(tests=str(Path(__file__).parents[1]), session=name, name=name, redis=redis_url)
        arguments = [sys.executable, "-c", code]
        # Lithops gives processes with one session the same ids; notebooks are started apart.
        env = {name: value for name, value in os.environ.items() if name != "__LITHOPS_SESSION_ID"}
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.run_id = self.line()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self) -> str:
        """Wait until the run has taken more steps; returns its status."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.line()

    @property
    def watchdogs(self) -> list[int]:
        """The shells that would clean up after it."""
        return [
            each.pid
            for each in all_processes()
            if re.search(r" mlless-watchdog /\S+", each.command) and is_child(each.pid, self.process.pid)
        ]


def is_child(pid: int, parent: int) -> bool:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == parent
    except OSError:
        return False


@pytest.fixture(params=["embedded", "redis"])
def notebooks(request: pytest.FixtureRequest) -> Iterator[tuple[Notebook, Notebook, str | None]]:
    """Two notebooks, and the server of both if they have none of their own."""
    url = request.getfixturevalue("redis_url") if request.param == "redis" else None
    both = [Notebook("killed", url), Notebook("alive", url)]
    yield both[0], both[1], url
    for each in both:
        each.process.kill()
        each.process.wait()
    mlless_nb.clean()  # a test that failed leaves nothing to the next one


def places_of(run_id: str) -> Places | None:
    return next((places for places in all_places() if places.run_id == run_id), None)


def functions_of(places: Places) -> list[int]:
    return [each.pid for each in all_processes() if f"/{places.executor}-" in each.command]


@pytest.mark.long
def test_all_of_it_goes_and_nothing_of_the_live_run(notebooks: tuple[Notebook, Notebook, str | None]) -> None:
    killed, alive, url = notebooks
    places, others = places_of(killed.run_id), places_of(alive.run_id)
    assert places is not None
    assert others is not None
    assert {run.name: run.state for run in survey().runs} == {"killed": "running", "alive": "running"}
    assert survey().left == []
    assert killed.watchdogs
    for pid in [*killed.watchdogs, killed.process.pid]:
        os.kill(pid, signal.SIGKILL)
    killed.process.wait(PATIENCE_S)
    found = wait_until_killed(killed.run_id)
    (folder,) = survey().others
    assert folder.what.startswith("private Redis" if url is None else "watchdog")
    whats = " ".join(each.what for each in found)
    assert "objects" in whats or "temporary file" in whats
    if url is not None:  # a private Redis dies with its watchdog, and then functions end by themselves
        assert re.search(r"\d+ process.* \d+ keys", whats)

    cleaned = mlless_nb.clean()
    assert cleaned.left == [], cleaned
    assert cleaned.settled == [killed.run_id]
    assert functions_of(places) == []
    names = (f"{places.executor}-", killed.run_id)
    assert [path for path in paths_below(Path(places.folder)) if any(name in path.name for name in names)] == []
    if url is not None:
        assert redis.Redis.from_url(url).keys(f"mlless:{{{killed.run_id}}}:*") == []
        assert redis.Redis.from_url(url).keys(f"mlless:{{{alive.run_id}}}:*")
    assert [(run.name, run.state) for run in survey().runs] == [("alive", "running")]
    assert survey().left == []
    assert mlless_nb.clean().removed == []
    assert mlless_nb.attach("killed").status == "failed"
    assert 0 < mlless_nb.session("killed").spent <= 0.5

    assert alive.ask() == "running"
    assert functions_of(others)
    assert alive.process.stdin is not None
    alive.process.stdin.close()
    assert alive.line().startswith("stopped")
    assert alive.process.wait(PATIENCE_S) == 0
    assert survey().runs == []


def wait_until_killed(run_id: str) -> list[Leftover]:
    """What the killed run has left, once it counts as killed."""
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        found = survey()
        run = next(run for run in found.runs if run.run_id == run_id)
        if run.state == "killed":
            return found.left
        time.sleep(0.02)
    raise AssertionError("the process is still there")


@pytest.mark.long
def test_what_is_left_at_the_end_of_a_run_is_counted_and_told_and_found_by_clean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = finish(job(stop=Stop(steps=3), workers=1))
    assert set(whole.left) == {"processes", "keys", "queues", "objects", "files"}
    assert set(whole.left.values()) == {0}
    assert whole.telemetry.state.events[-1].text.endswith(". Everything is shut down")
    with monkeypatch.context() as patched:
        patched.setattr(lithops_paths, "remove", lambda paths: None)
        run = finish(job(stop=Stop(steps=3), workers=1))
    n_files = run.left["files"]
    assert n_files > 1
    assert run.left == whole.left | {"files": n_files}
    said = f"All functions are shut down; {n_files} temporary files are left: %mlless clean removes them"
    assert run.telemetry.state.events[-1].text.endswith(f". {said}")
    assert f"{n_files} temporary files" in run.report()
    assert [(each.run_id, each.state) for each in survey().runs] == [(run.id, "ended")]
    assert mlless_nb.attach(run.id).left == run.left  # from its record
    cleaned = mlless_nb.clean()
    assert (len(cleaned.removed), cleaned.left, survey().runs) == (1, [], [])
