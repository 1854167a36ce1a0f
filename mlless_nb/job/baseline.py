"""The baseline: the loss of predicting one constant for every row. A useful model has a lower loss."""

from __future__ import annotations

from ..data.dataset import Dataset
from ..models import Model
from ..telemetry.live import RunState


def baseline_loss(model: Model, train: Dataset, held_out: Dataset | None) -> float | None:
    """Loss of the best constant prediction of ``train`` on ``held_out``, in the metric of ``model``.

    Returns
    -------
    float or None
        None if no rows are held out, or the model defines no baseline.
    """
    return None if held_out is None else model.baseline_loss(train, held_out)


def shortfall(state: RunState) -> str:
    """A sentence if an ended run's best loss is not below the baseline, else "" (also if either is unknown)."""
    loss = state.best_loss if state.best_loss is not None else state.validation_loss
    if state.is_live or loss is None or state.baseline_loss is None or loss < state.baseline_loss:
        return ""
    return f"no better than predicting the {constant_of(state)} ({state.baseline_loss:.4g})"


def constant_of(state: RunState) -> str:
    """The name of the best constant prediction."""
    return {"log loss": "base rate", "hinge loss": "more frequent class"}.get(state.metric, "mean")
