"""The slots of a run's functions: workers have 0 and above."""

from __future__ import annotations

import contextlib
import uuid

SUPERVISOR = -1
#: The first part of refunds that do not settle the slot's money, since another function has the slot.
UNUSED = 1 << 30


def role_of(slot: int) -> str:
    """The name of a slot's lease: ``"supervisor"``, or the number of a worker."""
    return "supervisor" if slot == SUPERVISOR else str(slot)


def successor_of(slot: int) -> str:
    """The name of the lease of a function that waits to take over ``slot``."""
    return f"{role_of(slot)}-successor"


def place_of(slot: int, invoked_s: float) -> int:
    """What a function claims first that was invoked for ``slot`` ``invoked_s`` seconds after the run; below all slots.

    A platform may start it twice, with the money for one. The claim stays when the slot is given to another function.
    """
    return SUPERVISOR - 1 - ((round(1000 * invoked_s) << 20) + slot - SUPERVISOR)


def nonce_of(pid: int, invoked_s: float) -> str:
    """A name for an invocation: process ``pid`` runs it, and it was invoked ``invoked_s`` seconds after the run."""
    return f"{pid}-{uuid.uuid4().hex}-{invoked_s!r}"


def pid_in(nonce: str) -> int:
    """The number of the process that runs the invocation ``nonce``."""
    return int(nonce.partition("-")[0])


def invoked_s_in(nonce: str) -> float:
    """When the invocation ``nonce`` was invoked, seconds after the run; 0 if it does not say so."""
    with contextlib.suppress(ValueError, IndexError):
        return float(nonce.split("-", 2)[2])
    return 0.0
