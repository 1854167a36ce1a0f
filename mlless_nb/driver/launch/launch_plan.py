"""The launch of a run: checks the least budget before anything is billed, and builds the functions' invocations."""

from __future__ import annotations

import dataclasses

from ...bus.messages import Invocation
from ...bus.recorded import begin_record
from ...data.prepare import Manifest
from ...errors import BudgetError
from ...exchange import factory, pattern
from ...exchange.protocol import key_prefix
from ...exchange.stores import REDIS, prepaid_nusd, store_servers
from ...job.execution import EVENTS, WORKERS
from ...job.job import TrainingJob
from ...job.partitioning import exchanged_bytes, growth
from ...money import Rates, price_profile
from ...money.meter import to_nusd
from ...money.start import StartingMoney, least_usd
from ...plurals import count
from ...stateless import nested
from ...stateless.grants import StatelessMoney
from ...storage import run_objects
from ...storage.checkpoint import Progress
from ..backends import deployed
from ..servers import request_dues
from ..servers.services import Services
from . import fan_out
from .data_preparation import JobData
from .invocations import invocations_of
from .resumption import Start

#: Latency (s) and bandwidth (bytes/s) of the embedded Redis: constants, so that one seed always gives one model.
EMBEDDED_LINK = (60e-6, 3e9)
#: Those of a server in the region of a cloud's functions, where none of these has measured them; a function has about
#: this share of its machine's link.
CLOUD_LINK = (1e-3, 75e6)


class LaunchPlan:
    """The launch of one run.

    Parameters
    ----------
    data : JobData
    services : Services
    start : Start or None
        The start of a resumed run.

    Attributes
    ----------
    rates : Rates
    money : StartingMoney
        The grant that each function starts with.

    Raises
    ------
    BudgetError
        When the job's budget does not pay for a start, a step and an end.
    """

    def __init__(self, data: JobData, services: Services, start: Start | None) -> None:
        self._job, self._data, self._services = data.job, data, services
        job = data.job
        self._begin = start.progress if start is not None else None
        if start is None and data.start is not None:
            self._begin = Progress(data.start)
        n_redis, servers = len(services.redis_urls), store_servers(job.store)
        self.rates = Rates(price_profile(job.prices), job.memory_mb, n_redis, services.has_broker, servers)
        n_rows, width = job.model.table_shape(job.data.shape)
        kept_nusd = prepaid_nusd(job.store, self.rates, job.workers, 4 * n_rows * width)
        is_local = services.launcher.is_local
        starting = self.rates, job.workers, is_local, data.held_out_gets, self._begin is not None, kept_nusd
        coordination_nusd = factory.prepaid_nusd(self.rates, job.workers, services.redis_urls)
        coordination_nusd += 0 if services.redis_urls else factory.request_margin_nusd(self.rates)
        inviting = (
            fan_out.n_inviters(job.workers, can_invoke=services.launcher.can_functions_invoke),
            self.rates.requests_nusd(nested.GETS, nested.PUTS),
        )
        self.money = StartingMoney(*starting, coordination_nusd, *inviting)
        if job.execution != WORKERS:
            is_chained = job.execution == EVENTS
            self.money = StatelessMoney(*starting, n_reducers=job.reducers or 1, is_chained=is_chained)
        # The driver's own requests: packing the data, unless it is packed, and reading the model.
        n_puts = data.n_puts(services.launcher.objects) + (self._begin is not None)
        #: Removing a run's objects and frames takes a listing each, at the price of a put.
        self._n_last_puts = 2 + (job.store != REDIS)
        self._last_gets = 6
        if not services.redis_urls:  # then its messages and leases are in the storage, too
            self._n_last_puts += 2 + request_dues.PUTS
            self._last_gets += 3 * (job.workers + 1) + request_dues.GETS
        self._packing_nusd = (
            self.rates.requests_nusd(6 + self._last_gets, self._n_last_puts + n_puts) + data.preparing_nusd
        )
        self.check_budget(self._packing_nusd)

    @property
    def least_nusd(self) -> int:
        """The least budget before the data is packed."""
        return self.money.least_nusd(self._packing_nusd)

    def requests_before_nusd(self) -> int:
        """The driver's requests so far, plus those that reading the model and removing the objects may need."""
        objects = self._services.launcher.objects
        return self.rates.requests_nusd(objects.gets + self._last_gets, objects.puts + self._n_last_puts)

    def begin(self, spent_before_nusd: int, run_id: str) -> None:
        """Create what coordinates the run; the driver's requests before cost so much, and its later ones are reserved.

        Without a Redis it pays for these as it makes them.
        """
        services, job = self._services, self._job
        cap = to_nusd(job.cap_usd) if job.cap_usd is not None else None
        services.log.create(cap_nusd=cap, reserved_nusd=self.reserved_nusd(spent_before_nusd))
        services.tally = services.launcher.objects.open_tally(run_objects.tally_key(run_id))
        begin_record(services.bus, services.redis_urls, run_id, insecure=job.insecure)
        if not services.redis_urls:
            last = self._last_gets - request_dues.GETS, self._n_last_puts - request_dues.PUTS
            objects = services.launcher.objects
            services.dues = request_dues.RequestDues(objects, services.log, self.rates, spent_before_nusd, last)

    def reserved_nusd(self, spent_before_nusd: int) -> int:
        """The least budget after ``spent_before_nusd`` for the driver's requests and what preparing the data cost."""
        return self.money.least_nusd(spent_before_nusd + self._data.prepared_nusd)

    @property
    def kept_nusd(self) -> int:
        """The part of the budget that is for the training while functions prepare the data, nano-dollars."""
        return self.least_nusd - self._data.preparing_nusd

    def check_budget(self, spent_before_nusd: int) -> None:
        """Raise unless the budget is at least the least one, given what the driver spends on requests."""
        job = self._job
        if job.cap_usd is None:
            return
        least = self.money.least_nusd(spent_before_nusd)
        others = "a supervisor" if job.execution == WORKERS else "what merges their updates"
        if to_nusd(job.cap_usd) < least:
            raise BudgetError(
                "budget",
                job.cap_usd,
                f"at least {least_usd(least):g} (US dollars): what is set aside for {count(job.workers, 'worker')} "
                f"and {others} to start, take one step and end, also if that is slow, "
                f"priced as {self.rates.profile.label}; only what is used is billed",
            )

    def put_start(self, run_id: str) -> str | None:
        """Store the progress that the workers begin from; returns its key, None if they make the first parameters."""
        progress = self._begin
        if progress is None:
            return None
        key = run_objects.start_key(run_id)
        self._services.launcher.objects.put(key, dataclasses.replace(progress, owners=self._data.owners).encode())
        return key

    def invocations(
        self,
        job: TrainingJob,
        manifest: Manifest,
        validation: Manifest | None,
        *,
        run_id: str,
        start_key: str | None,
        spent_before_nusd: int,
    ) -> list[Invocation]:
        """The invocations of ``job``'s functions, the supervisor's first."""
        services = self._services
        return invocations_of(
            job,
            manifest,
            validation,
            self.money,
            job_id=run_id,
            generation=services.log.generation,
            scatter_from=self._scatter_from(job, manifest, run_id),
            has_leader=job.pattern == "allreduce",
            seed=job.seed,
            n_cores=services.launcher.n_cores,
            redis_urls=services.urls_for_functions,
            bus_url=services.bus_for_functions,
            store=services.store,
            frame_key=services.frame_key,
            insecure=job.insecure,
            has_broker=services.has_broker,
            launched_at_s=services.log.now_s(),
            spent_before_nusd=spent_before_nusd,
            lifetime_s=services.launcher.lifetime_s,
            schedule=job.schedule,
            ends_settled=job.ends_settled,
            start_key=start_key,
            speculation=job.straggles_from,
            prepared_nusd=self._data.prepared_nusd,
            has_cap=job.cap_usd is not None,
        )

    def invoked_here(self, invocations: list[Invocation]) -> list[Invocation]:
        """Those of ``invocations`` that the driver is to invoke; functions invoke the others, if these are many."""
        return fan_out.fanned_out(invocations, self.money.n_inviters)

    def _scatter_from(self, job: TrainingJob, manifest: Manifest, run_id: str) -> int:
        """Number of workers from which on scatter-reduce is used: as the job says, or where it is predicted quicker.

        With another store than Redis, "auto" is broadcast: the cost model is that of one server of small latency. On
        the embedded server's link, bytes weigh so little that how far updates overlap is not taken into account.
        """
        link, power = EMBEDDED_LINK, 1.0
        how = "broadcast" if not job.sync.is_complete or (job.pattern == "auto" and job.store != REDIS) else job.pattern
        if how == "auto" and not self._services.launcher.is_local:
            # From here it is another one.
            link, power = deployed.link_of(job.backend, job.memory_mb, job.redis) or CLOUD_LINK, growth(job, manifest)
        elif how == "auto" and self._services.embedded is None:
            link, power = pattern.probe(self._services.redis_urls[0], key_prefix(run_id)), growth(job, manifest)
        return pattern.scatter_from(how, job.workers, *exchanged_bytes(job, manifest), *link, growth=power)
