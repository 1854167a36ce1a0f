"""Ends a function before a request that is not reserved: where requests are a part of its bill, looks come too late."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable

from .budget import Prepaid

#: Writes that are kept for the last call: others change the state at the same time, and a refused write costs as much.
LAST_CALL_PUTS = 6


class RequestGate:
    """To be called before each request to the storage, once it is counted.

    Parameters
    ----------
    prepaid : Prepaid
    last_call : callable
        Reports that the budget is used up, by requests for which something is kept.
    """

    def __init__(self, prepaid: Prepaid, last_call: Callable[[], None]) -> None:
        self._prepaid, self._last_call = prepaid, last_call
        self._kept_nusd = prepaid.rates.requests_nusd(0, LAST_CALL_PUTS)
        self._n_calling, self._lock = 0, threading.Lock()

    def __call__(self) -> None:
        """End this process if the request is not reserved."""
        if not self._prepaid.is_limited:
            return
        rest = self._prepaid.rest_nusd(self._prepaid.spent_nusd)
        if rest < 0:
            os._exit(75)
        if rest < self._kept_nusd and not self._n_calling:
            with contextlib.suppress(Exception):  # the driver sees the end in any case
                self.call()
            os._exit(75)

    def call(self) -> None:
        """Make the last call. If the function then goes on to the end of what is reserved, there is another one."""
        with self._lock:
            self._n_calling += 1
        try:
            self._last_call()
        finally:
            with self._lock:
                self._n_calling -= 1
