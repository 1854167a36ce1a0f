"""The slots of a run's functions: workers have 0 and above."""

from __future__ import annotations

SUPERVISOR = -1


def role_of(slot: int) -> str:
    """The name of a slot's lease: ``"supervisor"``, or the number of a worker."""
    return "supervisor" if slot == SUPERVISOR else str(slot)


def heir_of(slot: int) -> str:
    """The name of the lease of a function that waits to take over ``slot``."""
    return f"{role_of(slot)}-heir"
