"""What the tables of `designs.py` share: the fields of their jobs, and a run that must finish."""

from __future__ import annotations

from typing import Any

import mlless_nb
from mlless_nb import ScaleIn, TrainingJob

COMMON: dict[str, Any] = {"scale_in": ScaleIn.off(), "validation": None, "schedule": "constant"}


def finished(job: TrainingJob) -> Any:
    """The run of a job, which must finish."""
    run = mlless_nb.train(job)
    if run.wait() != "finished":
        raise SystemExit(f"{job!r} ended as {run.status}: {run.reason}")
    return run
