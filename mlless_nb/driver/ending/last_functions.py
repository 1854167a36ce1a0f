"""The end of a run's functions where no supervisor sees to it: they are told, and waited for."""

from __future__ import annotations

import contextlib
import time

from ...exchange import SUPERVISOR
from ...exchange.slots import role_of
from ..servers.services import Services

#: Seconds between two looks whether functions of a cloud have ended: of some only a listing tells.
CLOUD_LOOK_S = 1.0
#: Longest wait for functions to end in good order when the interpreter exits, seconds.
STOP_S = 2.0


def abort_functions(services: Services, n_workers: int, reason: str, patience_s: float) -> None:
    """Abort the functions, and wait at most ``patience_s`` seconds until they have ended; clouds offer no kill."""
    slots = [SUPERVISOR, *range(n_workers)]
    log, launcher, give_up_at = services.log, services.launcher, time.monotonic() + patience_s
    with contextlib.suppress(Exception):  # Redis may have failed: then functions end by themselves
        log.abort(reason, n_workers)
        while not launcher.has_ended() and time.monotonic() < give_up_at:
            if not launcher.is_local and _have_ended(services, slots):
                return
            if launcher.is_local and services.redis_urls:  # the object storage's requests are billed
                launcher.exits.note(log.at_work(slots))
            time.sleep(0.05 if launcher.is_local else CLOUD_LOOK_S)


def _have_ended(services: Services, slots: list[int]) -> bool:
    """Whether no function of a cloud works on, nor has yet to start: that is on the bill, too.

    One that ended in good order has settled its money, one that was lost has no lease; one that fails as it starts has
    neither, but leaves a note.
    """
    log, cloud = services.log, services.launcher.cloud
    at_work = list(log.at_work(slots)) if services.redis_urls else slots  # the object storage's requests are billed
    if any(log.alive([role_of(slot) for slot in at_work])):
        return False
    is_there = log.settled(slots).union(at_work).issuperset(slots) if services.redis_urls else True
    return is_there or cloud is None or cloud.have_ended()


def stop_quickly(services: Services, reason: str) -> None:
    """Stop the run in good order if that takes no more than `STOP_S`, and then kill its local functions."""
    give_up_at = time.monotonic() + STOP_S
    with contextlib.suppress(Exception):  # Redis may have failed
        services.log.announce_stop("stopped", reason)
        while not services.launcher.has_ended() and time.monotonic() < give_up_at:
            time.sleep(0.02)
    services.launcher.kill()
