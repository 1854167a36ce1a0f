"""Advice before a run: how long a job would take and what it would cost, here, on functions and on VMs.

``probe`` measures the job on this machine, ``analytic`` is LambdaML's model of functions and VMs with ``constants``,
``here`` that of the embedded backend, and ``advice`` compares. Nothing is launched or billed.
"""

from .advice import Advice, advise
from .analytic import Option

__all__ = ["Advice", "Option", "advise"]
