"""Sweeps: many runs of one job with different settings, under one budget. Weak runs are stopped early.

Trials are compared after set parts of their length, the *stages* of successive halving (Optuna's rungs).

::

    launch.py  `sweep`: begins a sweep
    handle.py  the handle on a sweep: wait, stop, budget, trials, best model
    space.py   `choice`, `uniform`, `log_uniform`, `integer`: what a setting is drawn from    pure
    recipe.py  drawn settings -> the job of a trial
    rungs.py   which stage of successive halving a trial has reached                          pure
    study.py   Optuna, which draws the settings and says which trials are weak
    runner.py  runs the trials within the common budget
    trial.py   one trial, as it is shown
"""

from .handle import Sweep
from .launch import sweep
from .space import Choice, Number, Space, choice, integer, log_uniform, uniform
from .trial import Trial

__all__ = ["Choice", "Number", "Space", "Sweep", "Trial", "choice", "integer", "log_uniform", "sweep", "uniform"]
