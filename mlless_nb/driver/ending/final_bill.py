"""The bill of a run's final message, with what only the driver knows: when functions of this machine exited."""

from __future__ import annotations

import dataclasses
import math

from ...bus.messages import Ended
from ...exchange import SUPERVISOR
from ...money import Rates
from ...money.cost import FUNCTIONS, cut
from ..backends.exits import Exits


def until_exits(ended: Ended, exits: Exits, launched_at: float, rates: Rates) -> Ended:
    """The final message with functions whose end was not heard billed until they exited, as far as that is known.

    No function of this machine lived before the process that starts them. If one has outlived the message, so have the
    servers.

    Parameters
    ----------
    ended : Ended
        It bills them up to its time; they are never billed more than was granted.
    exits : Exits
    launched_at : float
        When the run was invoked, on the monotonic clock.
    rates : Rates
    """
    costs, end_s = dict(ended.costs_nusd), ended.time_s
    servers_s = end_s + rates.tail_s
    first_s = 0.0 if exits.began_at is None else exits.began_at - launched_at
    for (slot, began_s), exited_s in zip(ended.unheard, exit_times(ended, exits, launched_at), strict=True):
        since_s = min(max(began_s, first_s), end_s)
        nusd = rates.function_nusd(end_s - since_s) if exited_s is None else rates.lost_nusd(exited_s - since_s)
        costs["supervisor" if slot == SUPERVISOR else "workers"] -= rates.function_nusd(end_s - began_s) - nusd
        servers_s = max(servers_s, exited_s or 0.0)
    told, known = (rates.servers_by_component(rates.servers_nusd(s)) for s in (end_s + rates.tail_s, servers_s))
    costs |= {name: costs.get(name, 0) + known[name] - nusd for name, nusd in told.items() if known[name] != nusd}
    is_supervisor_lost = any(slot == SUPERVISOR for slot, _ in ended.unheard)
    costs = cut(costs, ended.most_nusd, "supervisor" if is_supervisor_lost else "workers")
    return dataclasses.replace(ended, costs_nusd=costs)


def as_lived(costs_nusd: dict[str, int], exits: Exits, rates: Rates) -> dict[str, int]:
    """``costs_nusd`` by component with functions of this machine billed as their processes lived.

    What a function tells ends before it returns: beside a server that does not answer, or on a busy machine, a while
    before; and after a Redis has lost what was told, slots are billed whoever had them. The bill is never less than
    what is known of the processes' lives, nor more than all of these with what is billed after a return.

    Parameters
    ----------
    costs_nusd : dict of int
        Nano-dollars.
    exits : Exits
    rates : Rates
    """
    lives, are_all = exits.lives()
    told = sum(costs_nusd.get(name, 0) for name in FUNCTIONS)
    missing = sum(rates.lost_nusd(exited_at - began_at) for began_at, exited_at in lives) - told
    if missing > 0:
        return {**costs_nusd, "workers": costs_nusd.get("workers", 0) + missing}
    if not lives or not are_all:
        return costs_nusd
    most = sum(rates.function_nusd(exited_at - began_at) for began_at, exited_at in lives)
    return costs_nusd | cut({name: costs_nusd.get(name, 0) for name in FUNCTIONS}, most, "workers")


def exit_times(ended: Ended, exits: Exits, launched_at: float) -> list[float | None]:
    """When each of the functions whose end was not heard exited, seconds after the run; None if that is not known."""
    found: list[float | None] = []
    for slot, began_s in ended.unheard:
        exited_at = exits.at(int(slot), launched_at + began_s)
        exited_s = math.inf if exited_at is None else exited_at - launched_at
        # Else it is one that came before.
        found.append(exited_s if began_s < exited_s < math.inf else None)
    return found
