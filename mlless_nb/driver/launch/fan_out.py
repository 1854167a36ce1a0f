"""Who invokes whom in a run of many functions: the driver some workers, and each of these others. Pure.

LambdaML has a function that invokes all workers (Jiang et al., "Towards Demystifying Serverless Machine Learning
Training", SIGMOD 2021, section 3.3.1, "hierarchical invocation"). Here about sqrt(P) of the workers invoke about
sqrt(P) - 1 others each, so that no process makes more than that many requests.
"""

from __future__ import annotations

import dataclasses
import math

from ...bus.messages import Invocation
from ...exchange import SUPERVISOR

#: More workers than this are not all invoked by the driver. Lithops has 64 requests under way at once on AWS Lambda:
#: a hundred take two turns, which is about as long as a function needs to start before it can invoke others.
MOST_INVOKED = 100


def n_inviters(n_workers: int, *, can_invoke: bool) -> int:
    """Number of workers that invoke others, those of the lowest slots; 0: the driver invokes all.

    Parameters
    ----------
    n_workers : int
    can_invoke : bool
        Whether functions may invoke others.
    """
    return math.isqrt(n_workers - 1) + 1 if can_invoke and n_workers > MOST_INVOKED else 0


def inviter_of(slot: int, n: int) -> int | None:
    """The slot whose function invokes that of ``slot`` if the first ``n`` invoke others; None: the driver does."""
    return slot % n if 0 < n <= slot else None


def fanned_out(invocations: list[Invocation], n: int) -> list[Invocation]:
    """What the driver is to invoke of ``invocations`` if the workers of the first ``n`` slots invoke the others."""
    others: dict[int, list[list[int]]] = {}
    for one in invocations:
        inviter = inviter_of(one.slot, n)
        if inviter is not None:
            others.setdefault(inviter, []).append([one.slot, one.granted_nusd])
    return [
        dataclasses.replace(one, invites=others.get(one.slot, []))
        for one in invocations
        if one.slot == SUPERVISOR or inviter_of(one.slot, n) is None
    ]
