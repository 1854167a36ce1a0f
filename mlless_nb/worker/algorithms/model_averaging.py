"""Model averaging: every worker trains by itself, then the parameters become the mean of the workers' parameters."""

from __future__ import annotations

from ...job.model_averaging import ModelAveraging
from .base import implements
from .gradient_averaging import AveragedGradients


@implements(ModelAveraging)
class AveragedModels(AveragedGradients):
    """The change of the parameters by this worker's local steps, divided by the number of workers.

    All workers begin a step with the same parameters, so adding these changes gives the mean of their models. This is
    what `AveragedGradients` computes with local steps.
    """
