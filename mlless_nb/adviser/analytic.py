"""LambdaML's analytic model of time and cost: pure functions of a job's sizes, of the workers and of the place.

LambdaML, section 5.3, with w workers, s bytes of data, m bytes of an update::

    functions:  t_F(w) + s / B_S3 + rounds * ((3w - 2) * (m/w / B + L) + C)
    VMs:        t_I(w) + s / B_S3 + rounds * ((2w - 2) * (m/w / B + L) + C)

C is here the computation of one round by one worker, and the rounds are those of the job, so that every algorithm fits.
Exchange over Redis follows our own patterns, as `mlless_nb.exchange.pattern` models them: one server with all bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..exchange.pattern import broadcast_s, choose_pattern, scatter_reduce_s
from ..money import Rates
from ..money.meter import NUSD
from . import run_requests
from .constants import VM, Constants, Link
from .sizes import Sizes

#: A VM is billed by the second, at least this many seconds.
LEAST_VM_S = 60.0


@dataclass(frozen=True)
class Option:
    """One way to run a job, and what it would take.

    Attributes
    ----------
    kind : {"functions", "vm", "cluster", "what-if"}
    place : str
        E.g. "Redis", "object storage", "c5.large".
    workers : int
    start_s, compute_s, exchange_s : float
        Seconds: until training begins, and of the two parts of training.
    usd : float
        US dollars.
    limit : str
        Why it cannot be done, "" if it can.
    """

    kind: str
    place: str
    workers: int
    start_s: float
    compute_s: float
    exchange_s: float
    usd: float
    limit: str = ""

    @property
    def time_s(self) -> float:
        """Seconds from the start of the run to its end."""
        return self.start_s + self.compute_s + self.exchange_s


def exchange_s(store: str, n_workers: int, sizes: Sizes, link: Link) -> float:
    """Seconds of one round's exchange between functions over ``store``."""
    w, m = n_workers, sizes.update_bytes
    if w == 1:
        return 0.0
    if store == "redis":
        planned = sizes.planned_bytes or m
        pattern = choose_pattern(w, planned, sizes.table_bytes, link.latency_s, link.bytes_s, sizes.growth)
        if pattern == "broadcast":
            return broadcast_s(w, m, link.latency_s, link.bytes_s)
        return scatter_reduce_s(w, m, sizes.table_bytes, link.latency_s, link.bytes_s, sizes.growth)
    if store == "server":  # it keeps frames: each update is read by all peers
        return broadcast_s(w, m, link.latency_s, link.bytes_s)
    return (3 * w - 2) * (m / w / link.bytes_s + link.latency_s)


def storage_requests(n_workers: int) -> tuple[int, int]:
    """Reads and writes of one round of scatter-reduce through an object storage, of all workers together.

    Without a Redis each worker also reads the plan, and one of them writes the step log and raises the plan's step.
    """
    w = n_workers
    return 2 * w * (w - 1) + w, w * (w - 1) + w + 2


def functions(
    store: str, n_workers: int, sizes: Sizes, rates: Rates, known: Constants, *, speed: float, link: Link | None = None
) -> Option:
    """``n_workers`` functions and a supervisor, which exchange updates over ``store``.

    Parameters
    ----------
    speed : float
        Speed of a function's core, relative to the one that ``sizes`` was measured on.
    link : Link, optional
        Instead of the store's own.
    """
    w, rounds = n_workers, sizes.n_rounds(n_workers)
    start_s, compute, exchange = function_times(store, w, sizes, known, speed=speed, link=link)
    time_s = start_s + compute + exchange
    nusd = functions_nusd(w, sizes, rates, start_s, compute, exchange)
    if store in ("redis", "server"):  # arrivals at a round are on Redis, also if frames are not
        nusd += rates.servers_nusd(time_s + rates.tail_s)
    gets, puts = storage_requests(w) if store == "storage" and w > 1 else (0, 0)
    nusd += rates.requests_nusd(rounds * gets, rounds * puts)
    usd = nusd / NUSD
    if store == "server":
        usd += known.vms["c5.large"].usd_per_h / 3600 * max(time_s + known.start_s(1, are_vms=True), LEAST_VM_S)
        start_s += known.start_s(1, are_vms=True)
    return Option("functions", known.labels[store], w, start_s, compute, exchange, usd)


def function_times(
    store: str, n_workers: int, sizes: Sizes, known: Constants, *, speed: float, link: Link | None = None
) -> tuple[float, float, float]:
    """Seconds of start, computation and exchange of ``n_workers`` functions over a ``store`` that is up already."""
    w, rounds, link = n_workers, sizes.n_rounds(n_workers), link or known.channels[store]
    start_s = known.start_s(w) + sizes.data_bytes / w / known.data.bytes_s + known.data.latency_s
    step_s = (sizes.making_s(w) + (w - 1) * sizes.apply_s) / speed
    return start_s, rounds * step_s, rounds * exchange_s(store, w, sizes, link)


def functions_nusd(
    n_workers: int, sizes: Sizes, rates: Rates, start_s: float, compute_s: float, exchange_s: float
) -> int:
    """Bill of the workers, the supervisor, and their requests but for the exchange, nano-dollars."""
    trained_s = compute_s + exchange_s
    nusd = (n_workers + 1) * rates.function_nusd(start_s + trained_s)
    return nusd + run_requests.run_nusd(n_workers, sizes, rates, trained_s, rates.core_share)


def one_vm(vm: VM, sizes: Sizes, known: Constants, *, speed: float) -> Option:
    """One VM that trains with a thread for each core, without any exchange."""
    start_s = known.start_s(1, are_vms=True) + sizes.data_bytes / known.data.bytes_s
    compute = sizes.epochs * sizes.n_minibatches * sizes.single_minibatch_s / (vm.cores * speed)
    usd = vm.usd_per_h / 3600 * max(start_s + compute, LEAST_VM_S)
    return Option("vm", vm.name, 1, start_s, compute, 0.0, usd)


def cluster(vm: VM, n_vms: int, sizes: Sizes, known: Constants, *, speed: float) -> Option:
    """``n_vms`` VMs that exchange gradients with each other, one worker on each core."""
    rounds, w = sizes.n_rounds(n_vms * vm.cores), n_vms
    start_s = known.start_s(w, are_vms=True) + sizes.data_bytes / w / known.data.bytes_s
    compute = rounds * (sizes.local_steps * sizes.minibatch_s + (w - 1) * sizes.apply_s) / speed
    exchange = rounds * (2 * w - 2) * (sizes.update_bytes / w / vm.link.bytes_s + vm.link.latency_s)
    usd = w * vm.usd_per_h / 3600 * max(start_s + compute + exchange, LEAST_VM_S)
    return Option("cluster", f"{w} x {vm.name}", w * vm.cores, start_s, compute, exchange, usd)


def gpu(sizes: Sizes, known: Constants, *, speed: float) -> Option:
    """The what-if of a VM with a GPU."""
    start_s = known.start_s(1, are_vms=True) + sizes.data_bytes / known.data.bytes_s
    compute = sizes.epochs * sizes.n_minibatches * sizes.single_minibatch_s / (known.gpu.speedup * speed)
    usd = known.gpu.usd_per_h / 3600 * max(start_s + compute, LEAST_VM_S)
    return Option("what-if", f"{known.gpu.label}, a GPU", 1, start_s, compute, 0.0, usd)


def pareto(options: list[Option]) -> list[Option]:
    """Those of ``options`` to which no other is both quicker and cheaper, the quickest first."""
    best: list[Option] = []
    for option in sorted((option for option in options if not option.limit), key=lambda one: (one.time_s, one.usd)):
        if not best or option.usd < best[-1].usd:
            best.append(option)
    return best
