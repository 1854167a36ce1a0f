"""A function that starts while its servers are silent ends before it has spent more than it was granted.

From its claim on `Prepaid.watch` sees to that, which asks for more in time. A request of the start may wait for
minutes for a silent server, and nothing is known then but the grant that the invocation brings. Where the server
answers others it is the function's connection that hangs, and the function ends a little later. On this machine the
driver ends functions whose servers are silent.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable

from ..bus.messages import Invocation
from ..exchange.protocol import key_prefix
from ..exchange.redis.client import is_silent
from ..money import Rates

#: Seconds before the grant is used up at which the servers are asked whether they answer, and seconds for the answer.
ASK_S = 0.5
#: Seconds between two such questions to servers that answer: then the function asks for more itself, within so many
#: seconds, or its connection hangs.
PAUSE_S, MOST_S = 0.25, 5.0
#: How a process ends that may spend no more.
USED_UP = 75


class StartDeadline:
    """The deadline of one function's start; it is over with `lift`.

    Parameters
    ----------
    invocation : Invocation
    rates : Rates
    billed_s : float
        Seconds that are on the function's bill already; infinity where that is not known.
    is_exact : bool
        Whether they are. Else they may be those of a runtime that was started ahead, or has served others before.
    end : callable
        Ends this process at once, with a status.
    """

    def __init__(
        self,
        invocation: Invocation,
        rates: Rates,
        billed_s: float,
        *,
        is_exact: bool = False,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._redis_urls, self._end, self._is_lifted = invocation.redis_urls, end, threading.Event()
        self._none = f"{key_prefix(invocation.job_id)}none"
        is_supervisor = invocation.role == "supervisor"
        kept_nusd = invocation.end_margin_nusd + invocation.coordination_nusd
        kept_nusd += rates.outliving_nusd if is_supervisor else invocation.store_end_nusd
        granted_s = rates.seconds_for(invocation.granted_nusd - kept_nusd, with_servers=is_supervisor)
        spent_s = billed_s if billed_s < granted_s or (is_exact and math.isfinite(billed_s)) else 0.0
        self._ask_at_s = time.monotonic() + max(granted_s - ASK_S - spent_s, 0.0)
        if invocation.has_cap and invocation.redis_urls and not invocation.n_cores:
            threading.Thread(target=self._watch, name="mlless-start", daemon=True).start()

    def lift(self) -> None:
        """The function has started."""
        self._is_lifted.set()

    def _watch(self) -> None:
        wait_s = max(self._ask_at_s - time.monotonic(), 0.0)
        while not self._is_lifted.wait(wait_s):
            is_over = time.monotonic() > self._ask_at_s + MOST_S or is_silent(self._redis_urls[0], self._none, ASK_S)
            if is_over and not self._is_lifted.is_set():
                self._end(USED_UP)
                return
            wait_s = PAUSE_S
