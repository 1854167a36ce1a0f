"""The policy's entry point: rows and reports in; decisions, workers to remove and forecasts out. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ...exchange.step_report import Report
from .cost_scale_in import CostScaleIn
from .decision import Decision
from .forecast import forecast
from .loss_history import History
from .paper_scale_in import PaperScaleIn
from .projection import Prices, Projection
from .scale_in import ScaleInTuner
from .victim import worst_worker

__all__ = ["Policy", "Prices"]

#: The longest interval between two forecasts: seconds, and a share of the run's time so far (for short runs).
FORECAST_S, FORECAST_SHARE = 2.0, 0.2


def make_tuner(
    scale_in: dict[str, Any],
    n_workers: int,
    stop: dict[str, Any],
    prices: Prices,
    history: History,
    n_cores: int = 0,
) -> CostScaleIn | ScaleInTuner | PaperScaleIn:
    """The tuner for ``scale_in``, the fields of a `ScaleIn`."""
    if scale_in.get("policy") == "paper":
        return PaperScaleIn(scale_in, n_workers, stop, prices, history)
    if scale_in.get("global_minibatch") == "keep":
        return CostScaleIn(scale_in, n_workers, stop, prices, history, n_cores)
    return ScaleInTuner(scale_in, n_workers, stop, prices, history)


class Policy:
    """The tuner and the forecasts of one run, which share one history.

    Parameters
    ----------
    scale_in : dict
        Fields of ``ScaleIn``.
    n_workers : int
        Workers at the start.
    stop : dict
        Fields of ``Stop``.
    prices : Prices
    has_held_out : bool
        Whether the job has held-out rows.
    n_cores : int
        Cores that all workers share; 0: each worker has its own.
    """

    def __init__(
        self,
        scale_in: dict[str, Any],
        n_workers: int,
        stop: dict[str, Any],
        prices: Prices,
        has_held_out: bool = False,
        n_cores: int = 0,
    ) -> None:
        self._history = History(has_held_out)
        self._stop, self._prices = stop, prices
        self._tuner = make_tuner(scale_in, n_workers, stop, prices, self._history, n_cores)
        self._has_tuner = bool(scale_in["enabled"]) and n_workers > 1
        self._forecast_at_s = 0.0
        self._made: list[tuple[Decision, int | None]] = []

    def append(self, row: Sequence[float | None]) -> None:
        """Append a step's row, with the columns of `mlless_nb.telemetry.live.COLUMNS`."""
        self._history.append(row)

    @property
    def is_tuning(self) -> bool:
        """Whether the knee or a removal may be near, so that steps should be polled more often."""
        return self._tuner.is_on and self._history.n > 0 and self._history.last("n_workers") > 1

    @property
    def tuner(self) -> str:
        """ "on", "paused", or "off" where the job has no tuner."""
        return ("on" if self._tuner.is_on else "paused") if self._has_tuner else "off"

    def switch(self, on: bool) -> str:
        """Pause or resume the tuner; returns why that is impossible, "" if it was done."""
        if not self._has_tuner:
            return "the run has no auto-tuner (ScaleIn.off(), or one worker)"
        self._tuner.pause(on=on)
        history = self._history
        step, time_s = (int(history.last("step")), history.last("time_s")) if history.n else (0, 0.0)
        text = f"The auto-tuner is {'on again' if on else 'paused until it is resumed'}"
        self._made.append((Decision("tuner", step, time_s, text), None))
        return ""

    def pause_for_user(self) -> None:
        """Pause the tuner if it is on, since the user has removed workers."""
        if self.tuner == "on":
            self.switch(False)

    def decide(
        self, reports: Mapping[int, Report], leaving: Collection[int], cap_usd: float | None = None
    ) -> list[tuple[Decision, int | None]]:
        """Decisions, each with the slot of the worker that leaves, if one does.

        Parameters
        ----------
        reports : Mapping
            The newest report of each slot.
        leaving : collection of int
            Slots that have left or leave already.
        cap_usd : float, optional
            The budget cap.
        """
        staying = [slot for slot in sorted(reports) if slot not in leaving]
        if isinstance(self._tuner, CostScaleIn):
            self._tuner.cap_usd = cap_usd
        found, self._made = self._made, []
        for decision in self._decisions():
            if decision.kind != "remove":
                found.append((decision, None))
            elif len(staying) > 1:
                worker = worst_worker(reports, staying)
                staying.remove(worker)
                found.append((decision.about(worker), worker))
        return found

    def _decisions(self) -> list[Decision]:
        """The tuner's decisions; a numerical error switches the tuner off and never ends the run."""
        try:
            return self._tuner.decide()
        except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
            self._has_tuner = self._tuner.is_on = False
            history = self._history
            text = f"The auto-tuner is off: {type(error).__name__}: {error}"
            return [Decision("tuner", int(history.last("step")), history.last("time_s"), text)]

    def state(self, cap_usd: float | None) -> dict[str, Any]:
        """Fields of `mlless_nb.telemetry.live.RunState`: whether the tuner is on, and a new forecast if one is due."""
        made = self.forecast(cap_usd)
        return {"tuner": self.tuner} | ({"forecast": made} if made is not None else {})

    def forecast(self, cap_usd: float | None) -> dict[str, Any] | None:
        """A new forecast when one is due, else None."""
        history = self._history
        if history.n < 2:
            return None
        since_s = history.last("time_s") - self._forecast_at_s
        if since_s < min(FORECAST_S, FORECAST_SHARE * history.last("time_s")):
            return None
        self._forecast_at_s = history.last("time_s")
        times = self._tuner.times
        times.measure(history, history.since_change())
        return forecast(history, Projection(history, self._stop, self._prices, times, self._tuner.efficiency), cap_usd)
