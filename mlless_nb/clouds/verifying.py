"""One small run on a deployment, and a report of it that can be sent: it names no account and no server.

Only the reason of a failure may hold more, as a sentence; it is printed, to be read first.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..data import datasets
from ..driver.backends import deployed
from ..driver.runs import train
from ..errors import RunError
from ..exchange.stores import REDIS, STORAGE
from ..job.job import TrainingJob
from ..job.limits import Stop
from ..job.optimizers import SGD
from ..job.scale_in import ScaleIn
from ..job.sync import BSP
from ..models import PMF

#: Most that the run may cost, US dollars; it costs about a tenth of that.
CAP_USD = 0.01
#: Longest wait for its end, seconds.
PATIENCE_S = 300.0
WORKERS, STEPS = 2, 20


def job(backend: str | Mapping[str, Any], redis: str | None = None, memory_mb: int = 1024) -> TrainingJob:
    """The run: two workers, twenty steps, on generated ratings; without a Redis updates are in the bucket."""
    is_without_redis = deployed.find(backend) is not None and redis is None and not deployed.servers_of(backend)
    return TrainingJob(
        model=PMF(rank=4, l2=0.02),
        optimizer=SGD(learning_rate=2.0),
        data=datasets.synthetic_ratings(200, 100, 4000, rank=4, seed=1),
        sync=BSP(),
        workers=WORKERS,
        minibatch=200,
        stop=Stop(steps=STEPS),
        scale_in=ScaleIn.off(),
        backend=backend,
        redis=redis,
        store=STORAGE if is_without_redis else REDIS,
        memory_mb=memory_mb,
        budget=CAP_USD,
        detach=False,
    )


def verify(backend: str | Mapping[str, Any], redis: str | None = None, memory_mb: int = 1024) -> dict[str, Any]:
    """Run it there and on this machine, and compare.

    Parameters
    ----------
    backend, redis, memory_mb
        As of a `TrainingJob`.

    Returns
    -------
    dict
        What happened: versions, times (s), cost (US dollars), digests of both models; ``is_good`` says whether the run
        finished with all its steps.

    Raises
    ------
    JobError, ServiceError
        If the run cannot be started.
    """
    there = _outcome(job(backend, redis, memory_mb))
    here = _outcome(job("embedded", memory_mb=memory_mb))
    return {
        "is_good": there["status"] == "finished" and there["steps"] == STEPS,
        "is_same_model": there["model"] is not None and there["model"] == here["model"],
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("mlless_nb", "lithops", "numpy")},
        },
        "platform": f"{sys.platform} {platform.machine()}",
        "memory_mb": memory_mb,
        "workers": WORKERS,
        "there": there,
        "here": here,
    }


def write(report: Mapping[str, Any], path: Path) -> None:
    """Write the report as JSON."""
    path.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def _outcome(job: TrainingJob) -> dict[str, Any]:
    began = time.monotonic()
    run = train(job)
    status = run.wait(PATIENCE_S)
    if run.telemetry.state.is_live:
        run.stop()
    try:
        params = run.last_model.params
        digest = hashlib.sha256(b"".join(params[name].tobytes() for name in sorted(params))).hexdigest()
    except RunError:
        digest = None
    return {
        "status": status,
        "reason": run.reason if status == "failed" else "",
        "steps": run.telemetry.state.step,
        "model": digest,
        "whole_s": round(time.monotonic() - began, 2),
        "training_s": round(float(run.telemetry.state.time_s), 2),
        "cost_usd": dict(run.cost),
    }
