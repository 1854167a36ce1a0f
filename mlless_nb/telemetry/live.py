"""Live telemetry: one numeric row per step, and the run's current state. The driver writes it, all threads may read."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import MllessError
from ..plurals import count
from ..redaction import scrubbed


class Row(NamedTuple):
    """The measurements of a step. A missing value is ``None``, and NaN in a history."""

    step: float  # 1-based
    epoch: float  # passes over the training data so far, a fraction
    time_s: float  # seconds since the functions were invoked
    loss: float  # of the step's minibatches, before the update, in the model's metric
    validation_loss: float | None  # of the held-out rows, after the update, in the model's metric
    n_workers: float
    spent_usd: float  # everything billed so far
    servers_usd: float  # the part of it for Redis and RabbitMQ
    sent_bytes: float  # by all workers in this step
    received_bytes: float  # by all workers in this step
    sent_fraction: float  # published / produced parameters in this step
    compute_s: float  # mean over the workers: gradient, optimiser, filter, encoding
    exchange_s: float  # mean over the workers: publishing, fetching and applying peers' updates
    wait_s: float  # mean over the workers: for the slowest worker
    staleness: float  # mean over the workers: steps by which the oldest update not yet applied is behind; 0 without SSP
    interaction: float | None  # mean square of the factors' part of predictions, at each evaluation except the last
    compute_cpu_s: float  # mean over the workers: processor time of compute_s
    primal_residual: float | None = None  # of ADMM, for every step except the last
    dual_residual: float | None = None  # of ADMM, for every step except the last
    n_updates: float | None = None  # that the step applied; fewer than n_workers where it waits for the first ones only


#: Columns of a history, in order; all float64.
COLUMNS = Row._fields
LIVE = ("starting", "running")
ENDED = ("finished", "stopped", "capped", "failed")


@dataclass(frozen=True)
class Event:
    """One line for a user: seconds since the start, and a sentence."""

    time_s: float
    text: str


class Best(NamedTuple):
    """The lowest validation loss of a run, with its step and epoch (passes over the training data)."""

    loss: float
    step: int
    epoch: float


@dataclass(frozen=True)
class RunState:
    """The state of a run at one moment: all that a view needs beside the rows.

    ``status`` is one of starting, running, finished, stopped, capped, failed. ``pending`` holds one sentence for each
    command that was sent and not yet carried out ("removing 1 worker ..."). Amounts are in US dollars.
    """

    run_id: str = ""
    name: str = ""
    status: str = "starting"
    reason: str = ""
    resumed_from: str = ""  # the run that this one resumes from
    is_detached: bool = False  # whether a process of its own drives it, which outlives the notebook
    description: str = ""  # e.g. "PMF rank 20 · MovieLens-1M · ISP 0.7"
    data_key: str = ""  # equal for runs on the same rows, see `mlless_nb.data.dataset.Dataset.sketch`
    estimate: str = ""  # what the run was expected to take, in one line; "" before that was computed, or if it was not
    metric: str = "loss"  # "RMSE" or "log loss"
    target: float | None = None
    step: int = 0
    epoch: float = 0.0
    time_s: float = 0.0
    loss: float | None = None
    validation_loss: float | None = None
    best_loss: float | None = None  # the lowest validation loss so far; its model is the one returned
    best_step: int | None = None  # the step after which it was evaluated
    best_epoch: float | None = None
    baseline_loss: float | None = None  # of the best constant prediction on the same held-out rows
    n_workers: int = 0
    n_workers_started: int = 0
    leaving: Sequence[int] = ()  # workers that have left or are leaving
    spent_usd: float = 0.0
    committed_usd: float = 0.0  # spent, or reserved by the functions to end cleanly
    budget_usd: float | None = None
    least_usd: float = 0.0  # the least budget of such a run: what it takes to start, to take one step and to end
    rate_usd_s: float = 0.0  # dollars per second with the present number of workers
    price_profile: str = ""
    is_simulated_price: bool = True
    #: The rules that end the run: ``epochs``, ``steps``, ``time_s``, each if there is one, and whether the run
    #: ``may_settle``, so that these are upper limits.
    stop_rules: Mapping[str, Any] = field(default_factory=dict)
    #: One entry per worker, or per group of neighbours: first slot, number of slots, seconds of a step that those at
    #: work compute, exchange and wait, how many have left, the last step of the last of these, how many are leaving,
    #: and how often their functions were replaced.
    worker_times: Sequence[Sequence[Any]] = ()
    tuner: str = ""  # of scale-in: "on", "paused" until a user resumes it, "off"; "" before it is known
    forecast: dict[str, Any] | None = None  # see `mlless_nb.supervisor.policy.forecast`
    pending: tuple[str, ...] = ()
    #: What is left of the run after its end by its kind (`mlless_nb.telemetry.left`): {} before, and zeros after it.
    left: Mapping[str, int] = field(default_factory=dict)
    refusal: str = ""  # why the newest command was refused; "" if none was, or another one was sent since
    events: tuple[Event, ...] = ()

    @property
    def is_live(self) -> bool:
        """Whether functions may still be running."""
        return self.status in LIVE

    @property
    def best(self) -> Best | None:
        """The best evaluation so far, None if there is none."""
        if self.best_loss is None or self.best_step is None or self.best_epoch is None:
            return None
        return Best(self.best_loss, self.best_step, self.best_epoch)

    def to_json(self) -> dict[str, Any]:
        """The state as plain JSON."""
        return dataclasses.asdict(self)


#: What a user's command changes: its sender waits to see it, unlike rows.
ANSWERS = frozenset({"status", "budget_usd", "tuner", "leaving", "pending", "refusal"})


class History(dict[str, NDArray[np.float64]]):
    """The rows of a run by column: ``history["loss"]`` is a 1-D float64 array, one entry per step.

    A dictionary, so ``pandas.DataFrame(history)`` is a table of it.
    """

    def __init__(self, rows: NDArray[np.float64]) -> None:
        super().__init__(zip(COLUMNS, rows.T, strict=True))
        self._n_steps = len(rows)

    def __missing__(self, column: str) -> NDArray[np.float64]:
        raise KeyError(f"{column!r} is not a column; there are {', '.join(COLUMNS)}")

    @property
    def n_steps(self) -> int:
        """Number of steps."""
        return self._n_steps

    @property
    def best(self) -> Best | None:
        """The evaluation with the lowest validation loss, the first of equal ones; None if there is none."""
        losses = self["validation_loss"]
        evaluated = np.flatnonzero(np.isfinite(losses))
        if not len(evaluated):
            return None
        at = evaluated[np.argmin(losses[evaluated])]
        return Best(float(losses[at]), int(self["step"][at]), float(self["epoch"][at]))

    def to_pandas(self) -> Any:
        """The history as a ``pandas.DataFrame`` (needs pandas)."""
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise MllessError("history.to_pandas() needs pandas; install it: pip install pandas") from None

        return pd.DataFrame(self)

    def __repr__(self) -> str:
        best = f", validation loss {self.best.loss:.4g} at best at step {self.best.step}" if self.best else ""
        return f"<History of {count(self.n_steps, 'step')}{best}: {', '.join(COLUMNS)}>"


@dataclass
class Telemetry:
    """Thread-safe recorder between the feed thread, which writes, and any number of views, which read."""

    _block: NDArray[np.float64] = field(default_factory=lambda: np.empty((256, len(COLUMNS))))
    _n_rows: int = 0
    _state: RunState = field(default_factory=RunState)
    _changes: int = 0
    _answers: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._changed = threading.Condition(self._lock)
        # Who waits for answers is not woken by every row.
        self._answered = threading.Condition(self._lock)

    def append(self, rows: NDArray[np.float64]) -> None:
        """Add ``rows``, float64 of shape (n, len(COLUMNS))."""
        with self._changed:
            needed = self._n_rows + len(rows)
            if needed > len(self._block):
                grown = np.empty((max(needed, 2 * len(self._block)), len(COLUMNS)))
                grown[: self._n_rows] = self._block[: self._n_rows]
                self._block = grown
            self._block[self._n_rows : needed] = rows
            self._n_rows = needed
            self._notify()

    def update(self, **changes: Any) -> None:
        """Replace fields of the state."""
        shown: dict[str, Any] = {
            name: scrubbed(value) if isinstance(value, str) else value for name, value in changes.items()
        }
        with self._changed:
            before, self._state = self._state, dataclasses.replace(self._state, **shown)
            if any(getattr(before, name) != shown[name] for name in ANSWERS.intersection(shown)):
                self._answers += 1
                self._answered.notify_all()
            self._notify()

    def add_event(self, time_s: float, text: str) -> None:
        """Add an event; the newest 200 are kept."""
        with self._changed:
            events = (*self._state.events, Event(time_s, scrubbed(text)))[-200:]
            self._state = dataclasses.replace(self._state, events=events)
            self._notify()

    def _notify(self) -> None:
        self._changes += 1
        self._changed.notify_all()

    @property
    def state(self) -> RunState:
        """The state now."""
        return self._state

    @property
    def n_bytes(self) -> int:
        """Bytes of memory allocated for rows."""
        return self._block.nbytes

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._n_rows

    @property
    def newest_step(self) -> int:
        """Step of the newest row, 0 before the first."""
        with self._changed:
            return int(self._block[self._n_rows - 1, 0]) if self._n_rows else 0

    def rows_since(self, index: int) -> NDArray[np.float64]:
        """A copy of the rows from ``index`` on, float64 of shape (n, len(COLUMNS))."""
        with self._changed:
            return self._block[index : self._n_rows].copy()

    def history(self) -> History:
        """All rows so far, as a snapshot."""
        return History(self.rows_since(0))

    def wait_for_change(self, seen: int, timeout_s: float) -> int:
        """Wait until there is a change after change number ``seen`` (0: none seen), or until the time is over.

        Returns the number of the latest change, to be passed to the next call.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._changes != seen, timeout_s)
            return self._changes

    def wait_for_answer(self, seen: int, timeout_s: float) -> int:
        """As `wait_for_change`, for changes of what a user's command changes (`ANSWERS`)."""
        with self._changed:
            self._answered.wait_for(lambda: self._answers != seen, timeout_s)
            return self._answers

    def wake(self) -> None:
        """End every `wait_for_change` and `wait_for_answer` now, although nothing has changed."""
        with self._changed:
            self._answers += 1
            self._answered.notify_all()
            self._notify()
