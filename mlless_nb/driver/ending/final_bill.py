"""The bill of a run's final message, with what only the driver knows: when functions of this machine exited."""

from __future__ import annotations

import dataclasses

from ...bus.messages import Ended
from ...exchange import SUPERVISOR
from ...money import Rates
from ...money.cost import cut
from ..backends.exits import Exits


def until_exits(ended: Ended, exits: Exits, launched_at: float, rates: Rates) -> Ended:
    """The final message with functions whose end was not heard billed until they exited, as far as that is known.

    Parameters
    ----------
    ended : Ended
        It bills them up to its time; they are never billed more than was granted.
    exits : Exits
    launched_at : float
        When the run was invoked, on the monotonic clock.
    rates : Rates
    """
    costs = dict(ended.costs_nusd)
    for slot, began_s in ended.unheard:
        exited_at = exits.at(int(slot), launched_at + began_s)
        exited_s = ended.time_s if exited_at is None else exited_at - launched_at
        if began_s < exited_s < ended.time_s:  # else it is one that came before
            too_much = rates.function_nusd(ended.time_s - began_s) - rates.lost_nusd(exited_s - began_s)
            costs["supervisor" if slot == SUPERVISOR else "workers"] -= too_much
    is_supervisor_lost = any(slot == SUPERVISOR for slot, _ in ended.unheard)
    costs = cut(costs, ended.most_nusd, "supervisor" if is_supervisor_lost else "workers")
    return dataclasses.replace(ended, costs_nusd=costs)
