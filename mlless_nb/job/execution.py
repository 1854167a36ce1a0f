"""Which functions a run has, and which settings make sense with functions that live for a part of a step only."""

from __future__ import annotations

from typing import Any

from ..errors import JobError
from ..exchange.stores import REDIS, STORAGE
from ..validation import check_positive_integer
from .algorithm import GradientAveraging
from .scale_in import ScaleIn
from .sync import BSP

WORKERS, MAP_REDUCE, EVENTS = "workers", "map-reduce", "events"
EXECUTIONS = (WORKERS, MAP_REDUCE, EVENTS)
#: Workers for each reducer of an event-driven run, unless the job says how many reducers there are.
WORKERS_PER_REDUCER = 4


def is_without_redis(job: Any) -> bool:
    """Whether workers of ``job`` are coordinated in the object storage: it keeps their updates, and no Redis is named.

    Functions that prepare stored files are coordinated on Redis.
    """
    return job.store == STORAGE and job.redis_urls is None and job.execution == WORKERS and not job.is_stored


def settle(job: Any) -> None:
    """Replace the defaults of ``job`` that do not suit its functions.

    Where none outlives a step, rows are cut by position. Neither there nor where late updates are dropped does the
    tuner remove workers.
    """
    is_stateless = job.execution != WORKERS
    replaced: list[tuple[str, Any, Any]] = [("partition", "auto", "rows")] if is_stateless else []
    if is_stateless or not job.sync.counts_all:
        replaced.append(("scale_in", ScaleIn(), ScaleIn.off()))
    if job.execution == EVENTS and job.is_counted:
        n_rows, _ = job.model.table_shape(job.data.shape)
        replaced.append(("reducers", None, min(-(-job.workers // WORKERS_PER_REDUCER), n_rows)))
    for name, default, value in replaced:
        if getattr(job, name) == default:
            object.__setattr__(job, name, value)


def check_execution(job: Any) -> None:
    """Raise JobError if a setting of ``job`` needs something that outlives a step where no function does."""
    check_positive_integer("reducers", job.reducers, or_none=True)
    if job.reducers is not None and job.execution != EVENTS:
        raise JobError("reducers", job.reducers, f"None with execution={job.execution!r}")
    if job.execution == WORKERS:
        return
    if job.reducers is not None and job.is_counted:
        n_rows, _ = job.model.table_shape(job.data.shape)
        if job.reducers > n_rows:
            raise JobError("reducers", job.reducers, f"at most {n_rows}, the rows of the model's table")
    if job.model.algorithm is not None:
        raise JobError("execution", job.execution, f"{WORKERS!r} with {job.model}: no stage runs {job.algorithm}")
    how = f"with execution={job.execution!r}"
    for field, holds, valid in (
        ("sync", isinstance(job.sync, BSP), f"BSP() {how}: no residual and no replica outlives a step"),
        ("codec", job.codec == "float32", f"'float32' {how}: no rounding error outlives a step"),
        ("scale_in", not job.scale_in.enabled, f"ScaleIn.off() {how}: no worker outlives a step"),
        ("partition", job.partition == "rows", f"'rows' or 'auto' {how}: no function owns users"),
        ("pattern", job.pattern == "auto", f"'auto' {how}, which decides it"),
        ("store", job.store == REDIS, f"{REDIS!r} {how}: updates are in the object storage anyway"),
        ("algorithm", isinstance(job.algorithm, GradientAveraging), f"GradientAveraging() {how}"),
    ):
        if not holds:
            raise JobError(field, getattr(job, field), valid)
