"""A function's patience with a control bus that is away when it starts."""

from __future__ import annotations

import time

from ..bus import Bus, open_bus
from ..bus.base import FUNCTION_PATIENCE_S, Patience
from ..bus.messages import Invocation
from ..bus.urls import mask_url
from ..errors import ServiceError
from ..storage.objects import ObjectStore

#: Shortest pause between two tries, seconds.
PAUSE_S = 0.05


def open_patiently(invocation: Invocation, objects: ObjectStore) -> Bus:
    """The control bus of a function, which the driver has used before: what refuses it now may be a restarted server.

    Raises
    ------
    ServiceError
        The server was away for `FUNCTION_PATIENCE_S` seconds.
    """
    patience, shown = Patience(FUNCTION_PATIENCE_S), mask_url(invocation.bus_url)
    while True:
        try:
            return open_bus(
                invocation.bus_url,
                invocation.job_id,
                insecure=invocation.insecure,
                patience_s=FUNCTION_PATIENCE_S,
                objects=objects,
            )
        except ServiceError as error:
            time.sleep(max(patience.lost(shown, error), PAUSE_S))
