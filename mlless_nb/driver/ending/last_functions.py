"""The end of a run's functions where no supervisor sees to it: they are told, and waited for."""

from __future__ import annotations

import contextlib
import math
import time

from ...bus.messages import Ended
from ...exchange import SUPERVISOR
from ...exchange.slots import role_of
from ..backends.exits import EXIT_S
from ..backends.launcher import LithopsLauncher
from ..servers.services import Services

#: Seconds between two listings of the notes of functions, which are requests.
LISTING_S = 1.0
#: Longest wait for functions to end in good order when the interpreter exits, seconds.
STOP_S = 2.0
#: Longest wait for those that return what they have not spent before others are killed, seconds.
RETURN_S = 0.5


def abort_functions(
    services: Services, n_workers: int, reason: str, patience_s: float, starts_until: float = -math.inf
) -> None:
    """Abort the functions, and wait at most ``patience_s`` seconds until they have ended; clouds offer no kill.

    Parameters
    ----------
    starts_until : float
        On the monotonic clock: until then those of a cloud are waited for that may have yet to start.
    """
    slots = [SUPERVISOR, *range(n_workers)]
    log, launcher, give_up_at = services.log, services.launcher, time.monotonic() + patience_s
    with contextlib.suppress(Exception):  # Redis may have failed: then functions end by themselves
        log.abort(reason, n_workers)
        while not launcher.has_ended() and time.monotonic() < give_up_at:
            if not launcher.is_local and _are_idle(services, slots):
                _await_starts(services, slots, min(starts_until, give_up_at))
                break
            if launcher.is_local and services.redis_urls:  # the object storage's requests are billed
                launcher.exits.note(log.at_work(slots))
            time.sleep(0.05)


def _are_idle(services: Services, slots: list[int]) -> bool:
    """Whether no function of a cloud works on: one that ended in good order has settled, a lost one has no lease."""
    log = services.log
    at_work = list(log.at_work(slots)) if services.redis_urls else slots  # the object storage's requests are billed
    return not any(log.alive([role_of(slot) for slot in at_work]))


def _await_starts(services: Services, slots: list[int], give_up_at: float) -> None:
    """Wait for functions that are starting: they are on the bill until they end. One that fails as it does has a note.

    Those that were lost have none; with a slot that nobody ever had, that is waited for in vain.
    """
    log, cloud = services.log, services.launcher.cloud
    if cloud is None or not cloud.leaves_notes or not services.redis_urls:
        return
    while time.monotonic() < give_up_at:
        if log.settled(slots).union(log.at_work(slots)).issuperset(slots) or cloud.have_ended():
            return
        time.sleep(LISTING_S)


def stop_quickly(services: Services, reason: str) -> None:
    """Stop the run in good order if that takes no more than `STOP_S`, and then kill its local functions."""
    give_up_at = time.monotonic() + STOP_S
    with contextlib.suppress(Exception):  # Redis may have failed
        services.log.announce_stop("stopped", reason)
        while not services.launcher.has_ended() and time.monotonic() < give_up_at:
            time.sleep(0.02)
    services.launcher.kill()


def kill_unheard(launcher: LithopsLauncher, ended: Ended, launched_at: float) -> None:
    """Kill the local functions that live though their run has ended without them, and wait until they have exited.

    One that was just invoked in place of a lost one would start, see that, and leave: for a second or two of it and of
    the servers, which are on no bill.

    Parameters
    ----------
    ended : Ended
        The supervisor's final message.
    launched_at : float
        When the run was invoked, on the monotonic clock.
    """
    exits, unheard = launcher.exits, {int(slot): launched_at + began_s for slot, began_s in ended.unheard}
    if not launcher.is_local or SUPERVISOR in unheard or not exits.are_left:
        return
    if all(exits.at(slot, began_at) is not None for slot, began_at in unheard.items()):
        return
    give_up_at = time.monotonic() + RETURN_S
    while exits.at(SUPERVISOR) is None and time.monotonic() < give_up_at:
        time.sleep(0.01)
    launcher.kill()
    exits.wait(EXIT_S)
