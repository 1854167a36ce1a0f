"""Functions in virtual time: the same actions, in the same order, as `mlless_nb.function` around a worker's loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..bus.messages import Invocation, Message
from ..data.minibatches import Minibatch
from ..data.prepare import Manifest
from ..money import Rates, price_profile
from ..money.budget import BUY_AHEAD_S, Prepaid
from ..money.grant_watch import LAST_CALL_S
from ..storage.objects import MemoryObjects
from ..supervisor.loop import Supervisor
from ..worker.loop import Worker
from ..worker.replica import Replica
from .coordinator import SimulatedCoordinator
from .cores import Cores
from .events import Process
from .hub import SimulatedHub
from .machine import Machine
from .replicas import CostedReplica, CurveReplica
from .services import SimulatedBus, SimulatedFeed, SimulatedObjects, Topics
from .timeline import Timeline
from .workload import Workload

#: Longest time that a waiting function without a cap buys at once, seconds.
LONGEST_SLICE_S = 30.0


class World:
    """The state that the functions of one run share.

    Parameters
    ----------
    timeline : Timeline
    machine : Machine
    hub : SimulatedHub
    workload : Workload or None
        None if the arithmetic is really computed.
    """

    def __init__(self, timeline: Timeline, machine: Machine, hub: SimulatedHub, workload: Workload | None) -> None:
        self.timeline, self.machine, self.hub, self.workload = timeline, machine, hub, workload
        self.topics = Topics(timeline)
        self.objects = MemoryObjects()
        self.decoded: dict[str, Minibatch] = {}


class Function:
    """One invocation, from its start to its end.

    Parameters
    ----------
    world : World
    cores : Cores
    invocation : Invocation
    on_end : callable
        Called once it has ended, for any reason.
    """

    def __init__(self, world: World, cores: Cores, invocation: Invocation, on_end: Callable[[Function], None]) -> None:
        self._world, self.invocation = world, invocation
        self.process = Process(world.timeline, cores, self._body, lambda process: self._end(on_end))
        self.role = "supervisor" if invocation.role == "supervisor" else str(invocation.slot)
        self.log = SimulatedCoordinator(world.hub, self.process, f"invocation of {invocation.slot}")
        self.objects = SimulatedObjects(world.objects, self.process, world.machine, world.workload)
        self.prepaid = self._prepaid()
        self._slice_s = 0.1
        #: The last message; None while the function runs, and if it was killed.
        self.last: Message | None = None
        #: Its bill once it has ended, nano-dollars: the function, and its requests to the storage.
        self.function_nusd = self.storage_nusd = 0

    @property
    def rates(self) -> Rates:
        """The function's prices."""
        job = self.invocation
        return Rates(price_profile(job.prices), job.memory_mb, len(job.redis_urls), job.has_broker)

    def _prepaid(self) -> Prepaid:
        invocation, timeline, rates = self.invocation, self._world.timeline, self.rates
        is_supervisor = invocation.role == "supervisor"
        margin_nusd = rates.outliving_nusd if is_supervisor else 0
        return Prepaid(
            rates,
            invocation.granted_nusd - invocation.end_margin_nusd - margin_nusd,
            lambda: timeline.now - invocation.launched_at_s,
            lambda: rates.requests_nusd(self.objects.gets, self.objects.puts),
            with_servers=is_supervisor,
            n_functions=invocation.n_workers + 1,
            margin_nusd=margin_nusd,
        )

    def _body(self, process: Process) -> None:
        world, invocation, prepaid = self._world, self.invocation, self.prepaid
        self.log.claim(invocation.slot)
        world.hub.leases[self.role] = float("inf")  # its own thread renews it as long as the function lives
        prepaid.learn(*self.log.money())
        prepaid.buy(0.0, self.log.reserve)
        self._watch()
        world.timeline.after(world.machine.lifetime_s, process.kill)
        bus = SimulatedBus(world.topics, process, world.machine)
        arguments = (invocation, self.log, bus, self.objects, prepaid)
        if invocation.role == "supervisor":
            self.last = Supervisor(*arguments, clock=process.clock).run()
        else:
            worker = Worker(
                *arguments,
                clock=process.clock,
                cpu_clock=process.clock,
                make_replica=self._replica,
                make_feed=self._feed,
                in_background=False,
            )
            self.last = worker.run()
            self.log.refund(prepaid.granted_nusd - prepaid.spent_nusd, invocation.slot)
        prepaid.end()

    def _end(self, on_end: Callable[[Function], None]) -> None:
        now = self._world.timeline.now
        self._world.hub.leases[self.role] = now + self.invocation.lease_s
        self.function_nusd = self.rates.function_nusd(now - self.invocation.launched_at_s)
        self.storage_nusd = self.prepaid.storage_nusd
        on_end(self)

    def _watch(self, was_called: bool = False) -> None:
        """Buy running time as the prepaid budget's watch does; if the cap forbids it, end the function in time."""
        timeline, prepaid, hub = self._world.timeline, self.prepaid, self._world.hub
        if not self.process.is_alive or self.last is not None:
            return
        prepaid.learn(*self.log.money())
        prepaid.return_surplus(lambda nusd, part: self.log.refund(nusd, self.invocation.slot, part))
        if prepaid.left_s <= 0 and not prepaid.hold_out(self.log.reserve, is_late=True):
            timeline.after(0.0, self.process.kill)
            return
        if hub.cap is None and prepaid.left_s <= BUY_AHEAD_S:
            # Without a cap, large purchases do no harm, and mean fewer events for functions that wait for minutes.
            self._slice_s = min(2.0 * self._slice_s, LONGEST_SLICE_S)
            prepaid.buy(self._slice_s, self.log.reserve)
        if prepaid.left_s <= BUY_AHEAD_S and not was_called:
            is_refused = not prepaid.hold_out(self.log.reserve)
            if is_refused and prepaid.left_s <= LAST_CALL_S:
                was_called = True
                who = f"worker {self.role}" if self.invocation.role == "worker" else "the supervisor"
                self.log.abort(f"the budget was used up before {who} could end", self.invocation.n_workers, "capped")
        left_s = prepaid.left_s
        pause_s = left_s if was_called else left_s - BUY_AHEAD_S
        if hub.cap is not None:
            pause_s = min(pause_s, BUY_AHEAD_S)  # what is bought in excess is returned soon
        timeline.after(max(pause_s, 0.01), self._watch, was_called)

    def _replica(self, invocation: Invocation, manifest: Manifest) -> Any:
        workload = self._world.workload
        inner = Replica(invocation, manifest) if workload is None else CurveReplica(invocation, manifest, workload)
        kernel_s = workload.kernel_s if workload is not None else None
        return CostedReplica(inner, invocation, self.process, self._world.machine, kernel_s)

    def _feed(self, objects: Any, manifest: Manifest) -> Any:
        return SimulatedFeed(objects, manifest, self._world.decoded)
