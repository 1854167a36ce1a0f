"""Exploration under one budget: a sweep is many runs of one job with different settings, of which weak ones stop early.

``space`` says what a setting is drawn from, ``recipe`` makes a trial's job from drawn settings, ``rungs`` says how far
a trial is, ``study`` is Optuna, which draws and judges; ``launch`` begins a sweep, ``runner`` runs its trials under
their common budget, and ``handle`` is what the user holds.
"""

from .handle import Sweep
from .launch import sweep
from .space import Choice, Number, Space, choice, integer, log_uniform, uniform
from .trial import Trial

__all__ = ["Choice", "Number", "Space", "Sweep", "Trial", "choice", "integer", "log_uniform", "sweep", "uniform"]
