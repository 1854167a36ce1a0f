"""`compare`: the curves of several runs over each other, and the settings in which they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CommandError, JobError
from ..telemetry import record
from ..telemetry.live import COLUMNS
from ..tracking import TrackedRun, differing
from .listing import known
from .run import TrainingRun
from .runs import handles

#: Most runs in one figure: more curves cannot be told from each other.
MOST_RUNS = 20


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison.

    Attributes
    ----------
    label : str
        Its name, with its id if another one has the same name.
    entry : TrackedRun
    seconds, dollars, losses : float64 (n,)
        Its evaluations: held-out losses, or training losses if it has no held-out rows.
    is_validation : bool
        Whether these are held-out losses.
    """

    label: str
    entry: TrackedRun
    seconds: NDArray[np.float64]
    dollars: NDArray[np.float64]
    losses: NDArray[np.float64]
    is_validation: bool


@dataclass(frozen=True, repr=False)
class Comparison:
    """Several runs beside each other. In a notebook it shows as a table and a figure.

    Attributes
    ----------
    runs : tuple of ComparedRun
    settings : dict
        Those that differ: values by name, in the runs' order; None where a run has none.
    """

    runs: tuple[ComparedRun, ...]
    settings: dict[str, list[Any]]

    def plot(self) -> Any:
        """The losses against seconds and against dollars, as a plotly ``Figure``."""
        from ..widgets.comparison import plotly_figure

        return plotly_figure(self)

    def __repr__(self) -> str:
        from ..widgets.comparison import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from ..widgets.comparison import as_html

        return as_html(self)

    def _ipython_display_(self) -> None:
        from ..widgets.comparison import show

        show(self)


def compare(*runs: TrainingRun | str) -> Comparison:
    """Compare runs: losses against seconds and against dollars, and only the settings that differ.

    Parameters
    ----------
    *runs : TrainingRun or str
        Handles, names or ids, two or more; a name means the newest run that has it. Ended runs are read from their
        records, whichever notebook has trained them; live ones must be this process' own.

    Raises
    ------
    JobError
        If there are fewer than two, or more than 20.
    CommandError
        If one is unknown, or live in another process.
    """
    for run in runs:
        if not isinstance(run, (TrainingRun, str)):
            raise JobError("runs", run, "handles, names or ids of runs")
    if not 2 <= len(runs) <= MOST_RUNS:
        raise JobError("runs", len(runs), f"two to {MOST_RUNS} runs, e.g. compare('first', 'second')")
    entries = known()
    chosen = [_entry(run, entries) for run in runs]
    labels = [entry.name for entry in chosen]
    compared = tuple(
        _compared(entry, entry.name if labels.count(entry.name) == 1 else f"{entry.name} ({entry.id})")
        for entry in chosen
    )
    return Comparison(compared, differing([entry.settings for entry in chosen]))


def _entry(run: TrainingRun | str, entries: list[TrackedRun]) -> TrackedRun:
    wanted = run.id if isinstance(run, TrainingRun) else run
    found = next((entry for entry in reversed(entries) if wanted in (entry.id, entry.name)), None)
    if found is None:
        newest = ", ".join(dict.fromkeys(entry.name for entry in reversed(entries[-8:]))) or "none"
        raise CommandError(f"no run is called {wanted!r}; the newest: {newest}")
    return found


def _recorded(entry: TrackedRun) -> NDArray[np.float64]:
    """The rows of an ended run; none if it ended before its functions were invoked, which leaves no record."""
    try:
        return record.find(entry.id)[1]
    except CommandError:
        if entry.is_live:
            raise
        return record.to_array([])


def _compared(entry: TrackedRun, label: str) -> ComparedRun:
    handle = next((each for each in handles() if each.id == entry.id), None)
    rows = handle.telemetry.rows_since(0) if handle is not None else _recorded(entry)
    column = {name: rows[:, number] for number, name in enumerate(COLUMNS)}
    known_losses = np.isfinite(column["validation_loss"])
    is_validation = bool(known_losses.any())
    losses = column["validation_loss" if is_validation else "loss"]
    at = np.flatnonzero(np.isfinite(losses))
    return ComparedRun(label, entry, column["time_s"][at], column["spent_usd"][at], losses[at], is_validation)
