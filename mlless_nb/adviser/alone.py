"""A job with one worker and without an exchange, on a part of its rows: it is trained in this process before a run."""

from __future__ import annotations

import dataclasses

from ..bus.messages import Invocation
from ..data.dataset import Dataset
from ..data.prepare import Manifest
from ..driver.launch.data_preparation import JobData
from ..driver.launch.invocations import DETACHED, invocations_of
from ..exchange.stores import REDIS
from ..job.execution import WORKERS
from ..job.job import TrainingJob
from ..job.limits import Stop
from ..job.scale_in import ScaleIn
from ..job.sync import BSP, Sync
from ..money import Rates, price_profile
from ..money.start import StartingMoney
from ..storage.objects import MemoryObjects
from ..worker.replica import Replica


def part_of(job: TrainingJob, share: float, head: Dataset | None = None) -> TrainingJob:
    """``job`` on about ``share`` of its rows, for one replica alone; or on all of ``head``, without held-out rows."""
    rows = {} if head is None else {"data": head, "validation": None}
    alone = dataclasses.replace(
        job,
        **rows,  # type: ignore[arg-type]
        workers=1,
        sync=BSP(),
        scale_in=ScaleIn.off(),
        budget=None,
        stop=Stop(epochs=1),
        partition="rows",
        pattern="broadcast",
        execution=WORKERS,
        reducers=None,
        store=REDIS,
        backend="embedded",
        redis=None,
        bus=None,
        name=None,
    )
    if share >= 1.0 or head is not None:
        return alone
    return dataclasses.replace(alone, data=job.data.split(share, job.seed)[1])


def packed(job: TrainingJob, objects: MemoryObjects) -> tuple[TrainingJob, Manifest, Manifest | None]:
    """``job`` with its defaults chosen, and its packed rows."""
    data = JobData(job)
    manifests = data.pack(objects, lambda: False)
    assert manifests is not None  # it was not told to stop
    return data.job, *manifests


def replica_of(job: TrainingJob, manifest: Manifest, n_workers: int, sync: Sync | None = None) -> Replica:
    """A replica as worker 0 of ``n_workers`` has it."""
    job = dataclasses.replace(job, sync=sync) if sync is not None else job
    return Replica(invocation_of(job, manifest, n_workers), manifest)


def invocation_of(job: TrainingJob, manifest: Manifest, n_workers: int) -> Invocation:
    """That of worker 0 of ``n_workers`` in this process."""
    rates = Rates(price_profile(job.prices), job.memory_mb)
    money = StartingMoney(rates, n_workers, is_local=True)
    _, worker, *_ = invocations_of(job, manifest, None, money, seed=job.seed, **DETACHED)
    return worker
