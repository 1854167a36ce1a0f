"""Optuna as the engine of a sweep: draws settings and says which trials are weak. The only module that imports it."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Mapping
from typing import Any, Literal

from ..errors import JobError, MllessError
from ..job.job import TrainingJob
from ..validation import check_choice
from .recipe import Recipe
from .space import Space, combinations

SAMPLERS = ("auto", "tpe", "random", "grid")
#: Trials of a sweep that says no number, unless a grid has fewer.
TRIALS = 20
#: One trial in so many goes on at each comparison by default, if there are twice as many: a third of five is one.
FACTOR = 3


def optuna_or_error() -> Any:
    """The package.

    Raises
    ------
    MllessError
        If it is not installed.
    """
    try:
        import optuna
    except ModuleNotFoundError:
        raise MllessError("a sweep needs Optuna; install it: pip install 'mlless_nb[sweep]'") from None
    return optuna


class Study:
    """Draws the settings of trials, and judges them by successive halving (ASHA).

    Parameters
    ----------
    spaces : Mapping of str to Space
    sampler : {"auto", "tpe", "random", "grid"}
        "auto" is the grid if the trials can be all of it, else TPE.
    trials : int, optional
    factor : int, "auto" or None
        Of successive halving; "auto": `FACTOR`, or None where that would leave a single trial. None: no trial is weak.
    seed : int

    Attributes
    ----------
    sampler : str
        The one in use.
    n_trials : int
    factor : int or None
        As above, decided.
    """

    def __init__(
        self,
        spaces: Mapping[str, Space],
        sampler: str,
        trials: int | None,
        factor: int | Literal["auto"] | None,
        seed: int,
    ) -> None:
        optuna = optuna_or_error()
        check_choice("sampler", sampler, SAMPLERS)
        grid = combinations(spaces)
        if sampler == "grid" and grid is None:
            endless = next((name for name, space in spaces.items() if space.grid is None), next(iter(spaces)))
            raise JobError("sampler", sampler, f"tpe or random: {endless} is drawn from endlessly many values")
        if sampler == "auto":
            sampler = "grid" if grid is not None and len(grid) <= (trials or TRIALS) else "tpe"
        self.sampler, self.n_trials = sampler, trials or TRIALS
        if grid is not None and sampler == "grid":
            self.n_trials = min(trials or len(grid), len(grid))
        if factor == "auto":
            factor = FACTOR if self.n_trials >= 2 * FACTOR else None
        self.factor = factor
        pruner = optuna.pruners.NopPruner()
        if factor is not None:
            pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=factor)
        kinds = {
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed, n_startup_trials=min(max(self.n_trials // 3, 3), 10)),
            "random": lambda: optuna.samplers.RandomSampler(seed=seed),
            "grid": lambda: optuna.samplers.RandomSampler(seed=seed),  # which only draws what is not in the queue
        }
        if optuna.logging.get_verbosity() == optuna.logging.INFO:  # its default: a line for each trial
            optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study, self._lock = optuna.create_study(sampler=kinds[sampler](), pruner=pruner), threading.Lock()
        self._states = optuna.trial.TrialState
        if grid is not None and sampler == "grid":
            random.Random(seed).shuffle(grid)
            for values in grid:
                self._study.enqueue_trial(values)

    def ask(self, recipe: Recipe) -> Asked:
        """The next trial; its job may be wrong, see `Asked`."""
        with self._lock:
            return Asked(self, self._study.ask(), recipe)

    def report(self, asked: Asked, loss: float, resource: int) -> bool:
        """Note a trial's lowest loss so far; returns whether it is to be stopped as a weak one."""
        with self._lock:
            asked.trial.report(loss, resource)
            return bool(asked.trial.should_prune())

    def tell(self, asked: Asked, loss: float | None) -> None:
        """Note that a trial has ended at its end with this loss; None: before its end, or without a loss."""
        with self._lock:
            if loss is not None and math.isfinite(loss):
                self._study.tell(asked.trial, loss)
            else:
                self._study.tell(asked.trial, state=self._states.PRUNED)


class Asked:
    """A trial that is to be run.

    Attributes
    ----------
    settings : dict
        What was drawn, by name.
    job : TrainingJob or None
        None if these settings make no job.
    error : MllessError or None
        Why not.
    """

    def __init__(self, study: Study, trial: Any, recipe: Recipe) -> None:
        self.trial = trial
        self.settings: dict[str, Any] = {}
        self.job: TrainingJob | None = None
        self.error: MllessError | None = None

        def draw(name: str, space: Space) -> Any:
            if name not in self.settings:
                self.settings[name] = space.drawn(name, trial)
            return self.settings[name]

        try:
            self.job = recipe(draw)
        except MllessError as error:
            self.error = error
