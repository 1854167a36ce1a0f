"""Advice before a run: how long a job would take and what it would cost, here, on functions and on VMs.

``probe`` measures the job on this machine (``alone`` has its replica), ``descent`` how many epochs it takes,
``analytic`` is LambdaML's model of functions and VMs with ``constants``, ``here`` that of the embedded backend, and
``advice`` compares. ``estimate`` says in a line what a job as it is written will take, and what looks wrong with it:
beside the start of a run (``foresight``), or instead of one (``dry_run``). ``foreseen`` has the first rows of stored
files, ``stateless_estimate`` the line for functions that live for a part of a step. Nothing is launched or billed.
"""

from .advice import Advice, advise
from .analytic import Option
from .dry_run import DryRun, dry_run

__all__ = ["Advice", "DryRun", "Option", "advise", "dry_run"]
