"""Functions that are invoked in the place of others: a backend that refuses them is asked again."""

from __future__ import annotations

import time
from collections.abc import Callable

from ...bus.messages import Invocation
from ...errors import ServiceError

#: Seconds between tries to invoke functions.
PAUSES_S = (1.0, 3.0, 9.0)


def sleep(pause_s: float) -> bool:
    """Wait so many seconds; returns True."""
    time.sleep(pause_s)
    return True


def invoke_patiently(
    invoke: Callable[[list[Invocation]], None],
    invocations: list[Invocation],
    add_event: Callable[[str], None],
    pause: Callable[[float], bool],
) -> None:
    """Invoke functions, again after each of `PAUSES_S` if the backend refuses them.

    Those that did start find their slots taken by themselves, and leave: a backend may refuse some of them only.

    Parameters
    ----------
    invoke : callable
        Invokes functions once.
    invocations : list of Invocation
    add_event : callable
        Takes events.
    pause : callable
        Waits so many seconds; returns whether the functions are still needed.

    Raises
    ------
    ServiceError
        They could not be invoked.
    """
    for pause_s in PAUSES_S:
        try:
            return invoke(invocations)
        except ServiceError as error:
            add_event(f"{error}; asked again in {pause_s:g} s")
        if not pause(pause_s):
            return None
    return invoke(invocations)
