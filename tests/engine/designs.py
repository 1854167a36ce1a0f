"""The design space, from the registries: every model, algorithm, protocol, store and P; and what a run promises."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
from engine.jobs import rmse_in_training
from engine.models import MODELS

import mlless_nb
from mlless_nb import (
    ADMM,
    ASP,
    BSP,
    DBW,
    EM,
    ISP,
    SGD,
    SSP,
    AdaSync,
    BackupWorkers,
    GradientAveraging,
    JobError,
    ModelAveraging,
    ScaleIn,
    Stop,
    TrainingJob,
    TrainingRun,
)
from mlless_nb.exchange.stores import REDIS
from mlless_nb.exchange.stores import base as stores
from mlless_nb.job import algorithm as algorithms
from mlless_nb.job.algorithm import Algorithm
from mlless_nb.job.partitioning import is_by_user
from mlless_nb.job.sync import Sync
from mlless_nb.job.sync import base as syncs
from mlless_nb.models import registered_models

WORKERS = (1, 3)
#: Steps of a run, two between two checkpoints.
STEPS = 8

#: Of every registered kind one, or one for each way in which it behaves.
ALGORITHMS: dict[str, tuple[Algorithm, ...]] = {
    "gradient-averaging": (GradientAveraging(),),
    "model-averaging": (ModelAveraging(every=2),),
    "admm": (ADMM(scans=2),),
    "em": (EM(),),
}
SYNCS: dict[str, tuple[Sync, ...]] = {
    "bsp": (BSP(),),
    "isp": (ISP(0.7), ISP(0.7, staleness=2)),
    "ssp": (SSP(2),),
    "asp": (ASP(), ASP(shared=True)),
    "backup-workers": (BackupWorkers(1), BackupWorkers(2)),
    "dbw": (DBW(), DBW(gain="blind")),
    "adasync": (AdaSync(),),
}
#: Stores with an address that a job accepts.
STORES = {
    "redis": "redis",
    "storage": "storage",
    "memcached": "memcached://127.0.0.1:11211",
    "dynamodb": "dynamodb",
    "server": f"server://:token@127.0.0.1/{'0' * 64}",
}


def registered() -> dict[str, set[str]]:
    """The kinds that the package registers, by dimension."""
    for name in mlless_nb.__all__:
        getattr(mlless_nb, name)  # modules register what they define when they are imported
    found: dict[str, dict[str, type]] = {
        "models": registered_models(),  # type: ignore[dict-item]
        "algorithms": algorithms._registered,  # type: ignore[dict-item]
        "protocols": syncs._registered,  # type: ignore[dict-item]
        "stores": stores._registered | {REDIS: TrainingJob},  # type: ignore[dict-item]
    }
    return {
        dimension: {name for name, kind in kinds.items() if kind.__module__.startswith("mlless_nb.")}
        for dimension, kinds in found.items()  # tests register toys
    }


@dataclass(frozen=True)
class Design:
    """One combination: the kind of the model, its algorithm and protocol, the name of the store, and P."""

    model: str
    algorithm: Algorithm
    sync: Sync
    store: str
    workers: int

    @property
    def is_exact(self) -> bool:
        """Whether a run has the bits of any other one: nobody applies updates as they happen to arrive."""
        return self.sync.is_complete

    def job_fields(self, store: str = "", **changes: Any) -> dict[str, Any]:
        """The fields of a small job of it, with the address of a server in ``store``."""
        model, data = MODELS[self.model]
        job: dict[str, Any] = {
            "model": model,
            "data": data,
            "algorithm": self.algorithm,
            "sync": self.sync,
            "store": store or STORES[self.store],
            "workers": self.workers,
            "stop": Stop(steps=STEPS),
            "scale_in": ScaleIn.off(),  # a worker that leaves by the clock would make two runs differ
            "eval_every": 1 if self.sync.counts_all else 4,  # a step after an evaluation waits for all
            "checkpoint_every": 2,
            "speculation": "off",
        }
        if model.algorithm is None:
            job |= {"minibatch": 60, "optimizer": SGD(1.0 if model.data_kind == "ratings" else 0.05)}
        return job | changes

    def __str__(self) -> str:
        return ", ".join([self.model, self.algorithm.kind, str(self.sync), self.store, f"P = {self.workers}"])


def product() -> Iterator[Design]:
    """Every combination, also those that make no sense."""
    of_kinds = [itertools.chain(*kinds.values()) for kinds in (ALGORITHMS, SYNCS)]
    for values in itertools.product(MODELS, *of_kinds, STORES, WORKERS):
        yield Design(*values)


def refusal(design: Design) -> JobError | None:
    """Why a job of this design is refused; None if it is not."""
    try:
        TrainingJob(**design.job_fields())
    except JobError as error:
        return error
    return None


@functools.cache
def allowed() -> list[Design]:
    """Every combination that a job accepts."""
    return [design for design in product() if refusal(design) is None]


def cover(designs: Iterable[Design], n: int) -> set[Design]:
    """Few of ``designs``, in which any ``n`` values are together that are together in one of them."""
    groups = {
        design: set(itertools.combinations(enumerate(getattr(design, each.name) for each in fields(design)), n))
        for design in designs
    }
    order = random.Random(1).sample([*groups], len(groups))
    missing, chosen = set().union(*groups.values()), set()
    for least in range(max(map(len, groups.values())), 0, -1):  # those first that have many together
        for design in order:
            if len(groups[design] & missing) >= least:
                missing -= groups[design]
                chosen.add(design)
    return chosen


def address_of(store: str, request: pytest.FixtureRequest) -> str:
    """The ``store`` of a job of this test: on a server of the test run, where it has one."""
    if store == "memcached":
        return str(request.getfixturevalue("memcached_url"))
    if store == "server":
        return str(request.getfixturevalue("frame_server").url)
    if store == "dynamodb":
        request.getfixturevalue("dynamodb")
    return STORES[store]


def check(run: TrainingRun, job: TrainingJob, n_lost: int = 0) -> None:
    """Check that a run, with ``n_lost`` workers lost, has trained, tells of its models, is billed, and left nothing."""
    assert run.status == "finished", run.reason
    assert run.history["step"].tolist() == list(range(1, run.history.n_steps + 1))
    # Rows without clusters are fitted better and better, and held-out ones may be no better for it.
    for_training = run.history["loss" if job.model.kind == "k-means" else "validation_loss"]
    assert np.isfinite(for_training[-1]), "the last loss was not told"
    assert for_training[-1] < for_training[np.isfinite(for_training)][0]
    assert all(np.isfinite(np.asarray(array, np.float64)).all() for array in run.model.params.values())
    assert run.best is not None
    assert loss_of(run.model, job) == pytest.approx(run.best.loss, rel=1e-4)
    assert loss_of(run.last_model, job) == pytest.approx(run.history["validation_loss"][-1], rel=1e-4)
    assert run.cost.total == pytest.approx(sum(run.cost.values()))
    assert run.cost.total == run.telemetry.state.spent_usd
    check_store(run, job, n_lost)
    assert "Everything is shut down" in run.telemetry.state.events[-1].text
    assert run.left
    assert not any(run.left.values()), run.left


def check_store(run: TrainingRun, job: TrainingJob, n_lost: int) -> None:
    """Check what the bill says of the store of frames."""
    use = run.cost.store
    assert use is not None
    if job.execution != "workers":
        assert use.name == "storage"
        assert min(use.n_puts, use.n_gets, use.put_bytes, use.got_bytes) > 0
        assert 0 < use.requests_usd < run.cost.storage
        return
    assert use.name == job.store.partition("://")[0]
    # What is published beside the updates of steps, and by functions that are lost, is on the bill, too. A worker tells
    # of an update after it has published it: of its last one it tells nothing if it is lost.
    sent_bytes = run.history["sent_bytes"]
    assert use.put_bytes >= sent_bytes.sum() - n_lost * sent_bytes.max()
    assert use.got_bytes > 0 or job.workers == 1


def loss_of(model: Any, job: TrainingJob) -> float:
    """The loss of a returned model on the rows that the job holds out."""
    train, held_out = job.data.split(0.1, job.seed)
    if job.model.kind == "pmf":
        return rmse_in_training(model, held_out)
    params = job.model.table_of(model)
    # As they are packed: an implicit model draws items within each minibatch.
    owners = train.owners(job.workers) if is_by_user(job) else None
    losses = [job.model.evaluate(params, cut(), 0.0) for cut in held_out.cuts(60, None, owners)[1]]
    return float(job.model.metric_value(sum(losses), held_out.n))
