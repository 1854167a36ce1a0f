"""A live run with its servers, as the faults see it: who works for it, how far it is, what it has told."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from chaos.cases import SYNCS, Case
from servers import RabbitProcess, RedisProcess, Relay

import mlless_nb
from mlless_nb.exchange import SUPERVISOR
from mlless_nb.exchange.protocol import key_prefix
from mlless_nb.storage.conditional import exchange_folder

#: Seconds after which a run that gets no further counts as hung.
PATIENCE_S = 240.0
#: Faults by which a Redis loses data.
LOSES = {
    "Redis emptied",
    "Redis restarted empty",
    "Redis restarted from an older file",
    "private Redis killed",
    "watchdog killed",
}
POLL_S = 0.02


@dataclass
class Servers:
    """The servers that are there to be broken; None where the test has none."""

    redis: RedisProcess | None = None
    rabbit: RabbitProcess | None = None
    relay: Relay | None = None
    throttle: Callable[[float], None] | None = None


@dataclass
class Followed:
    """One fault and what followed.

    ``replaced_s``: seconds until functions were at work in all the slots that were hit; None if none was hit.
    ``recomputed``: steps that were taken again. ``away_s``: seconds until the run was further than before.
    """

    kind: str
    what: str
    step: int
    at_s: float
    replaced_s: dict[int, float] = field(default_factory=dict)
    recomputed: int = 0
    away_s: float = 0.0
    outcome: str = ""

    def line(self, lease_s: float) -> str:
        """One line that tells it."""
        told = [f"{slot}: {s:.2f} s = {s / lease_s:.2f} leases" for slot, s in sorted(self.replaced_s.items())]
        parts = [f"t={self.at_s:6.2f} s  step {self.step:5d}  {self.what}"]
        parts += [f"replaced {'; '.join(told)}"] if told else []
        parts += [f"{self.recomputed} steps again"] if self.recomputed else []
        return " -> ".join([*parts, self.outcome])


class Scene:
    """One disturbed run.

    Parameters
    ----------
    case : Case
    run : TrainingRun
    servers : Servers
    lease_s : float
        Lease of its functions.
    """

    def __init__(self, case: Case, run: mlless_nb.TrainingRun, servers: Servers, lease_s: float) -> None:
        self.case, self.run, self.servers, self.lease_s = case, run, servers, lease_s
        self.rng = random.Random(case.seed)
        self.began = time.monotonic()
        self.services = run._send.__self__._services  # type: ignore[union-attr]
        self.groups: set[int] = set()
        self.traces: set[str] = set()
        self.hit: dict[int, tuple[int, float]] = {}  # slot -> process, and when it was hit
        self.reached = 0  # the newest step that was complete when something was hit, see `note_reached`
        self.has_past = False  # whether Redis was restarted with older data, maybe those of a run that has ended
        launcher = self.services.launcher
        self._shutting, self._is_shut = threading.Lock(), False
        self._shut, launcher.close = launcher.close, self._end
        self.note()

    def _end(self) -> None:
        with self._shutting:
            self._is_shut = True
            self._shut()

    @contextlib.contextmanager
    def before_the_end(self) -> Iterator[None]:
        """Keep the driver from shutting its functions down meanwhile: it never does while it invokes one itself.

        Raises `ConnectionError` if it has done so.
        """
        with self._shutting:
            if self._is_shut:
                raise ConnectionError("the run has ended")
            yield

    @property
    def driver(self) -> Any:
        """The driver of the run."""
        return self.run._send.__self__  # type: ignore[union-attr]

    @property
    def is_live(self) -> bool:
        """Whether the run has not ended."""
        return self.run.telemetry.state.is_live

    @property
    def has_lost(self) -> bool:
        """Whether a fault of this run lets a server lose its data."""
        return not LOSES.isdisjoint(self.case.faults)

    @property
    def step(self) -> int:
        """The step that the run is known to have done."""
        return int(self.run.telemetry.state.step)

    def note(self) -> None:
        """Write down what the run has on this machine, for the time after it."""
        with contextlib.suppress(Exception):  # it ends meanwhile
            launcher = self.services.launcher
            self.groups.update(launcher.process_groups)
            self.traces.update([*launcher.temporary_paths, launcher.folder_of(f"runs/{self.run.id}")])
            if self.services._watchdog is not None:
                self.traces.add(str(self.services._watchdog.folder))

    def until(self, condition: Callable[[], bool], within_s: float = PATIENCE_S) -> bool:
        """Wait for ``condition`` while the run is live; whether it came true."""
        give_up_at = time.monotonic() + within_s
        while self.is_live and time.monotonic() < give_up_at:
            with contextlib.suppress(Exception):  # a server is away
                if condition():
                    return True
            self.note()
            time.sleep(POLL_S)
        return False

    @property
    def published(self) -> int | None:
        """The newest step of which there is an update since the newest restart; None if that cannot be seen.

        What is told of a run is behind that, or, after a restart, ahead of it.
        """
        with contextlib.suppress(Exception):  # a server is away
            if self.case.place not in ("storage", "s3"):
                with self.redis() as client:
                    return int(client.hget(f"{key_prefix(self.run.id)}job", "latest") or 0)
            number, folder = self.services.log.restart().number, exchange_folder(self.run.id)
            named = re.compile(rf"{folder}(\d+)/{f'{number}-' if number else ''}(\d+)[a-z]?-\1(-\d+)?")
            found = map(named.fullmatch, self.services.launcher.objects.list(folder))
            return max((int(one[2]) for one in found if one), default=None)
        return None

    def note_reached(self) -> None:
        """Write down the newest complete step."""
        # Whoever has published an update has seen the step before complete, or one so many steps before.
        before = 1 + SYNCS[self.case.sync].staleness
        self.reached = max(self.reached, self.step, (self.published or 0) - before)

    # -- functions

    def processes(self) -> dict[int, int]:
        """The processes of the functions at work, by slot; -1 is the supervisor."""
        slots = [SUPERVISOR, *range(self.case.workers)]
        return {slot: int(nonce.partition("-")[0]) for slot, nonce in self.services.log.at_work(slots).items()}

    def leavers(self) -> set[int]:
        """The workers that have left or leave."""
        return set(self.services.log.read_plan().leaves)

    def choose(self, n: int, *, among: str = "workers") -> list[tuple[int, int]]:
        """``n`` functions at work, as (slot, process)."""
        found: dict[int, int] = {}

        def look() -> bool:
            found.clear()
            found.update(self.processes())
            return any((slot >= 0) == (among == "workers") for slot in found) or among == "all"

        if not self.until(look, 30.0):
            return []
        slots = [slot for slot in sorted(found) if among == "all" or (slot >= 0) == (among == "workers")]
        return [(slot, found[slot]) for slot in self.rng.sample(slots, min(n, len(slots)))]

    def kill(self, victims: list[tuple[int, int]]) -> str:
        """Kill -9 the functions; returns who they were."""
        for slot, process in victims:
            self.signal(slot, process, signal.SIGKILL)
        return ", ".join(name_of(slot) for slot, _ in victims)

    def signal(self, slot: int, process: int, number: signal.Signals) -> None:
        """Send a signal to the function of ``slot``."""
        if number in (signal.SIGKILL, signal.SIGSTOP):
            self.hit[slot] = process, time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
        self.note_reached()

    # -- servers

    @contextlib.contextmanager
    def redis(self) -> Iterator[redis.Redis]:
        """A client of the run's Redis."""
        client = redis.Redis.from_url(self.services.redis_urls[0], socket_timeout=5)
        try:
            yield client
        finally:
            client.close()

    def redis_process(self) -> int:
        """The process of the run's Redis."""
        with self.redis() as client:
            return int(client.info("server")["process_id"])

    # -- objects

    def parts(self) -> list[str]:
        """The keys of the parts of checkpoints, the newest last."""
        return list(self.services.launcher.objects.list(f"runs/{self.run.id}/checkpoint-"))

    def payload(self, slot: int) -> str:
        """What the function of ``slot`` was invoked with."""
        invocation = self.driver._fault_handler._recovery._of_slot[slot]
        assert json.loads(invocation.encode())
        return str(invocation.encode().decode())


def name_of(slot: int) -> str:
    """A function in words."""
    return "the supervisor" if slot == SUPERVISOR else f"worker {slot}"


def from_step(texts: list[str]) -> list[int]:
    """The steps from which the run went on, by its events."""
    found = []
    for text in texts:
        _, _, rest = text.partition("training goes on from ")
        if rest:
            found.append(0 if rest.startswith("the start") else int(rest.split()[1].strip(".,;")))
    return found


def left_on_disk(paths: set[str]) -> list[str]:
    """Which of ``paths`` are there."""
    return [path for path in paths if Path(path).exists()]
