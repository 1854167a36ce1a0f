"""Stored files of one job: functions count their rows, and the job is made again with these."""

from __future__ import annotations

import dataclasses
import threading
import time
import uuid
from collections.abc import Callable

from ...data.dataset import Dataset
from ...data.foreseen import foreseen
from ...data.stored_files import StoredFiles, StoredRows
from ...errors import DataError
from ...exchange import RedisCoordinator
from ...exchange.stores import store_servers
from ...job.job import TrainingJob
from ...models.written import WrittenModel
from ...money import Rates, price_profile
from ...money.meter import NUSD, to_nusd
from ...money.start import StartingMoney
from ...preparation.functions import budget_id
from ...preparation.run import CallContext, Preparation
from ...stateless.platform import Ends
from ..servers.services import Services
from .functions import LithopsFunctions

#: Longest wait for functions that are still at work when a preparation ends, seconds.
LAST_FUNCTIONS_S = 5.0


class StoredData:
    """The preparation of one job's stored files through Lithops.

    Parameters
    ----------
    job : TrainingJob
    run_id : str
    services : Services

    Attributes
    ----------
    is_wanted : callable
        Asked between messages of functions; if it is False, `Ends` is raised.
    """

    def __init__(self, job: TrainingJob, run_id: str, services: Services, is_wanted: Callable[[], bool]) -> None:
        self.services, self.is_wanted = services, is_wanted
        self._rows: list[StoredRows] = []
        launcher, urls = services.launcher, services.redis_urls
        rates = Rates(
            price_profile(job.prices), job.memory_mb, len(urls), services.has_broker, store_servers(job.store)
        )
        generation = uuid.uuid4().hex
        told = CallContext(
            run_id,
            generation,
            services.urls_for_functions,
            services.bus_for_functions,
            job.insecure,
            job.prices,
            job.memory_mb,
            services.has_broker,
        )
        self.preparation = Preparation(
            told,
            RedisCoordinator(urls, budget_id(run_id), generation),
            services.bus,
            LithopsFunctions(services, f"runs/{run_id}"),
            launcher.objects,
            launcher.files_of,
            rates,
            cap_nusd=to_nusd(job.cap_usd) if job.cap_usd is not None else None,
            kept_nusd=StartingMoney(rates, job.workers or 1, launcher.is_local).least_nusd(0),
            is_local=launcher.is_local,
            lifetime_s=launcher.lifetime_s,
            look=self._look,
        )

    @classmethod
    def open(cls, job: TrainingJob, run_id: str, is_wanted: Callable[[], bool]) -> StoredData:
        """Open the services of a job with stored files."""
        services = Services(job, run_id)
        try:
            return cls(job, run_id, services, is_wanted)
        except BaseException:
            services.close()
            raise

    def scanned(self, job: TrainingJob) -> TrainingJob:
        """``job`` with the rows of its files, and with all that depends on them decided."""
        if isinstance(job.model, WrittenModel) and isinstance(job.data, StoredFiles):  # before a function is invoked
            job.model.check_data(foreseen(job.data, self.services.launcher.files_of))
        data, validation = (
            self._scanned(each) if isinstance(each, StoredFiles) else each for each in (job.data, job.validation)
        )
        assert isinstance(data, Dataset)
        return dataclasses.replace(job, data=data, validation=validation)

    def _scanned(self, spec: StoredFiles) -> StoredRows:
        try:
            rows = self.preparation.scan(spec)
        except DataError as error:
            cost_usd = self.preparation.spent_nusd / NUSD
            raise DataError(error.field, error.value, f"{error.valid}; reading cost ${cost_usd:.6f}") from None
        self._rows.append(rows)
        return rows

    def _look(self) -> None:
        if not self.is_wanted() or not threading.main_thread().is_alive():
            raise Ends("stopped", "stopped while functions prepared the data")

    def close(self) -> None:
        """Remove what is left of the preparation; the services stay open. Idempotent."""
        launcher, give_up_at = self.services.launcher, time.monotonic() + LAST_FUNCTIONS_S
        while launcher.process_groups and not launcher.has_ended() and time.monotonic() < give_up_at:
            time.sleep(0.005)
        for rows in self._rows:  # a later run on them has other functions
            rows.sum_columns = None
        self.preparation.close()
        launcher.forget_ended()
