"""Where a run stands: all that its driver keeps beside, should the servers lose it."""

from __future__ import annotations

from typing import NamedTuple

from .plan import Plan
from .restarts import Restart


class Standing(NamedTuple):
    """What a coordinator knows of a run at one moment, see the methods of `Coordinator` of the same names.

    Attributes
    ----------
    plan : Plan
    at_work : dict
    reserved_nusd : int
        How much of the budget is reserved, nano-dollars.
    restart : Restart
    identities : list of str
        What changes when a server is restarted, one for each: its data may be older then, or gone.
    """

    plan: Plan
    at_work: dict[int, str]
    reserved_nusd: int
    restart: Restart
    identities: list[str]
