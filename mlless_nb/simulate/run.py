"""The simulated run of a job: the driver's work, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bus.messages import Command, Ended, Invocation, Left, Message, Update
from ..data.prepare import Manifest
from ..data.read_plan import most_gets
from ..driver.launch.data_preparation import JobData
from ..driver.launch.invocations import invocations_of
from ..errors import JobError
from ..exchange.pattern import scatter_from
from ..exchange.stores import REDIS, shown
from ..job.execution import WORKERS
from ..job.job import TrainingJob
from ..job.partitioning import exchanged_bytes, growth
from ..money import Cost, Rates, price_profile
from ..money.cost import cut
from ..money.meter import NUSD, to_nusd
from ..money.start import StartingMoney
from ..storage import checkpoint, run_objects
from ..telemetry.live import Event, History
from ..telemetry.record import to_array
from .coordinator import SimulatedCoordinator
from .cores import Cores, OwnCore, SharedCores
from .functions import Function, World
from .hub import SimulatedHub
from .machine import TWO_CORES, Machine
from .shards import Shard
from .timeline import Timeline
from .workload import Workload


@dataclass(frozen=True)
class Traffic:
    """The Redis servers' load: frames stored and read, bytes in and out, processor time of each server, seconds."""

    n_kept: int
    n_read: int
    bytes_in: float
    bytes_out: float
    server_s: tuple[float, ...]


@dataclass(frozen=True)
class SimulatedRun:
    """The result of a simulated run.

    Attributes
    ----------
    status, reason : str
        As in a real run.
    history : History
    cost : Cost
        At the prices of the job's profile.
    time_s : float
        Virtual seconds from the invocation to the final message.
    events : tuple of Event
        The supervisor's events.
    decisions : tuple of dict
        The auto-tuner's decisions with their numbers; see `mlless_nb.supervisor.policy.decision.Decision`.
    departures : tuple of (int, int)
        (slot, last step) of the workers that left before the end, in the order of steps.
    traffic : Traffic
    params : float32 (n_rows, width) or None
        The model, if the arithmetic was computed.
    """

    status: str
    reason: str
    history: History
    cost: Cost
    time_s: float
    events: tuple[Event, ...]
    decisions: tuple[dict[str, Any], ...]
    departures: tuple[tuple[int, int], ...]
    traffic: Traffic
    params: NDArray[np.float32] | None = None

    @property
    def step_s(self) -> float:
        """Median duration of a step, seconds, without the first third (at most ten steps); NaN with too few steps."""
        steps = np.diff(self.history["time_s"])
        steps = steps[min(10, self.history.n_steps // 3) :]
        return float(np.median(steps)) if len(steps) else float("nan")


def simulate(
    job: TrainingJob | Workload,
    machine: Machine = TWO_CORES,
    seed: int = 0,
    *,
    commands: Iterable[tuple[float, Command]] = (),
) -> SimulatedRun:
    """Run ``job`` on a virtual clock, with the loops of the real workers and the real supervisor.

    Parameters
    ----------
    job : TrainingJob or Workload
        A job is really trained (its arithmetic takes real time, so use small models and at most some dozens of
        workers); a workload follows its curve.
    machine : Machine
    seed : int
        Of all random draws: start-up, stragglers, noise. Equal arguments give equal runs.
    commands : iterable of (float, Command)
        The user's commands with their times, virtual seconds.

    Raises
    ------
    JobError
        The job cannot be simulated, or the budget does not cover the start.
    """
    return _Simulation(job, machine, seed).run(commands)


class _Simulation:
    def __init__(self, job: TrainingJob | Workload, machine: Machine, seed: int) -> None:
        if machine.shards < 1:
            raise JobError("machine.shards", machine.shards, "an integer >= 1")
        if job.sync.averages == "paper":
            raise JobError("sync", job.sync, "ISP with averages=True or False: the paper's formula is not simulated")
        if job.sync.policy == "shared-model":
            raise JobError("sync", job.sync, "ASP(): no shared model is simulated")
        if isinstance(job, TrainingJob) and job.execution != WORKERS:
            raise JobError("execution", job.execution, f"{WORKERS!r}: only runs of workers can be simulated")
        if job.store != REDIS:
            raise JobError("store", shown(job.store), f"{REDIS!r}: no other store is simulated")
        if job.pattern == "allreduce" and isinstance(job, Workload):
            raise JobError("pattern", job.pattern, "another one: no leader of a workload is simulated")
        self._job, self._machine, self._seed = job, machine, seed
        self._timeline = Timeline()
        shared = None
        if machine.cores is not None:
            shared = SharedCores(self._timeline, machine.cores, machine.crowding, machine.switch_s)
        self._shared = shared
        self._cores: Cores = shared or OwnCore(self._timeline, machine.speed)
        self._shards = [Shard(self._timeline, machine.link, shared) for _ in range(machine.shards)]
        self._hub = SimulatedHub(self._timeline, machine, self._shards)
        self._world = World(self._timeline, machine, self._hub, job if isinstance(job, Workload) else None)
        self._running: set[str] = set()
        self._start_key: str | None = None  # of the first parameters, if they depend on the rows

    def run(self, commands: Iterable[tuple[float, Command]]) -> SimulatedRun:
        functions = [Function(self._world, self._cores, invocation, self._ended) for invocation in self._invocations()]
        draws = random.Random(f"start {self._seed}")
        for number, function in enumerate(functions):
            self._running.add(function.role)
            self._timeline.at(self._machine.start_up.draw(draws, number), function.process.start)
        for at_s, command in commands:
            self._timeline.at(at_s, self._world.topics.send, "supervisor", command.encode())
        self._share()
        self._timeline.run()
        for function in functions:
            function.process.kill()
        return self._outcome(functions)

    def _ended(self, function: Function) -> None:
        self._running.discard(function.role)
        self._share()
        if not self._running:
            self._timeline.stop()

    def _share(self) -> None:
        if self._shared is not None:
            # Servers run while workers wait, so only the workers compete for the cores.
            self._shared.share(len(self._running) - ("supervisor" in self._running))

    # -- the functions' invocations

    def _invocations(self) -> list[Invocation]:
        manifest, validation = self._data()
        job, machine = self._job, self._machine
        n_workers = job.workers
        rates = Rates(price_profile(job.prices), job.memory_mb, machine.shards)
        held_out_gets = 0
        if validation is not None:
            n_bytes = validation.n_minibatches * validation.minibatch_bytes
            held_out_gets = most_gets(validation.n_minibatches, n_bytes, n_workers)
        money = StartingMoney(rates, n_workers, machine.is_local, held_out_gets, self._start_key is not None)
        spent_before = rates.requests_nusd(18, 2)
        least = money.least_nusd(spent_before)
        cap = to_nusd(job.cap_usd) if job.cap_usd is not None else None
        if cap is not None and cap < least:
            raise JobError("budget", job.cap_usd, f"at least {least / NUSD:g} (US dollars)")
        driver = SimulatedCoordinator(self._hub)
        driver.create(cap_nusd=cap, reserved_nusd=least)
        driver.renew("driver", float("inf"))
        return invocations_of(
            job,
            manifest,
            validation,
            money,
            job_id="simulated",
            generation="1",
            scatter_from=self._scatter_from(manifest),
            has_leader=job.pattern == "allreduce",
            seed=job.seed if isinstance(job, TrainingJob) else self._seed,
            n_cores=int(machine.cores or 0),
            redis_urls=["simulated"] * machine.shards,
            bus_url="simulated",
            insecure=False,
            has_broker=False,
            launched_at_s=0.0,
            spent_before_nusd=spent_before,
            lifetime_s=machine.lifetime_s,
            start_key=self._start_key,
        )

    def _data(self) -> tuple[Manifest, Manifest | None]:
        job = self._job
        if isinstance(job, Workload):
            held_out = job.manifest(job.n_held_out, "held-out") if job.n_held_out else None
            return job.manifest(job.n, "train"), held_out
        data, objects = JobData(job), self._world.objects
        self._job = data.job  # with a learning rate and a penalty
        if data.start is not None:
            self._start_key = run_objects.start_key("simulated")
            objects.put(self._start_key, checkpoint.Progress(data.start).encode())
        packed = data.pack(objects, lambda: False)
        assert packed is not None  # it was not told to stop
        return packed

    def _scatter_from(self, manifest: Manifest) -> int:
        job, link = self._job, self._machine.link
        how = job.pattern if job.sync.is_complete else "broadcast"
        n_bytes, power = (0, 0), 1.0  # a workload names its pattern
        if isinstance(job, TrainingJob):
            n_bytes = exchanged_bytes(job, manifest)
            if self._machine.cores is None:  # a run on one machine does not take it into account
                power = growth(job, manifest)
        measured = 2 * link.latency_s, min(link.server_bytes_s, 3e9)
        return scatter_from(how, job.workers, *n_bytes, *measured, growth=power)

    # -- the result

    def _outcome(self, functions: Sequence[Function]) -> SimulatedRun:
        rows: list[list[float | None]] = []
        events: list[Event] = []
        decisions: list[dict[str, Any]] = []
        ended: Ended | None = None
        for body in self._world.topics.messages["driver"]:
            message = Message.decode(body)
            if isinstance(message, Update):
                rows += message.rows
                decisions += message.decisions
                events += [Event(time_s, text) for time_s, text in message.sentences]
            elif isinstance(message, Ended):
                ended = message
        left = [function.last for function in functions if isinstance(function.last, Left)]
        departures = sorted((last.step, last.slot) for last in left if last.status == "left")
        hub, shards = self._hub, self._shards
        traffic = Traffic(
            hub.n_kept,
            hub.n_read,
            sum(shard.bytes_in for shard in shards),
            sum(shard.bytes_out for shard in shards),
            tuple(shard.cpu_s for shard in shards),
        )
        ended = ended or self._final_message(functions)
        return SimulatedRun(
            ended.status,
            ended.reason,
            History(to_array(rows)),
            Cost.of_nusd(cut(ended.costs_nusd, ended.most_nusd, "workers")),
            ended.time_s,
            tuple(events),
            tuple(decisions),
            tuple((slot, step) for step, slot in departures),
            traffic,
            self._params(ended),
        )

    def _final_message(self, functions: Sequence[Function]) -> Ended:
        """The final message if the supervisor sent none; the bill is the sum over the functions."""
        supervisor, *workers = functions
        plan, now = self._hub.plan, self._timeline.now
        status, reason = self._hub.aborted or (plan.stop_status or "failed", plan.stop_reason)
        rates = supervisor.rates
        costs = {
            "workers": sum(worker.function_nusd for worker in workers),
            "supervisor": supervisor.function_nusd,
            "redis": rates.servers_nusd(now),
            "storage": supervisor.invocation.spent_before_nusd + sum(one.storage_nusd for one in functions),
        }
        return Ended(status, reason or "every function ended without a last word", 0, None, None, costs, now)

    def _params(self, ended: Ended) -> NDArray[np.float32] | None:
        blob = self._world.objects.blobs.get(ended.model_key or "")
        return checkpoint.decode(blob)[0] if blob is not None else None
