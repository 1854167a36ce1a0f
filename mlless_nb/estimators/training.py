"""What the estimators share: their parameters as a job, and the run that trains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from ..data.dataset import Dataset
from ..driver.runs import train
from ..errors import JobError, RunError, WaitInterrupted
from ..job.job import TrainingJob
from ..job.limits import Stop
from ..models import FittedModel, Model
from ..starting import warn


class MLLessEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose ``fit`` is a run.

    Parameters
    ----------
    epochs : float
        Passes over the rows, at most.
    workers : int, optional
        Worker functions; None: by the number of rows.
    budget : float, optional
        The most that a fit may cost, US dollars.
    random_state : int, optional
        Seed of the order of the rows and of the start; None is 0.
    job : dict, optional
        Other fields of `TrainingJob`, e.g. ``{"backend": "aws_lambda", "sync": ISP(0.7)}``.

    Attributes
    ----------
    model_ : FittedModel
    cost_usd_ : float
        What the fit has cost, US dollars.
    n_features_in_ : int
    """

    epochs: float
    workers: int | None
    budget: float | None
    random_state: int | None
    job: Mapping[str, Any] | None

    def _train(self, model: Model, data: Dataset) -> FittedModel:
        """The model trained on ``data``; RunError if the run failed. An interrupt stops the run, too."""
        seed = 0 if self.random_state is None else self.random_state
        if isinstance(seed, np.random.RandomState):
            seed = int(seed.randint(2**31 - 1))
        if self.job is not None and not isinstance(self.job, Mapping):
            raise JobError("job", self.job, "a dict of fields of TrainingJob, or None")
        fields: dict[str, Any] = {
            "stop": Stop(epochs=self.epochs),
            "workers": self.workers,
            "budget": self.budget,
            "seed": seed,
            "validation": None,
            **(self.job or {}),
        }
        job = TrainingJob(model, data=data, **fields)
        warn(job, stacklevel=3)  # the line that has called `fit`
        run = train(job)
        try:
            status = run.wait()
        except BaseException as error:  # who interrupts `fit` means the training, and has no handle on the run
            run.stop()
            if not isinstance(error, KeyboardInterrupt):
                raise
            raise WaitInterrupted(
                f"fit was interrupted (${run.cost.total:.4g} so far); run {run.name!r} is asked to stop, what it has "
                f"learnt is kept: mlless_nb.attach({run.name!r}).model"
            ) from None
        if status == "failed":
            raise RunError(f"fit failed: {run.reason}")
        self.cost_usd_ = float(run.cost.total)
        self.model_ = run.model
        return run.model
