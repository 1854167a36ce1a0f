"""One run as the list of all runs has it, and the settings of its job without secrets. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..bus.urls import mask_url
from ..data.dataset import Dataset
from ..data.stored_files import StoredFiles
from ..job.job import TrainingJob, backend_name
from ..job.limits import AllottedBudget, Budget
from ..redaction import scrubbed_values
from ..telemetry.live import LIVE

#: Fields of a job that say nothing about how it trains, or may hold secrets.
LEFT_OUT = ("name", "redis", "bus", "insecure", "detach")
#: Most characters of a text among the settings; longer ones, e.g. the source of a model, are cut.
MOST_TEXT = 200


@dataclass(frozen=True)
class TrackedRun:
    """One run of the list.

    Attributes
    ----------
    id, name : str
    began_s : float
        When it began, seconds since 1970.
    session, project, sweep : str
        The budgets that it belongs to, and the sweep that it is a trial of; "" for none.
    model, data : str
        E.g. "PMF rank 20" and "MovieLens-1M".
    settings : dict
        The fields of its job as plain JSON, without secrets.
    metric : str
        "RMSE", "log loss" ...
    best_loss, last_loss : float or None
        The lowest held-out loss and the last one; without held-out rows the last one is that of training.
    steps : int
    seconds, usd : float
        From the invocation of its functions to its end; all that was billed. So far, while it is live.
    status, reason : str
        One of starting, running, finished, stopped, pruned (by its sweep), capped, failed; and one sentence on why.
    """

    id: str
    name: str
    began_s: float
    session: str = ""
    project: str = ""
    sweep: str = ""
    model: str = ""
    data: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    metric: str = ""
    best_loss: float | None = None
    last_loss: float | None = None
    steps: int = 0
    seconds: float = 0.0
    usd: float = 0.0
    status: str = "starting"
    reason: str = ""

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.status in LIVE

    def is_trial_of(self, sweep: str) -> bool:
        """Whether it is a trial of the sweep of this name or id; with "" whether it is one of none."""
        return sweep in (self.sweep, self.sweep.rpartition("-")[0])

    @property
    def label(self) -> str:
        """What was trained, e.g. "PMF rank 20 · MovieLens-1M"."""
        return " · ".join(part for part in (self.model, self.data) if part)


def trials_of(sweep: str, runs: Sequence[TrackedRun]) -> list[TrackedRun]:
    """The trials, among ``runs`` by date, of the sweep of this id, or of the newest one of this name; "": of none."""
    found = [run for run in runs if run.is_trial_of(sweep)]
    ids = [run.sweep for run in found]
    the_id = sweep if sweep in ids or not ids else ids[-1]
    return [run for run in found if run.sweep == the_id]


def losses_of(state: Mapping[str, Any]) -> dict[str, float | None]:
    """The best and the last loss of a run with this ``state`` (`mlless_nb.telemetry.live.RunState` by field)."""
    validation = state.get("validation_loss")
    return {
        "best_loss": state.get("best_loss"),
        "last_loss": state.get("loss") if validation is None else validation,
    }


def settings_of(job: TrainingJob) -> dict[str, Any]:
    """The fields of ``job`` as plain JSON, without secrets; data is named."""
    values = {entry.name: getattr(job, entry.name) for entry in fields(job) if entry.name not in LEFT_OUT}
    values["store"], values["backend"] = mask_url(job.store), backend_name(job.backend)
    plain: dict[str, Any] = scrubbed_values({name: _plain(value) for name, value in values.items()})
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, AllottedBudget):
        return None  # it was the rest of another budget, not a setting
    if isinstance(value, Budget):
        return value.usd
    if isinstance(value, (Dataset, StoredFiles)):
        return getattr(value, "name", type(value).__name__)
    if hasattr(value, "to_json"):
        value = value.to_json()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {name: each for name, each in dataclasses.asdict(value).items() if each is not None}
    if isinstance(value, Mapping):
        if {"name", "source", "sha256"} <= set(value):  # a class of the user's, see `mlless_nb.models.definition`
            return f"{value['name']} {str(value['sha256'])[:12]}"
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return value
    if isinstance(value, int):
        return int(value)
    text = str(value)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}..."


def flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """``settings`` with the names of nested fields joined: {"optimizer.learning_rate": 30.0, ...}."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{above}{name}.")
        else:
            found[f"{above}{name}"] = value
    return found


def differing(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The settings that are not the same in all runs: values by name, in the runs' order; None where a run has none."""
    flattened = [flat(each) for each in settings]
    names = dict.fromkeys(name for each in flattened for name in each)
    values = {name: [each.get(name) for each in flattened] for name in names}
    return {name: each for name, each in values.items() if any(value != each[0] for value in each)}
