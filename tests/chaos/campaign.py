"""The chaos campaign, `make chaos`: not among the tests, since it takes half an hour. It writes docs/reliability.md.

``MLLESS_CHAOS=seed:jobs:faults:kills`` chooses another seed, numbers of jobs, of faults in each, and of single kills;
``MLLESS_CHAOS_CASE=3,14`` only some of the jobs. Then nothing is written. ``MLLESS_CHAOS_RESUME=1`` goes on after an
interruption (``build/chaos`` has what was done). The last test fails if a gate is missed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos import report
from chaos.cases import DEFAULT, Case, draw
from chaos.faults import pause_redis
from chaos.gates import Gate, gates
from chaos.runner import Outcome, leftovers, play
from chaos.scene import PATIENCE_S, Followed, Scene, Servers, name_of
from engine.jobs import digest, finish, job
from servers import RedisProcess

import mlless_nb
from mlless_nb import ISP, Stop

CHOSEN = os.environ.get("MLLESS_CHAOS", DEFAULT)
SEED, N_JOBS, N_FAULTS, N_KILLS = map(int, CHOSEN.split(":"))
ONLY = os.environ.get("MLLESS_CHAOS_CASE")
KILLED = "runs after `kill -9` of one process at a random moment that finished with the bits of an undisturbed one"
PAUSED = "runs with Redis stopped for 1, 3, 10 and 30 s that did"
PAUSES_S = (1.0, 3.0, 10.0, 30.0)
STEPS = 400
STEADY = {"sync": ISP(0.7), "stop": Stop(steps=STEPS), "checkpoint_every": 30}
#: Whether this is the campaign that the report tells of.
IS_WHOLE = not ONLY and "MLLESS_CHAOS" not in os.environ
SINGLE = Case(0, "", "PMF", "default", "ISP", 4, "embedded", "broadcast", False, False, False, ())


class Done:
    """What the campaign has done so far, also before it was interrupted."""

    def __init__(self, folder: Path, *, is_resumed: bool) -> None:
        self.outcomes: list[Outcome] = []
        self.trials: dict[str, dict[str, bool]] = {KILLED: {}, PAUSED: {}}
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{SEED}-{N_FAULTS}.jsonl"
        if not is_resumed:
            self._path.unlink(missing_ok=True)
        drawn = draw(SEED, N_JOBS, N_FAULTS)
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            one = json.loads(line)
            if "trial" in one:
                self.trials[one["trial"]][one["key"]] = one["is_right"]
            else:
                followed = [Followed(**fault) for fault in one["followed"]]
                self.outcomes.append(Outcome(drawn[one["case"]], followed, one["seconds"], one["wrong"]))

    @property
    def singles(self) -> list[report.Trials]:
        """The trials of one fault each."""
        return [report.Trials(what, len(found), sum(found.values())) for what, found in self.trials.items() if found]

    @property
    def promises(self) -> list[Gate]:
        """What the campaign has to show."""
        n_faults = sum(len(outcome.followed) for outcome in self.outcomes) + sum(one.n for one in self.singles)
        n_wrong = sum(bool(outcome.wrong) for outcome in self.outcomes) + sum(
            one.n - one.n_right for one in self.singles
        )
        return gates(self.outcomes, n_faults, n_wrong, is_whole=IS_WHOLE)

    def skip(self, trial: str, key: str) -> None:
        """Skip what has been done, and went as it must."""
        if self.trials[trial].get(key):
            pytest.skip("done before the interruption")

    def note(self, trial: str, key: str, is_right: bool) -> None:
        """Write down how a trial went."""
        self.trials[trial][key] = is_right
        self._append({"trial": trial, "key": key, "is_right": is_right})

    def add(self, outcome: Outcome) -> None:
        """Write down how a case went."""
        self.outcomes.append(outcome)
        followed = [dataclasses.asdict(one) for one in outcome.followed]
        number, seconds = outcome.case.number, outcome.seconds
        self._append({"case": number, "followed": followed, "seconds": seconds, "wrong": outcome.wrong})

    def _append(self, line: dict[str, Any]) -> None:
        with open(self._path, "a") as file:
            file.write(json.dumps(line) + "\n")


@pytest.fixture(scope="session")
def done() -> Iterator[Done]:
    """Collects what is done, and writes the report."""
    done = Done(report.ROOT / "build/chaos", is_resumed="MLLESS_CHAOS_RESUME" in os.environ)
    yield done
    text = report.report(SEED, done.outcomes, done.singles, done.promises)
    print("\n" + text)
    if IS_WHOLE:
        report.write(text, done.outcomes)


def cases() -> list[Case]:
    """Those of the campaign."""
    drawn = draw(SEED, N_JOBS, N_FAULTS)
    return [drawn[int(number)] for number in ONLY.split(",")] if ONLY else drawn


@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case.number))
def test_case(case: Case, servers: Callable[[str], Servers], done: Done) -> None:
    if case.number in (outcome.case.number for outcome in done.outcomes):
        pytest.skip("done before the interruption")
    outcome = play(case, servers(case.place))
    done.add(outcome)
    assert not outcome.wrong, outcome.wrong


@pytest.fixture(scope="session")
def undisturbed() -> str:
    """Digest of the model of the steady job."""
    return digest(finish(job(**STEADY)))


def everybody(scene: Scene) -> dict[str, int]:
    """The processes of a run by name, as far as they are there yet."""
    found: dict[str, int] = {}
    with contextlib.suppress(Exception):  # not all are there at every moment, and none once the run has ended
        found["the watchdog"] = scene.services.embedded._finalizer.peek()[2][0].pid
        found |= {f"Lithops' runner {i}": group for i, group in enumerate(scene.services.launcher.process_groups)}
        found["the private Redis"] = scene.redis_process()
        found |= {name_of(slot): process for slot, process in scene.processes().items()}
    return found


@pytest.mark.parametrize("number", range(0 if ONLY else N_KILLS))
def test_one_process_is_killed_at_a_random_moment(number: int, undisturbed: str, done: Done) -> None:
    done.skip(KILLED, str(number))
    rng = random.Random(f"{SEED}.{number}")
    start, found = rng.randrange(-STEPS // 8, STEPS * 3 // 4), dict[str, int]()
    while not found:  # a quick run may have ended before anybody could be killed
        run = mlless_nb.train(job(**STEADY))
        scene = Scene(SINGLE, run, Servers(), 15.0)
        if start < 0:  # while the functions start
            moment = time.monotonic() + rng.uniform(0.0, 1.0)
            scene.until(lambda: time.monotonic() >= moment)  # noqa: B023
        else:
            scene.until(lambda: scene.step >= start)  # noqa: B023
        found = everybody(scene)
        if not found:
            assert run.wait(PATIENCE_S) == "finished"
            start //= 2
    done.note(KILLED, str(number), False)
    victim, step = rng.choice(sorted(found)), scene.step
    with contextlib.suppress(ProcessLookupError):
        os.kill(found[victim], signal.SIGKILL)
    status = run.wait(PATIENCE_S)
    events = [event.text for event in run.telemetry.state.events]
    print(f"   kill {number}: {victim} at step {step} -> {status}: {run.reason}")
    assert status == "finished", (run.reason, events)
    assert digest(run) == undisturbed, events
    assert leftovers(scene) == []
    done.note(KILLED, str(number), True)


@pytest.mark.parametrize("pause_s", () if ONLY else PAUSES_S)
def test_redis_is_stopped(pause_s: float, own_redis: RedisProcess, undisturbed: str, done: Done) -> None:
    done.skip(PAUSED, str(pause_s))
    done.note(PAUSED, str(pause_s), False)
    run = mlless_nb.train(job(redis=own_redis.url, **STEADY))
    scene = Scene(SINGLE, run, Servers(own_redis), 15.0)
    assert scene.until(lambda: scene.step >= 50)
    print(f"   {pause_redis(scene, pause_s)} at step {scene.step}")
    assert run.wait(PATIENCE_S) == "finished", run.reason
    assert digest(run) == undisturbed
    assert leftovers(scene) == []
    done.note(PAUSED, str(pause_s), True)


def test_the_gates_are_kept(done: Done) -> None:
    missed = [str(gate) for gate in done.promises if not gate.is_kept]
    assert not missed, "\n".join(missed)
