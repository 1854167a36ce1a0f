"""Where a run stands: all that its driver keeps beside, should the servers lose it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .plan import NO_PLAN, Plan
from .restarts import FROM_THE_START, Restart
from .step_report import StepEntry


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


class Past(NamedTuple):
    """What was known of a run whose data was lost.

    Attributes
    ----------
    restart : Restart
        From where its workers go on.
    plan : Plan
    steps : list of StepEntry
        With which the step log begins.
    """

    restart: Restart = FROM_THE_START
    plan: Plan = NO_PLAN
    steps: Sequence[StepEntry] = ()


#: Of a new run.
NO_PAST = Past()
