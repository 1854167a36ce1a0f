"""Functions that are invoked in the place of others: a backend that refuses them is asked again."""

from __future__ import annotations

import time
from collections.abc import Callable

from ...bus.messages import Invocation
from ...errors import ServiceError

#: Seconds between tries to invoke functions.
PAUSES_S = (1.0, 3.0, 9.0)


def invoke_patiently(
    invoke: Callable[[list[Invocation]], None], invocations: list[Invocation], tell: Callable[[str], None]
) -> None:
    """Invoke functions with ``invoke``, again after each of `PAUSES_S` if it fails; ``tell`` takes events.

    Those that did start find their slots taken by themselves, and leave: a backend may refuse some of them only.

    Raises
    ------
    ServiceError
        They could not be invoked.
    """
    for pause_s in PAUSES_S:
        try:
            return invoke(invocations)
        except ServiceError as error:
            tell(f"{error}; asked again in {pause_s:g} s")
        time.sleep(pause_s)
    return invoke(invocations)
