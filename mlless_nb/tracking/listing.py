"""What `mlless_nb.runs` returns: the list of runs as a table for people, and for pandas, Polars and Arrow."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from typing import Any, overload

from ..errors import CommandError, MllessError
from .entry import TrackedRun, flat


class Runs:
    """Runs, oldest first. In a notebook it shows as a table.

    ``runs[-1]`` is the newest one, ``runs["first"]`` the newest one of that name or id, ``run in runs`` asks for a
    handle, a name or an id.

    Parameters
    ----------
    entries : sequence of TrackedRun
    n_others : int
        Runs of the list that are not among them.
    are_trials : bool
        Whether they are trials of a sweep: the table then has the settings that differ, and the best one first.
    """

    def __init__(self, entries: Sequence[TrackedRun], n_others: int = 0, *, are_trials: bool = False) -> None:
        self._entries, self._n_others, self._are_trials = tuple(entries), n_others, are_trials

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[TrackedRun]:
        return iter(self._entries)

    @overload
    def __getitem__(self, at: int | str) -> TrackedRun: ...
    @overload
    def __getitem__(self, at: slice) -> Runs: ...
    def __getitem__(self, at: int | str | slice) -> TrackedRun | Runs:
        if isinstance(at, slice):
            return Runs(self._entries[at], are_trials=self._are_trials)
        if not isinstance(at, str):
            return self._entries[at]
        for run in reversed(self._entries):
            if at in (run.name, run.id):
                return run
        newest = ", ".join(dict.fromkeys(run.name for run in reversed(self._entries[-8:]))) or "none"
        raise CommandError(f"no run is called {at!r}; the newest: {newest}")

    def __contains__(self, run: object) -> bool:
        wanted = getattr(run, "id", run)
        return any(wanted == each.id or (isinstance(run, str) and run == each.name) for each in self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and self._entries == other._entries

    def __hash__(self) -> int:
        return hash(tuple(run.id for run in self._entries))

    def spend(self) -> Spend:
        """What the runs have cost, by day and project."""
        sums: dict[tuple[datetime.date, str], list[TrackedRun]] = {}
        for run in self._entries:
            day = datetime.datetime.fromtimestamp(run.began_s).date()
            sums.setdefault((day, run.project), []).append(run)
        return Spend(
            tuple(
                DayOfProject(*key, len(group), round(sum(run.usd for run in group), 9)) for key, group in sums.items()
            )
        )

    def to_pandas(self) -> Any:
        """The runs as a ``pandas.DataFrame`` (needs pandas); settings are columns: ``optimizer.learning_rate``."""
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise MllessError("runs.to_pandas() needs pandas; install it: pip install pandas") from None
        frame = pd.DataFrame(self._columns())
        frame["began"] = pd.to_datetime(frame["began"], utc=True)
        return frame

    def to_arrow(self) -> Any:
        """The runs as a ``pyarrow.Table`` (needs pyarrow), with the columns of `to_pandas`."""
        try:
            import pyarrow as pa
        except ModuleNotFoundError:
            raise MllessError("runs.to_arrow() needs pyarrow; install it: pip install pyarrow") from None
        columns = self._columns()
        columns["began"] = pa.array(columns["began"], pa.timestamp("us", "UTC"))
        for name, values in columns.items():
            if isinstance(values, list) and len({type(value) for value in values if value is not None}) > 1:
                are_numbers = all(isinstance(value, (int, float)) for value in values if value is not None)
                columns[name] = [
                    None if value is None else float(value) if are_numbers else str(value) for value in values
                ]
        return pa.table(columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The Arrow C stream of `to_arrow`, which Polars and others read."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _columns(self) -> dict[str, Any]:
        """The columns by name: the fields of `TrackedRun`, and each setting."""
        names = [entry.name for entry in dataclasses.fields(TrackedRun) if entry.name not in ("settings", "began_s")]
        columns: dict[str, Any] = {name: [getattr(run, name) for run in self._entries] for name in names}
        moments = [datetime.datetime.fromtimestamp(run.began_s, datetime.UTC) for run in self._entries]
        columns = {"began": moments, **columns}
        settings = [flat(run.settings) for run in self._entries]
        for name in dict.fromkeys(name for each in settings for name in each):
            values = [each.get(name) for each in settings]
            shown = [str(value) if isinstance(value, list) else value for value in values]
            columns.setdefault(name, shown)
        return columns

    def __repr__(self) -> str:
        from ..widgets.run_tables import runs_text

        return runs_text(self._entries, self._n_others, are_trials=self._are_trials)

    def _repr_html_(self) -> str:
        from ..widgets.run_tables import runs_html

        return runs_html(self._entries, self._n_others, are_trials=self._are_trials)


@dataclasses.dataclass(frozen=True)
class DayOfProject:
    """What the runs of one project ("" for those of none) that began on one day have cost, US dollars."""

    day: datetime.date
    project: str
    n_runs: int
    usd: float


@dataclasses.dataclass(frozen=True, repr=False)
class Spend:
    """Dollars by day and project, the oldest day first.

    Attributes
    ----------
    rows : tuple of DayOfProject
    """

    rows: tuple[DayOfProject, ...]

    @property
    def total(self) -> float:
        """All dollars."""
        return round(sum(row.usd for row in self.rows), 9)

    def __repr__(self) -> str:
        from ..widgets.run_tables import spend_text

        return spend_text(self)

    def _repr_html_(self) -> str:
        from ..widgets.run_tables import spend_html

        return spend_html(self)
