"""Builds the invocations of a run's functions: the only place, for the driver, the simulator and the tests."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...bus.messages import Invocation
from ...data.prepare import Manifest
from ...exchange import SUPERVISOR
from ...job.algorithm import DecidedSteps
from ...money.start import StartingMoney
from ...worker.evaluation import eval_every

#: Lease of workers and supervisor, seconds: long enough for a worker that is paused for ten seconds.
LEASE_S = 15.0
#: Longest wait of a worker for its peers in one step, seconds.
ROUND_TIMEOUT_S = 120.0
#: The surroundings of a worker that is run in this process by itself, to measure it.
DETACHED: dict[str, Any] = {
    "job_id": "detached",
    "generation": "1",
    "scatter_from": 0,
    "n_cores": 0,
    "redis_urls": [],
    "bus_url": "memory://",
    "insecure": False,
    "has_broker": False,
    "launched_at_s": 0.0,
    "spent_before_nusd": 0,
    "lifetime_s": 600.0,
}


def invocations_of(
    job: Any, manifest: Manifest, validation: Manifest | None, money: StartingMoney, **surroundings: Any
) -> list[Invocation]:
    """The invocations of a run's functions, the supervisor's first.

    Parameters
    ----------
    job : TrainingJob or Workload
    manifest, validation : Manifest
        Of the training rows, and of the held-out rows if there are any.
    money : StartingMoney
        The grant that each function starts with.
    **surroundings
        The other fields of `Invocation`, such as URLs and limits of the backend.
    """
    n_held_out = validation.n if validation is not None else 0
    common: dict[str, Any] = {
        "n_workers": job.workers,
        "model": job.model.to_json(),
        "optimizer": job.optimizer.to_json(),
        "sync": job.sync.to_json(),
        "algorithm": job.algorithm.to_json(),
        "store": job.store,
        "store_end_nusd": money.store_end_nusd,
        "coordination_nusd": money.coordination_nusd,
        "stop": dataclasses.asdict(job.stop_rules),
        "scale_in": job.scale_in.to_json(),
        "aggregate": job.aggregate,
        "local_steps": job.local_steps,
        "codec": job.codec,
        "manifest": manifest.to_json(),
        "validation": validation.to_json() if validation is not None else None,
        "eval_every": job.eval_every or _eval_every(job, n_held_out),
        "checkpoint_every": job.checkpoint_every or 0,
        "prices": job.prices,
        "memory_mb": job.memory_mb,
        "lease_s": LEASE_S,
        "round_timeout_s": ROUND_TIMEOUT_S,
        **surroundings,
    }

    def invocation(slot: int) -> Invocation:
        is_supervisor = slot == SUPERVISOR
        return Invocation(
            role="supervisor" if is_supervisor else "worker",
            slot=slot,
            granted_nusd=money.supervisor_nusd if is_supervisor else money.worker_nusd(slot),
            end_margin_nusd=money.end_margin_nusd(is_supervisor=is_supervisor),
            **common,
        )

    return [invocation(slot) for slot in (SUPERVISOR, *range(job.workers))]


def _eval_every(job: Any, n_held_out: int) -> int:
    n_minibatches = job.local_steps * job.algorithm.passes
    # A step that is an epoch takes so long that more than one in ten is evaluated.
    is_long = isinstance(job.local_steps, DecidedSteps)
    return eval_every(n_held_out, job.workers * job.minibatch * n_minibatches, n_minibatches if is_long else 1)
