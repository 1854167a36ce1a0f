"""How many epochs a job takes if it descends as an earlier run did: from the handle on that run, or from its record."""

from __future__ import annotations

import numpy as np

from ..driver.run import TrainingRun
from ..errors import JobError
from ..job.job import TrainingJob
from ..telemetry import record
from ..telemetry.live import LIVE, History


def epochs_of_run(job: TrainingJob, run: TrainingRun | str) -> tuple[float, str]:
    """The epochs that ``run`` took, with a target of ``job`` those until it reached that, and how they were found.

    Parameters
    ----------
    job : TrainingJob
    run : TrainingRun or str
        An ended run, or the name or id of one on this machine.

    Raises
    ------
    JobError
        If the run is live, began where another one had ended, has taken no step, or did not reach the target.
    CommandError
        If there is no such run.
    """
    if isinstance(run, TrainingRun):
        state, history = run.telemetry.state.to_json(), run.history
    else:
        summary, rows, _ = record.find(run)
        state, history = summary["state"], History(rows)
    name = state["name"] or state["run_id"]
    if state["status"] in LIVE:
        raise JobError("epochs", name, "a run that has ended")
    if state.get("resumed_from"):
        raise JobError("epochs", name, f"a run that began anew, not one that goes on from {state['resumed_from']}")
    if not history.n_steps:
        raise JobError("epochs", name, "a run that has taken a step")
    target = job.stop_rules.target
    if target is None:
        return float(history["epoch"][-1]), f"those of the run {name}"
    if state.get("metric") != job.model.metric:
        raise JobError(
            "epochs", name, f"a run whose loss is {job.model.metric} as the target is, not {state.get('metric')}"
        )
    is_validated = bool(np.isfinite(history["validation_loss"]).any())
    losses = history["validation_loss" if is_validated else "loss"]
    reached = np.flatnonzero(losses <= target)
    if not len(reached):
        lowest = float(np.nanmin(losses))
        raise JobError("epochs", name, f"a run that reached the target {target:g}: its lowest loss is {lowest:.4g}")
    return float(history["epoch"][reached[0]]), f"the run {name} reached the target {target:g} in these"
