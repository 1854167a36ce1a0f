"""A function that takes over the slot of another one, which is near the end of its lifetime."""

from __future__ import annotations

import contextlib
import math
import time

from ..bus import Bus
from ..bus.messages import Invocation, Ready
from ..exchange import Coordinator, LostData, Restart
from ..exchange.factory import slot_pauses_s
from ..exchange.slots import UNUSED, invoked_s_in, role_of, successor_of
from ..exchange.storage.rounds import GROWTH

#: Longest wait for the slot, seconds.
PATIENCE_S = 120.0


def unused_by(invocation: Invocation) -> int:
    """The part of the refund of a function that does not keep the slot: each invocation has money of its own."""
    return UNUSED + round(1000 * invocation.invoked_s)


def await_slot(invocation: Invocation, log: Coordinator, bus: Bus, elapsed_s: float) -> bool:
    """Say that this function is ready, and wait until it has its slot; False if it is not needed any more.

    ``elapsed_s`` are the seconds that are billed so far.
    """
    holder = log.at_work([invocation.slot]).get(invocation.slot)
    if holder is not None and invoked_s_in(holder) > invocation.invoked_s:
        return False  # one that was invoked after this one, in its place, has come first
    log.renew(successor_of(invocation.slot), invocation.lease_s)  # without it, nobody hands over
    ready_s = log.now_s() - invocation.launched_at_s
    bus.send("supervisor", Ready(invocation.slot, ready_s - elapsed_s, ready_s).encode())
    give_up_at, renewed_at = time.monotonic() + PATIENCE_S, -math.inf
    pause_s, longest_s = slot_pauses_s(log)
    try:
        known = log.restart()
        while not _has_taken(invocation.slot, log, known):
            if log.settled([invocation.slot]) or log.aborted() or time.monotonic() > give_up_at:
                return False  # a function that has ended needs no successor
            if time.monotonic() - renewed_at > invocation.lease_s / 3:
                renewed_at = time.monotonic()
                if log.at_work([invocation.slot]).get(invocation.slot, holder) != holder:
                    return False  # another one has taken over
                log.renew(successor_of(invocation.slot), invocation.lease_s)
            time.sleep(pause_s)
            pause_s = min(GROWTH * pause_s, longest_s)
    except LostData:
        return False  # the run is over; or its data is lost, and who has had the slot goes on once it is restored
    log.renew(role_of(invocation.slot), invocation.lease_s)  # at once: who hands over has given up its own
    log.bury(successor_of(invocation.slot))
    return True


def _has_taken(slot: int, log: Coordinator, known: Restart) -> bool:
    """Whether this function has taken ``slot``; the wait for it began after the restart ``known``.

    A slot without a claim may also be one whose claim is lost, with all data of the run. Raises `LostData` then.
    """
    log.restart()  # servers without the run's data would give the slot to anybody
    if not log.claim(slot):
        return False
    with contextlib.suppress(LostData):
        # Data that is lost and restored between two looks is without the lease of who waits.
        if log.restart() == known or log.alive([successor_of(slot)])[0]:
            return True
    with contextlib.suppress(LostData):
        log.release(slot)
    raise LostData("the claims of the run's functions are lost")
