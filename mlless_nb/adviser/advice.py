"""Advice before a run: what a job would take and cost with P workers, over each store, and on VMs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from ..driver.backends import deployed
from ..driver.backends.launcher import is_local
from ..driver.run import TrainingRun
from ..errors import JobError
from ..exchange.stores import store_servers
from ..job.job import TrainingJob
from ..money import Rates, price_profile
from ..money.meter import NUSD
from ..plurals import count
from ..validation import check_number, check_positive_integer, plain
from . import analytic
from .analytic import Option, pareto
from .constants import Constants, Link, constants
from .descent import epochs_of, planned
from .earlier_run import epochs_of_run
from .estimate import NEAR, usd
from .estimate import count as of_epochs
from .frame_requests import frames_nusd, needs_redis
from .here import here
from .probe import probe
from .sizes import Sizes
from .stored import measured, rehearsed

#: Numbers of workers that are compared.
WORKERS = (1, 2, 4, 8, 16, 32, 64)
#: Numbers of VMs in a cluster that are compared.
CLUSTERS = (2, 4, 8)
#: What the table's columns are called; the last one has a star or the reason why an option is none.
HEAD = ("", "workers", "seconds", "start", "compute", "exchange", "US dollars", "")
#: Speed of a cloud's vCPU, half a physical core, relative to a core here.
CLOUD_SPEED = 0.7
#: Seconds after which a platform ends a function.
LIFETIME_S = 900.0
#: Bytes per second of the faster link of the what-if, and seconds to read data that are in memory already.
FAST_BYTES_S = 10e9
#: Why an option cannot be done, and within what it cannot.
TOO_LONG, TOO_DEAR = "longer than a function lives", "above the budget"
WITHIN = {TOO_LONG: "a function's life of 15 minutes", TOO_DEAR: "the budget"}


@dataclass(frozen=True, repr=False)
class Advice:
    """What a job would take and cost.

    Attributes
    ----------
    options : tuple of Option
        Every way that was compared.
    sizes : Sizes
        What was measured of the job.
    epochs_from : str
        Where the number of epochs comes from.
    what_ifs : tuple of Option
        The same with hardware that is not offered, or not assumed: LambdaML, section 5.3.
    measured : Link, optional
        The link to Redis, if functions of the job's deployment have measured it; None: LambdaML's constant is used.
    """

    options: tuple[Option, ...]
    sizes: Sizes
    epochs_from: str
    what_ifs: tuple[Option, ...]
    measured: Link | None = None

    @property
    def possible(self) -> list[Option]:
        """The options that can be done."""
        return [option for option in self.options if not option.limit]

    @property
    def pareto(self) -> list[Option]:
        """The options to which no other is both quicker and cheaper, the quickest first."""
        return pareto(self.possible)

    def _best(self, *kinds: str) -> list[Option]:
        found = [option for option in self.possible if option.kind in kinds]
        quickest = min(found, key=lambda one: (one.time_s, one.usd), default=None)
        cheapest = min(found, key=lambda one: (one.usd, one.time_s), default=None)
        return [one for one in (quickest, cheapest) if one is not None]

    @property
    def sentence(self) -> str:
        """The advice in one sentence."""
        parts = []
        if near := self._best("here"):
            quickest, cheapest = near
            parts.append(f"here {_workers(quickest)}: {_about(quickest)}")
            if cheapest.workers != quickest.workers:
                parts[-1] += f" ({_workers(cheapest)} would be cheapest: {_about(cheapest)})"
        functions, vms = self._best("functions"), self._best("vm", "cluster")
        if not functions:
            limits = {option.limit for option in self.options if option.kind == "functions"}
            within = " and ".join(words for limit, words in WITHIN.items() if limit in limits)
            parts.append(f"in a cloud no number of functions can do it within {within}")
        else:
            parts.append(f"in a cloud {_workers(functions[0])} over {functions[0].place}: {_about(functions[0])}")
        if vms:
            parts.append(f"a {vms[-1].place} alone: {_about(vms[-1])}")
        verdict = _verdict(functions, vms)
        text = "; ".join(parts) + (f": {verdict}" if verdict else "")
        return text[0].upper() + text[1:]

    def __repr__(self) -> str:
        rows = [HEAD, *(self._row(option) for option in (*self.options, *self.what_ifs))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
        return "\n".join([self._basis(), *lines, "*: none is both quicker and cheaper", self.sentence])

    def _row(self, option: Option) -> tuple[str, ...]:
        seconds = map(_short, (option.time_s, option.start_s, option.compute_s, option.exchange_s))
        mark = option.limit or ("*" if option in self.pareto else "")
        return option.place, str(option.workers), *seconds, usd(option.usd).removeprefix("$"), mark

    def _basis(self) -> str:
        sizes, link = self.sizes, self.measured
        linked = f", Redis {link.latency_s * 1e3:.3g} ms and {link.bytes_s / 1e6:.3g} MB/s as measured" if link else ""
        return (
            f"{of_epochs(sizes.epochs)} ({self.epochs_from}); "
            f"a minibatch takes {sizes.minibatch_s * 1e3:.3g} ms here, "
            f"an update has {sizes.update_bytes / 1e6:.3g} MB{linked}"
        )

    def _repr_html_(self) -> str:
        from ..widgets import advice_chart

        best = _table([self._row(option)[:-1] for option in self.pareto])
        every = _table([self._row(option) for option in (*self.options, *self.what_ifs)])
        return (
            '<div class="mathjax_ignore tex2jax_ignore">'  # dollar signs are not formulas
            f"<p><b>{escape(self.sentence)}</b><br>{escape(self._basis())}</p>"
            f"<p>None is both quicker and cheaper than these:</p>{best}"
            f"<details><summary>All {len(self.options)} options, and what-ifs</summary>{every}</details>"
            f"{advice_chart(self)}</div>"
        )


def advise(
    job: TrainingJob, *, epochs: float | TrainingRun | str | None = None, workers: Sequence[int] | None = None
) -> Advice:
    """What ``job`` would take and cost: measured here for some seconds, then LambdaML's analytic model.

    Nothing is launched or billed. With a target, the epochs are estimated by training on a sample of the rows, at
    least a tenth, for up to ten seconds. Of stored files the first rows are read, which stand for all of them; their
    target is left open.

    Parameters
    ----------
    job : TrainingJob
    epochs : float, TrainingRun or str, optional
        Passes over the training rows; or an ended run, its name or its id: as many as that one took, with a target
        until it reached that. None: from the stop rules, or estimated.
    workers : sequence of int, optional
        Numbers of workers to compare; those for which there are not enough minibatches are left out. None: 1, 2, 4 up
        to 64, and that of the job.

    Returns
    -------
    Advice

    Raises
    ------
    JobError
        When the sample, or the earlier run, does not reach the target, or an argument is wrong.
    DataError, ServiceError
        When stored files cannot be read.
    CommandError
        When there is no such run.

    References
    ----------
    LambdaML, section 5.3 and table 6.
    """
    known = None
    if isinstance(epochs, (TrainingRun, str)):
        known = epochs_of_run(job, epochs)
    else:
        check_number("epochs", epochs, least=0.0, or_none=True)
        if epochs is not None:
            known = epochs, "as given"
    numbers = None if workers is None else _checked(workers)
    if job.is_stored:
        _, rows = rehearsed(job)
        if rows is None:
            raise JobError(
                "validation", job.validation, "rows that are here, as the data are: losses are measured on them"
            )
        job, sizes = measured(job, rows)
        if known is None and job.stop_rules.target is not None:  # the first rows are no sample of all
            found = planned(job, sizes.n_minibatches)
            known = (1.0, "the target is left open") if found is None else (found, "the stop rule's most")
    else:
        sizes = probe(job)
    found, epochs_from = known or epochs_of(job, sizes)
    return compare(job, dataclasses.replace(sizes, epochs=found), epochs_from, numbers)


def _checked(workers: Any) -> list[int]:
    """Numbers of workers as integers >= 1."""
    if isinstance(workers, str) or not isinstance(workers, Iterable):
        raise JobError("workers", workers, "numbers of workers, e.g. (1, 2, 4)")
    numbers = [plain(each) for each in workers]
    for each in numbers:
        check_positive_integer("workers", each)
    return numbers


def compare(job: TrainingJob, sizes: Sizes, epochs_from: str, workers: Sequence[int] | None = None) -> Advice:
    """The advice for ``job`` of these sizes, with their epochs, see `advise`."""
    workers = sorted({*WORKERS, job.workers}) if workers is None else workers
    known, speed = constants_for(job), speed_of(job)
    rates = Rates(price_profile(job.prices), job.memory_mb)  # every store that is compared adds its own servers
    most = max(job.n_minibatches // job.local_steps, 1)
    asked = [w for w in workers if w <= most]
    if not asked:
        raise JobError("workers", list(workers), f"some of at most {most}, for which there are enough minibatches")
    options = [_here(job, w, sizes) for w in asked] if is_local(job.backend) else []
    for store in known.channels:
        options += [analytic.functions(store, w, sizes, rates, known, speed=speed) for w in asked]
    for vm in known.vms.values():
        options.append(analytic.one_vm(vm, sizes, known, speed=CLOUD_SPEED))
        options += [analytic.cluster(vm, n, sizes, known, speed=CLOUD_SPEED) for n in CLUSTERS if n * vm.cores <= most]
    options = [_limited(option, job.cap_usd) for option in options]
    return Advice(tuple(options), sizes, epochs_from, _what_ifs(asked, sizes, rates, speed), measured_link(job))


def measured_link(job: TrainingJob) -> Link | None:
    """The link to the Redis of ``job`` that functions of its deployment have measured; None if none has."""
    redis = job.redis or deployed.servers_of(job.backend).get("redis")
    found = deployed.link_of(job.backend, job.memory_mb, redis)
    return None if found is None else Link(latency_s=found[0], bytes_s=found[1])


def constants_for(job: TrainingJob) -> Constants:
    """The constants of the model, with the measured link of ``job`` where there is one."""
    known, link = constants(), measured_link(job)
    return known if link is None else replace(known, channels={**known.channels, "redis": link})


def rates_of(job: TrainingJob) -> Rates:
    """What the functions of ``job`` and the servers that it uses cost."""
    n_redis = len(job.redis_urls or [""]) if needs_redis(job) else 0
    has_broker = job.bus is not None and job.bus.startswith("amqp")
    return Rates(price_profile(job.prices), job.memory_mb, n_redis, has_broker, store_servers(job.store))


def speed_of(job: TrainingJob) -> float:
    """Speed of a cloud function of ``job``, relative to a core here."""
    return CLOUD_SPEED * rates_of(job).core_share


def as_run(job: TrainingJob, n_workers: int, sizes: Sizes, known: Constants) -> Option:
    """``job`` where it runs, with its own store, and ``n_workers`` workers."""
    if is_local(job.backend):
        return _here(job, n_workers, sizes)
    kind, rates = job.store.partition(":")[0], rates_of(job)
    store = kind if kind in known.channels else "redis"  # memcached and DynamoDB: a server of one request a frame, too
    times = analytic.function_times(store, n_workers, sizes, known, speed=speed_of(job))
    nusd = analytic.functions_nusd(n_workers, sizes, rates, *times) + frames_nusd(job, n_workers, sizes, rates)
    nusd += rates.servers_nusd(sum(times) + rates.tail_s)
    return _limited(Option("functions", known.labels[store], n_workers, *times, nusd / NUSD))


def _here(job: TrainingJob, n_workers: int, sizes: Sizes) -> Option:
    """``job`` on this machine, with its own store."""
    rates = rates_of(job)
    option = here(n_workers, sizes, rates)
    return replace(option, usd=option.usd + frames_nusd(job, n_workers, sizes, rates) / NUSD)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """An HTML table of ``rows``, with the first cells of `HEAD`."""
    cells = [HEAD, *rows] if rows else []
    shown = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row[: len(rows[0])]) + "</tr>" for row in cells
    )
    return f"<table>{shown}</table>"


def _limited(option: Option, cap_usd: float | None = None) -> Option:
    """``option`` with why it cannot be done; a budget is compared within the accuracy of the figures."""
    if option.kind == "functions" and option.time_s > LIFETIME_S:
        return replace(option, limit=TOO_LONG)
    is_too_dear = cap_usd is not None and option.usd > (1.0 + NEAR) * cap_usd
    return replace(option, limit=TOO_DEAR) if is_too_dear else option


def _what_ifs(workers: Sequence[int], sizes: Sizes, rates: Rates, speed: float) -> tuple[Option, ...]:
    """LambdaML's questions: faster links between functions and VMs, a GPU, data that are in a VM already."""
    known = constants()
    fast = Link(FAST_BYTES_S, known.vms["c5.large"].link.latency_s)
    linked = [analytic.functions("server", w, sizes, rates, known, speed=speed, link=fast) for w in workers]
    hot = dataclasses.replace(sizes, data_bytes=0.0)
    found = [analytic.gpu(sizes, known, speed=CLOUD_SPEED)]
    if linked:
        quickest = min(linked, key=lambda one: one.time_s)
        found.append(replace(quickest, kind="what-if", place="a frame server, links of 10 GB/s"))
    vm = analytic.one_vm(known.vms["c5.large"], hot, known, speed=CLOUD_SPEED)
    found.append(replace(vm, kind="what-if", place="c5.large that runs and has the data", start_s=0.0))
    return tuple(found)


def _verdict(functions: list[Option], vms: list[Option]) -> str:
    """When functions are the right choice: compared with the cheapest VM or cluster."""
    if not functions or not vms:
        return ""
    quickest, cheapest, vm = functions[0], functions[-1], vms[-1]
    if vm.usd < cheapest.usd and vm.time_s <= quickest.time_s:
        return "functions are the wrong choice, the VM is quicker and cheaper"
    if vm.usd < cheapest.usd:
        return "the VM is cheaper, functions are quicker"
    if quickest.time_s <= vms[0].time_s:
        return "functions are quicker and cheaper"
    return "functions are cheaper, VMs are quicker"


def _workers(option: Option) -> str:
    return count(option.workers, "worker")


def _about(option: Option) -> str:
    return f"about {_short(option.time_s)} s, {usd(option.usd)}"


def _short(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"
