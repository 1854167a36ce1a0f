"""Plays one case: trains its job undisturbed and disturbed, follows every fault, and checks what comes out."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pika
import pytest
import redis
from chaos.cases import Case
from chaos.faults import FAULTS
from chaos.scene import PATIENCE_S, Followed, Scene, Servers, from_step, left_on_disk
from engine.jobs import digest, finish
from engine.test_faults import eventually, is_gone

import mlless_nb
from mlless_nb.driver.backends.launcher import LithopsLauncher
from mlless_nb.driver.launch import invocations
from mlless_nb.driver.recovery.early_ends import EarlyEnds
from mlless_nb.driver.running import contact
from mlless_nb.driver.running.update_feed import LAST_MISSING

#: Lease of the functions, seconds: short, so that those that are found by it are found soon.
LEASE_S = 3.0
#: What Redis answers for the time to live of a key that does not expire.
FOR_EVER = -1
#: By how much the loss may differ, where bits are not promised, from that of the nearest of so many undisturbed runs:
#: with two of eight workers left out of each step, losses of undisturbed runs lie 3 % apart.
MOST_OFF, UNDISTURBED = 0.02, 9


@dataclasses.dataclass
class Outcome:
    """How a case went: ``wrong`` says what was not as it must be."""

    case: Case
    followed: list[Followed]
    seconds: float
    wrong: list[str]


@contextlib.contextmanager
def circumstances(case: Case) -> Iterator[None]:
    """The leases and eyes that the case's functions and driver have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(invocations, "LEASE_S", LEASE_S)
        patch.setattr(contact, "SILENCE_S", contact.SILENCE_S * LEASE_S / 15.0)
        if case.by_lease:
            patch.setattr(LithopsLauncher, "has_died", lambda *_: False)
            patch.setattr(EarlyEnds, "look", lambda *_: [])
        yield


def play(case: Case, servers: Servers, say: Callable[[str], None] = print) -> Outcome:
    """Train the job of ``case`` under its faults; each fault is said in one line."""
    began = time.monotonic()
    plain = finish(case.job())
    wrong = [] if plain.status == "finished" else [f"undisturbed: {plain.status}: {plain.reason}"]
    say(f"case {case.number}: {case}; {case.steps} steps, checkpoint every {case.checkpoint_every}")
    with circumstances(case):
        run = mlless_nb.train(case.job(**_places(case, servers)))
        scene = Scene(case, run, servers, LEASE_S)
        followed = [*_disturb(scene, say)]
        if run.wait(PATIENCE_S) == "finished":
            wrong += _compare(scene, plain)
        else:
            wrong.append("hung" if scene.is_live else f"{run.status}: {run.reason}")
            if scene.is_live:
                run.stop()
                run.wait(30.0)
        wrong += leftovers(scene)
    events = [event.text for event in run.telemetry.state.events]
    outcome = Outcome(case, followed, time.monotonic() - began, wrong)
    say(f"   {'WRONG: ' + '; '.join(wrong) if wrong else 'as undisturbed'}, {outcome.seconds:.1f} s")
    if wrong:
        say("   " + "\n   ".join(events))
    return outcome


def _places(case: Case, servers: Servers) -> dict[str, Any]:
    """The servers of a job, as its fields."""
    places: dict[str, Any] = {}
    if case.place in ("redis", "redis+rabbitmq"):
        assert servers.redis is not None
        places["redis"] = servers.redis.url
    if case.place == "redis+rabbitmq":
        assert servers.rabbit is not None
        assert servers.relay is not None
        places["bus"] = servers.rabbit.url.replace(f":{servers.rabbit.port}/", f":{servers.relay.port}/")
    return places


def _disturb(scene: Scene, say: Callable[[str], None]) -> Iterator[Followed]:
    """Do the case's faults one after the other, each when the run is further than after the one before."""
    case, run = scene.case, scene.run
    starts = sorted(scene.rng.sample(range(case.steps // 20, int(case.steps * 0.85)), len(case.faults)))
    for kind, start in zip(case.faults, starts, strict=True):
        if not scene.until(lambda start=start: scene.step >= start):  # type: ignore[misc]
            return
        n_told, step, now = len(run.telemetry.state.events), scene.step, time.monotonic()
        scene.hit.clear()
        scene.reached = 0
        scene.note_reached()
        one = Followed(kind, kind, step, now - scene.began)
        try:
            one.what = FAULTS[kind](scene)
        except (redis.RedisError, OSError) as error:
            one.what = f"{kind} ({type(error).__name__})"
        except (AttributeError, IndexError):  # the driver is about to end, and has closed what it had
            scene.run.wait(PATIENCE_S)
            if scene.is_live:
                raise
            return
        _follow(scene, one, n_told, step)
        say("   " + one.line(LEASE_S))
        yield one


def _follow(scene: Scene, one: Followed, n_told: int, step: int) -> None:
    """Wait until what was hit is replaced and the run is further than before."""
    began, waiting, mended_at = time.monotonic(), dict(scene.hit), list[int]()

    def is_mended() -> bool:
        now, at_work = time.monotonic(), scene.processes()
        for slot in {*waiting} & {*scene.leavers()}:
            del waiting[slot]  # a worker that leaves is not replaced
        for slot, (process, hit_at) in list(waiting.items()):
            if at_work.get(slot, process) != process:
                one.replaced_s[slot] = now - hit_at
                del waiting[slot]
        if waiting:
            return False
        mended_at.append(max(scene.step, step))
        # What is told of the time before a restart may come after it.
        return scene.step > mended_at[0] and (scene.published or scene.step) >= scene.step

    is_further = scene.until(is_mended)
    one.away_s = time.monotonic() - began
    told = [event.text for event in scene.run.telemetry.state.events[n_told:]]
    one.recomputed = max((reached - begun for begun, reached in _restarts(told, scene.reached)), default=0)
    one.recomputed = max(one.recomputed, 0)  # steps may have been complete after the look
    ended = f"{scene.run.status}" if not scene.is_live else "no further"
    news = [text for text in told if re.search(r"lost|replaced|training goes on|handed over|restarted", text)]
    one.outcome = ("; ".join(news) or "went on") if is_further else f"{ended}; {'; '.join(news)}"


def _restarts(told: list[str], step: int) -> Iterator[tuple[int, int]]:
    """From which step the run went on, and which it had reached: ``step``, or a later one that was told."""
    for text in told:
        for begun in from_step([text]):
            reached = re.search(r"at step (\d+)", text)
            yield begun, max(int(reached[1]) - 1 if reached else 0, step)


def _compare(scene: Scene, plain: mlless_nb.TrainingRun) -> list[str]:
    """What differs between a disturbed and an undisturbed run."""
    case, run = scene.case, scene.run
    wrong = []
    steps = run.history["step"].tolist()
    if case.is_exact:
        if digest(run) != digest(plain):
            wrong.append(f"the model has other bits: {digest(run)[:12]} instead of {digest(plain)[:12]}")
    elif _is_off(loss_of(run), [loss_of(plain)]):
        losses = [loss_of(plain), *(loss_of(finish(case.job())) for _ in range(UNDISTURBED - 1))]
        if _is_off(loss_of(run), losses):
            wrong.append(f"loss {loss_of(run):.5f} instead of {min(losses):.5f} to {max(losses):.5f}")
    # The reports of steps that a server has lost before anybody has read them are lost; it is told.
    is_told = scene.has_lost and any(LAST_MISSING in event.text for event in run.telemetry.state.events)
    n_steps = len(steps) if is_told else case.steps
    if steps != list(range(1, n_steps + 1)):
        missing = sorted(set(range(1, case.steps + 1)) - {int(step) for step in steps})
        wrong.append(f"{len(steps)} rows for {case.steps} steps, missing {missing[:5]}")
    return wrong


def _is_off(loss: float, undisturbed: list[float]) -> bool:
    """Whether ``loss`` is further than `MOST_OFF` from those of undisturbed runs."""
    nearest = min(max(loss, min(undisturbed)), max(undisturbed))
    return not abs(loss / nearest - 1.0) <= MOST_OFF


def loss_of(run: mlless_nb.TrainingRun) -> float:
    """The lowest validation loss of a run: that of its model."""
    losses = run.history["validation_loss"]
    return float(np.min(losses[np.isfinite(losses)]))


def leftovers(scene: Scene) -> list[str]:
    """What a run has left behind that has ended."""
    found = []
    if not eventually(lambda: all(is_gone(group) for group in scene.groups)):
        found.append(f"processes left: {[group for group in scene.groups if not is_gone(group)]}")
    if not eventually(lambda: not left_on_disk(scene.traces)):
        found.append(f"files left: {left_on_disk(scene.traces)}")
    servers, case = scene.servers, scene.case
    if case.place in ("redis", "redis+rabbitmq"):
        assert servers.redis is not None
        client = redis.Redis.from_url(servers.redis.url)
        # A server that comes back with the data of a run that has ended keeps them until they expire, maybe right now.
        keys = [key for key in client.keys("*") if not scene.has_past or client.pttl(key) == FOR_EVER]
        if scene.has_past:
            client.flushall()
        if keys:
            found.append(f"keys left: {keys[:5]}")
    if case.place == "redis+rabbitmq":
        found += _queues(scene)
    if case.place == "s3":
        keys = scene.services.launcher.objects.list(f"runs/{scene.run.id}/")
        if keys:
            found.append(f"objects left: {keys[:5]}")
    if not scene.run.telemetry.state.events[-1].text.endswith("Everything is shut down"):
        found.append(f"the last line is: {scene.run.telemetry.state.events[-1].text}")
    return found


def _queues(scene: Scene) -> list[str]:
    """The run's queues on the broker."""
    assert scene.servers.rabbit is not None
    found = []
    for topic in ("supervisor", "driver"):
        connection = pika.BlockingConnection(pika.URLParameters(scene.servers.rabbit.url))
        try:
            connection.channel().queue_declare(f"mlless.{scene.run.id}.{topic}", passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            continue
        finally:
            with contextlib.suppress(pika.exceptions.AMQPError):
                connection.close()
        found.append(f"queue left: {topic}")
    return found
