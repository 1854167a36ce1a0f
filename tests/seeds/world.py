"""One simulated run: the real driver, supervisor and workers, on simulated servers and a simulated platform."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import random
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from mlless_nb import CommandError
from mlless_nb.bus import recorded
from mlless_nb.bus.messages import Invocation, Message
from mlless_nb.driver import driver
from mlless_nb.driver.backends import exits
from mlless_nb.driver.ending import remains, substitute_supervisor, teardown
from mlless_nb.driver.launch import invocations
from mlless_nb.driver.launch.allowance import Allowance
from mlless_nb.driver.recovery import early_ends, leaving_workers, recovery
from mlless_nb.driver.running import attending, commands, contact
from mlless_nb.exchange import MemoryHub, in_parts, memory
from mlless_nb.function import entry, second_start, start_deadline, succession
from mlless_nb.money import budget, grant_watch, questions
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.supervisor import loop as supervisor_loop
from mlless_nb.supervisor import outage
from mlless_nb.worker import attempts, checkpoints, final_model
from mlless_nb.worker import loop as worker_loop

from .clock import Clock, Condition, Process, Threading, Time, current
from .platform import Feed, Record, Services, Tracker, packed
from .scenario import SLOW, Fault, Scenario
from .servers import Network, SimBus, SimCoordinator, SimObjects, Topics, Witness

assert substitute_supervisor  # imported before the defaults are replaced

#: Virtual seconds after which a run counts as hanging: leases and the longest wait in the package for each fault.
PATIENCE_S = 1500.0
#: Virtual seconds for functions to end after their run: the longest wait of one that nobody answers.
AFTER_S = 400.0
#: What a function may spend beyond its grant: a quarter of a second of it, and one second of the servers.
OVERRUN_NUSD = 0.25 * 30_000 + 60_000
_MISSING = re.compile(r"Steps? (\d+)(?: to (\d+))? (?:is|are) missing in the history(?:, (\d+) steps so far)?: ")
UNPAID = "does not pay for a successor of"
_MISSING_IN_ALL = re.compile(r"(\d+) steps in all are missing in the history: ")


class World:
    """The run of one scenario.

    Attributes
    ----------
    clock : Clock
    trace : list of str
        What happened, if it is traced.
    """

    def __init__(self, scenario: Scenario, *, traces: bool = False) -> None:
        self.scenario, self.clock = scenario, Clock()
        self.draws = random.Random(f"draws {scenario.seed}")
        self.trace: list[str] = []
        self._traces = traces
        self.network = Network(self.clock, self.draws, scenario.latency_s, scenario.repeats)
        self.network.on_request, self.network.on_done = self._on_request, self._on_done
        self.hub = MemoryHub(changed=Condition(self.clock), kept_steps=scenario.kept_steps)  # type: ignore[arg-type]
        self.plan, self.status, self.reason = self.hub.plan, "", ""
        can_overrun = any(fault.kind in ("pause", "away") for fault in scenario.faults)
        self.witness = Witness(self.hub, math.inf if can_overrun else OVERRUN_NUSD)
        self.topics = Topics(self.clock, self.draws, scenario.keeps_messages, 3 * scenario.latency_s)
        self.record = Topics(self.clock, self.draws, True, 0.0)  # of what a broker has delivered
        self.objects = MemoryObjects()
        self.objects.blobs.update(packed(scenario.problem))
        self.before = set(self.objects.blobs)
        self.processes: list[Process] = []
        self.invocations: dict[Process, Invocation] = {}
        self.began_s: dict[Process, float] = {}
        self.lived_s = 0.0  # of all functions that have ended, but for those that started after the driver's end
        self.late_s: list[float] = []  # of each of the latter
        self.over_s = math.inf  # when the driver ended
        self.counts: dict[tuple[str, str], int] = {}
        self._fails_until = 0.0
        self._pids = 100
        self.driver_process = Process(self.clock, "driver", 1, lambda process: None)
        self.run: Any = None
        self.outlived = 0  # functions that lived longer than the driver
        at_starts = ("slow start", "never starts", "duplicate")
        self._pending = [fault for fault in scenario.faults if fault.kind in at_starts]
        self._killing = [fault for fault in scenario.faults if fault.kind == "kill at"]

    # -- what happens

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        if self._traces:
            self.trace.append(f"{self.clock.now:10.4f}  {text}")

    def _on_request(self, process: Process, name: str, arguments: tuple[Any, ...]) -> str:
        if not self._killing or process not in self.invocations:
            return ""
        slot = self.invocations[process].slot
        for fault in self._killing:
            if fault.slot == slot and fault.request in (name, name.removesuffix("_and_poll")):
                key = (str(slot), fault.request)
                self.counts[key] = self.counts.get(key, 0) + 1
                if self.counts[key] == fault.nth:
                    self._killing.remove(fault)
                    self.note(f"FAULT {process.name} dies at {name} number {fault.nth}, after={fault.after}")
                    return "after" if fault.after else "before"
        return ""

    def _on_done(self, process: Process, name: str, arguments: tuple[Any, ...], answer: Any) -> None:
        if not self.hub.is_lost:
            self.plan = self.hub.plan
        if self._traces and name not in ("now_s", "money", "renew"):
            self.note(f"{process.name}: {name}{_short(arguments)} -> {_short(answer)}")

    def storage_fails(self) -> bool:
        """Whether a request to the object storage fails now."""
        return self.clock.now < self._fails_until and self.draws.random() < 0.7

    def is_silent(self, _url: str, _key: str, within_s: float) -> bool:
        """See `mlless_nb.exchange.redis.client`."""
        self.clock.sleep(min(max(self.network.away_until - self.clock.now, 0.0), within_s))
        return self.clock.now < self.network.away_until

    # -- the platform

    def invoke(self, payload: str) -> None:
        """Start a function in a while, or whatever the faults make of it."""
        invocation = Message.decode(payload)
        assert isinstance(invocation, Invocation)
        if self.scenario.is_local and invocation.invoked_s and not invocation.is_successor:
            self.witness.replacing.add(succession.unused_by(invocation))
        copies, start_s = 1, self.scenario.start_s * (0.7 + 0.6 * self.draws.random())
        for fault in self._pending:
            if fault.slot == invocation.slot:
                self._pending.remove(fault)
                self.note(f"FAULT {fault}")
                if fault.kind == "slow start":
                    start_s += fault.span_s
                elif fault.kind == "duplicate":
                    copies = 2
                elif not self.scenario.is_local:
                    return  # the platform has lost it
                break
        for copy in range(copies):
            self._pids += 1
            name = f"{'s' if invocation.slot < 0 else invocation.slot}.{self._pids}"
            process = Process(self.clock, name, self._pids, self._ended)
            self.processes.append(process)
            self.invocations[process] = invocation
            self.clock.at(self.clock.now + start_s * (1 + copy), self._begin, process, payload)
        self.note(f"invoked {name} (grant {invocation.granted_nusd}, successor={invocation.is_successor})")

    def _begin(self, process: Process, payload: str) -> None:
        if not process.is_alive:
            return
        self.note(f"{process.name} starts")
        self.began_s[process] = self.clock.now
        process.spawn(lambda: self._function(payload), is_main=True)
        self.clock.at(self.clock.now + self.scenario.lifetime_s, process.kill)

    def _function(self, payload: str) -> None:
        objects = SimObjects(self.objects, self.network, self.storage_fails, self.scenario.storage_s)
        said = entry._run(Message.decode(payload), objects)
        self.note(f"{current().process.name} returned {said[:150]}")

    def _ended(self, process: Process) -> None:
        began_s = self.began_s.get(process, self.clock.now)
        if began_s > self.over_s:
            self.late_s.append(self.clock.now - began_s)
        else:
            self.lived_s += self.clock.now - began_s
        self.note(f"{process.name} ended, {process.error!r}" if process.error else f"{process.name} ended")

    @property
    def living(self) -> list[Process]:
        """The functions that have not ended."""
        return [process for process in self.processes if process.is_alive]

    def open_log(self, nonce: str) -> SimCoordinator:
        """A coordinator for one process."""
        return SimCoordinator(self.hub, self.network, self.witness, nonce)

    # -- faults

    def inflict(self, fault: Fault) -> None:
        """Let ``fault`` happen now."""
        if self.driver_process.is_alive is False:
            return
        self.note(f"FAULT {fault}")
        found = [process for process in self.living if self.invocations[process].slot == fault.slot]
        if fault.kind == "kill":
            for process in found[:1]:
                process.kill()
        elif fault.kind == "kill all":
            for process in self.living:
                process.kill()
        elif fault.kind == "pause":
            for process in found[:1]:
                process.freeze(fault.span_s)
        elif fault.kind in ("emptied", "restarted"):
            if not self.hub.is_lost:
                self.hub.lose()
            self.record.lose()
            if self.scenario.keeps_messages:
                self.topics.lose()
            if fault.kind == "restarted":
                self.hub.identity += "'"
        elif fault.kind == "away":
            self.network.away_until = max(self.network.away_until, self.clock.now + fault.span_s)
        elif fault.kind == "storage fails":
            self._fails_until = self.clock.now + min(fault.span_s, 2.0)
        elif fault.kind in ("part lost", "part damaged"):
            parts = sorted(key for key in self.objects.blobs if "/checkpoint-" in key)
            if parts:
                key = parts[self.draws.randrange(len(parts))]
                blob = self.objects.blobs.pop(key)
                if fault.kind == "part damaged":
                    self.objects.blobs[key] = blob[: len(blob) // 2]

    def command(self, what: str, number: float) -> None:
        """A command of the user, at the driver's process."""
        run = self.run
        self.note(f"COMMAND {what} {number:.2f}")
        with contextlib.suppress(CommandError):
            if what == "stop":
                run.stop()
            elif what == "remove":
                run.scale_in(worker_id=int(number * self.scenario.problem.workers))
            else:
                run.budget = max(run.telemetry.state.committed_usd * (1.05 + number), 1e-6)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 160 else text[:157] + "..."


@contextlib.contextmanager
def installed(world: World) -> Iterator[None]:
    """Let the package's code use the world's clock, threads and servers."""
    clock, scenario = world.clock, world.scenario
    seconds, threads = Time(clock), Threading(clock)
    system = SimpleNamespace(
        getpid=lambda: current().process.pid, environ={}, _exit=lambda code: current().process.die()
    )
    draws = random.Random(f"steps {scenario.seed}")
    with contextlib.ExitStack() as stack:

        def put(where: Any, **what: Any) -> None:
            for name, value in what.items():
                stack.enter_context(mock.patch.object(where, name, value))

        of_workers = memory, in_parts, attempts, final_model, succession
        of_driver = driver, attending, contact, early_ends, exits, leaving_workers, recovery, teardown, commands
        for module in (*of_workers, *of_driver, outage):
            put(module, time=seconds)
        put(remains, keys_left=lambda *_: None, time=seconds)
        put(budget, time=seconds, threading=threads)
        put(questions, threading=threads)
        put(grant_watch, threading=threads, os=system)
        put(start_deadline, time=seconds, threading=threads, is_silent=world.is_silent)
        put(entry, StartDeadline=functools.partial(start_deadline.StartDeadline, end=system._exit))
        put(checkpoints, threading=threads)
        put(entry, time=seconds, threading=threads, os=system, keep_memory=lambda: None)
        put(entry, billed_s=lambda: math.inf)  # the age of this process is none of a function's
        put(
            entry,
            LithopsObjects=lambda storage: storage,
            open_coordinator=lambda urls, job_id, generation, nonce, *_: world.open_log(nonce),
            open_patiently=lambda *_: SimBus(world.topics, world.network),
        )
        put(recorded, open_bus=lambda *_, **__: SimBus(world.record, world.network))
        put(second_start, open_bus=lambda *_, **__: SimBus(world.topics, world.network))
        for module in (invocations, teardown):
            put(module, LEASE_S=scenario.lease_s)
        put(driver, Services=lambda job, run_id: Services(world), Record=Record, Tracker=Tracker)
        put(
            Feed,
            step_s=staticmethod(lambda: scenario.step_s * (0.5 + draws.random() if draws.random() < 0.97 else SLOW)),
        )
        clocks = {"clock": seconds.monotonic}
        for function, more in (
            (worker_loop.Worker.__init__, {"cpu_clock": seconds.monotonic, "make_feed": Feed}),
            (supervisor_loop.Supervisor.__init__, {}),
            (budget.Prepaid.__init__, {}),
        ):
            stack.enter_context(mock.patch.dict(function.__kwdefaults__, clocks | more))
        yield


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a simulated run went.

    Attributes
    ----------
    params : bytes or None
        Those of the model, and of the last model.
    rows : list of int
        The steps of its rows.
    virtual_s : float
    n_events : int
    tells_of_gap : bool
        Whether an event says that the last rows may be missing.
    is_unpaid : bool
        Whether one says that the budget did not pay for a function's successor.
    told_missing : list of int
        Steps before the last row that are missing, as events say.
    n_told_missing : int
        How many are missing, as the last one of these events says.
    billed_s : float
        Seconds of functions that the bill is for.
    """

    status: str
    reason: str
    plan: Any
    params: bytes | None
    rows: list[int]
    virtual_s: float
    n_events: int
    told: list[str]
    last_step: int = 0
    tells_of_gap: bool = False
    is_unpaid: bool = False
    told_missing: list[int] = dataclasses.field(default_factory=list)
    n_told_missing: int = 0
    billed_s: float = 0.0


def _told_missing(events: list[str]) -> tuple[list[int], int]:
    """Steps that the history lacks, and how many it lacks in all, as events say."""
    told: list[int] = []
    n_told = 0
    for text in events:
        if found := _MISSING.match(text):
            told += range(int(found[1]), int(found[2] or found[1]) + 1)
            n_told = int(found[3] or len(told))
        elif found := _MISSING_IN_ALL.match(text):
            n_told = int(found[1])
    return told, n_told


def simulate(world: World) -> Outcome:
    """Run the world's scenario to its end, and check all that does not need another run."""
    scenario, clock = world.scenario, world.clock
    job = scenario.problem.job()
    ended: list[Any] = []
    with installed(world):
        made = driver.Driver("run", "run", ended.append, Allowance(job, None))
        if scenario.room_s is not None:
            rates = made._plan.rates
            usd_s = rates.run_usd_s(job.n_functions)
            cap = made._plan.least_nusd / 1e9 * 1.02 + scenario.room_s * usd_s
            job = scenario.problem.job(budget=cap)
            made = driver.Driver("run", "run", ended.append, Allowance(job, None))
        world.run = made.run
        world.driver_process.spawn(made.drive, is_main=True)
        for fault in scenario.faults:
            if fault not in world._pending and fault not in world._killing:
                clock.at(fault.at_s, world.inflict, fault)
        for at_s, what, number in scenario.commands:
            clock.at(at_s, world.driver_process.spawn, functools.partial(world.command, what, number))
        clock.run(lambda: not world.driver_process.is_alive, PATIENCE_S)
        if world.driver_process.error is not None:
            raise world.driver_process.error
        world.over_s, world.outlived = clock.now, len(world.living)
        world.note(f"DRIVER ended: {made.run.status}: {made.run.reason}")
        world.network.away_until = 0.0
        clock.run(lambda: not world.living, clock.now + AFTER_S + 60.0)
    rows = [int(step) for step in made.run.history["step"]]
    params = None
    if made.run._model is not None:
        tables = [table for model in (made.run.model, made.run.last_model) for table in model.params.values()]
        params = b"".join(np.ascontiguousarray(table).tobytes() for table in tables)
    told = [f"{event.time_s:.3f} {event.text}" for event in made.run.telemetry.state.events] if world._traces else []
    return Outcome(
        made.run.status,
        made.run.reason,
        world.plan,
        params,
        rows,
        world.over_s,
        clock.n_events,
        told,
        made.run.telemetry.state.step,
        any("missing in its history" in event.text for event in made.run.telemetry.state.events),
        any(UNPAID in event.text for event in made.run.telemetry.state.events),
        *_told_missing([event.text for event in made.run.telemetry.state.events]),
        (made.run.cost.workers + made.run.cost.supervisor) / made._plan.rates.function_usd_s,
    )
