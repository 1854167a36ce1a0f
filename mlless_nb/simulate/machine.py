"""The simulated machine: costs of work, network latencies, and how functions start and end."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from .shards import Link
from .stragglers import Even, Stragglers


@dataclass(frozen=True)
class Costs:
    """Processor time of each piece of work, seconds of one core; `calibrate` measures them.

    Attributes
    ----------
    step_s : float
        The worker's loop: report, budget, plan and all else that is done once a step.
    row_s, filter_value_s : float
        Gradient and optimiser, per training row; the significance filter, per value.
    evaluate_row_s : float
        Evaluation, per held-out row.
    encode_byte_s, apply_byte_s, merge_byte_s : float
        Encoding an update, applying a frame, summing frames; per byte of a frame.
    frame_s, part_s : float
        Per peer's frame that is read, and per part that is addressed, without their bytes.
    send_byte_s, receive_byte_s : float
        A function's side of its connection, per byte.
    command_s, arrival_s, report_s : float
        Redis' thread: per frame stored or read, per arrival at a round with its wake-up message, per report that is
        added to the step log.
    in_byte_s, out_byte_s : float
        Redis' side of a connection, per byte.
    look_s, read_report_s : float
        The supervisor: per pass of its loop, and per worker's report of a step.
    """

    step_s: float = 100e-6
    row_s: float = 30e-9
    filter_value_s: float = 0.6e-9
    evaluate_row_s: float = 8e-9
    encode_byte_s: float = 0.1e-9
    apply_byte_s: float = 0.1e-9
    merge_byte_s: float = 0.2e-9
    frame_s: float = 2e-6
    part_s: float = 4e-6
    send_byte_s: float = 0.1e-9
    receive_byte_s: float = 0.1e-9
    command_s: float = 2e-6
    arrival_s: float = 25e-6
    report_s: float = 1e-6
    in_byte_s: float = 0.1e-9
    out_byte_s: float = 0.1e-9
    look_s: float = 100e-6
    read_report_s: float = 10e-6


@dataclass(frozen=True)
class StartUp:
    """Seconds from the invocation until a function runs: ``base_s + each_s * number + spread_s * Exp(1)``.

    The supervisor is number 0, the worker of slot ``k`` number ``k + 1``.
    """

    base_s: float = 0.4
    each_s: float = 0.0
    spread_s: float = 0.0

    def draw(self, draws: random.Random, number: int) -> float:
        """The seconds of function ``number``."""
        spread_s = self.spread_s * draws.expovariate(1.0) if self.spread_s else 0.0
        return self.base_s + self.each_s * number + spread_s


@dataclass(frozen=True)
class Storage:
    """The object storage: latency of a request, seconds, and throughput of one function, bytes/s."""

    latency_s: float = 100e-6
    bytes_s: float = 1e9


@dataclass(frozen=True)
class Machine:
    """One machine or one cloud.

    Parameters
    ----------
    cores : int or None
        Shared by all functions and servers, as on one machine; None: every function and server has its own core.
    speed : float
        Speed of a function's own core, relative to the one on which ``costs`` were measured.
    crowding, switch_s : float
        See `SharedCores`.
    costs : Costs
    link : Link
    shards : int
        Number of Redis servers.
    storage : Storage
    start_up : StartUp
    stragglers : Stragglers
    lifetime_s : float
        Seconds from a function's start after which the platform ends it.
    is_local : bool
        Whether the functions' first grants are those of one machine, or of a cloud.
    """

    cores: int | None = None
    speed: float = 1.0
    crowding: float = 0.0
    switch_s: float = 0.0
    costs: Costs = field(default_factory=Costs)
    link: Link = field(default_factory=Link)
    shards: int = 1
    storage: Storage = field(default_factory=Storage)
    start_up: StartUp = field(default_factory=StartUp)
    stragglers: Stragglers = field(default_factory=Even)
    lifetime_s: float = 7 * 86_400.0
    is_local: bool = True


#: As `calibrate` measured them on the machine of ``benchmarks/RESULTS.md``.
MEASURED = Costs(
    step_s=163e-6,
    row_s=20.6e-9,
    filter_value_s=0.49e-9,
    evaluate_row_s=8.2e-9,
    encode_byte_s=0.074e-9,
    apply_byte_s=0.093e-9,
    merge_byte_s=0.148e-9,
    frame_s=4.5e-6,
    part_s=6.5e-6,
    send_byte_s=0.171e-9,
    receive_byte_s=0.117e-9,
    command_s=0.34e-6,
    arrival_s=65e-6,
    report_s=1e-6,
    in_byte_s=0.118e-9,
    out_byte_s=0.162e-9,
    look_s=300e-6,
    read_report_s=9e-6,
)
#: Cost of a byte when processes take turns on a core, relative to a process that has the caches to itself.
SHARED = 1.3
BYTES = ("encode_byte_s", "apply_byte_s", "merge_byte_s", "send_byte_s", "receive_byte_s", "in_byte_s", "out_byte_s")
#: That machine: two cores for all processes, Redis on a unix socket. Costs that calibration does not measure, above all
#: of taking turns, were fitted to measured step times over P with one Redis server. ``benchmarks/simulate_fit.py``
#: prints these four constants; ``docs/scale.md`` compares them with later measurements.
TWO_CORES = Machine(
    cores=2,
    crowding=0.255,
    switch_s=360e-6,
    costs=replace(MEASURED, step_s=218e-6, **{name: SHARED * getattr(MEASURED, name) for name in BYTES}),
    link=Link(15e-6),
)
#: Functions of one vCPU and servers in one region: 1 Gbit/s for a function as in the paper, 10 for a server.
CLOUD = Machine(
    costs=MEASURED,
    speed=0.7,
    link=Link(250e-6, 1.25e9, 125e6),
    storage=Storage(20e-3, 65e6),
    start_up=StartUp(0.5, 5e-3, 0.2),
    lifetime_s=900.0,
    is_local=False,
)
