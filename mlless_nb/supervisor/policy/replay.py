"""Replay: the decisions that another `ScaleIn` would make on the rows of a recorded run."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import CommandError
from ...job.scale_in import ScaleIn
from ...money import Rates
from ...telemetry import record as records
from .cost_scale_in import CostScaleIn
from .decision import Decision
from .loss_history import History
from .policy import make_tuner
from .projection import Prices


def inputs_of(job: Any, n_cores: int, rates: Rates) -> dict[str, Any]:
    """The inputs of the policy's decisions beside the rows, for the record.

    Parameters
    ----------
    job : TrainingJob
    n_cores : int
        Cores that all workers share; 0: each has its own.
    rates : Rates
    """
    return {
        "n_workers": job.workers,
        "n_cores": n_cores,
        "cap_usd": job.cap_usd,
        "stop": dataclasses.asdict(job.stop_rules),
        "scale_in": job.scale_in.to_json(),
        **dataclasses.asdict(Prices.of(rates)),
    }


def replay(record: str | tuple[dict[str, Any], NDArray[np.float64]], scale_in: ScaleIn) -> list[Decision]:
    """The decisions that ``scale_in`` makes on a recorded run, oldest first.

    The rows are the recorded ones; decisions made here do not change them, except for the number of workers. A removal
    takes effect with the next row: from then on the tuner sees at most the workers it left, and at most those recorded.

    Parameters
    ----------
    record : str or tuple
        Id or name of an ended run of this machine, or a pair of its job (``stop``, ``worker_usd_s``, ``fixed_usd_s``
        and ``n_workers``, as in the record) and its rows, float64 (n, len(COLUMNS)).
    scale_in : ScaleIn

    Raises
    ------
    CommandError
        If there is no such run, or its record does not hold the job's fields.
    """
    if isinstance(record, str):
        summary, rows, _ = records.find(record)
        job = summary.get("job")
    else:
        job, rows = record
    try:
        prices = Prices(float(job["worker_usd_s"]), float(job["fixed_usd_s"]))  # type: ignore[index]
        n_workers, stop = int(job["n_workers"]), dict(job["stop"])  # type: ignore[index]
        n_cores, cap_usd = int(job.get("n_cores", 0)), job.get("cap_usd")  # type: ignore[union-attr]
    except (KeyError, TypeError, ValueError) as error:
        raise CommandError(f"the record does not hold its job's fields ({error!r}); it cannot be replayed") from error
    from ...telemetry.live import COLUMNS

    history = History(bool(np.isfinite(rows[:, COLUMNS.index("validation_loss")]).any()))
    tuner = make_tuner(scale_in.to_json(), n_workers, stop, prices, history, n_cores)
    if isinstance(tuner, CostScaleIn):
        tuner.cap_usd = cap_usd
    workers = COLUMNS.index("n_workers")
    removed, decisions = 0, []
    for row in rows:
        values = row.tolist()
        values[workers] = min(values[workers], n_workers - removed)
        history.append(values)
        found = tuner.decide()
        removed += sum(decision.kind == "remove" for decision in found)
        decisions += [decision.about(None) for decision in found]
    return decisions
