"""The state of a run before its supervisor has reported anything."""

from __future__ import annotations

from typing import Any

from ...job.job import TrainingJob
from ...money.meter import NUSD
from ..run import TrainingRun
from ..servers.services import Services
from .data_preparation import JobData
from .launch_plan import LaunchPlan
from .resumption import Earlier, Start


def first_state(
    run: TrainingRun,
    job: TrainingJob,
    data: JobData,
    earlier: Earlier | None,
    start: Start | None,
    plan: LaunchPlan,
    services: Services,
) -> dict[str, Any]:
    """Fields of `mlless_nb.telemetry.live.RunState` of a run that begins, perhaps as one that resumes ``earlier``."""
    state: dict[str, Any] = {
        "run_id": run.id,
        "name": run.name,
        "description": job.describe() + (f" · from {earlier.name}" if earlier is not None else ""),
        "data_key": job.data.sketch(),
        "resumed_from": earlier.name if earlier is not None else "",
        "metric": job.model.metric,
        "target": job.stop_rules.target,
        "stop_rules": _limits(job),
        "baseline_loss": data.baseline_loss,
        "n_workers": job.workers,
        "budget_usd": job.cap_usd,
        "least_usd": plan.least_nusd / NUSD,
        # The cap cannot be lowered below this while the run starts.
        "committed_usd": plan.least_nusd / NUSD,
        "price_profile": plan.rates.profile.label,
        "is_simulated_price": services.launcher.is_local,
    }
    if start is not None and start.best is not None:
        state |= {"best_loss": start.best_loss, "best_step": 0, "best_epoch": 0.0}
    return state


def _limits(job: TrainingJob) -> dict[str, Any]:
    """The field ``stop_rules`` of a state."""
    rules = job.stop_rules
    given = {name: getattr(rules, name) for name in ("epochs", "steps", "time_s")}
    return {
        **{name: value for name, value in given.items() if value is not None},
        "may_settle": job.ends_settled or rules.patience is not None,
    }
