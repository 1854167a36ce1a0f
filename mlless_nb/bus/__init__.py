"""The control bus: small messages between the driver, the supervisor and the workers of one run.

Commands and status messages travel here; updates do not (see `mlless_nb.exchange`). ``base`` is the interface;
``redis``, ``rabbitmq``, ``storage`` and ``memory`` implement it, and ``factory`` chooses one by its URL. ``messages``
are the types that are sent.
"""

from .base import MAX_MESSAGE_BYTES, TOPICS, Bus
from .factory import open_bus
from .storage import URL as STORAGE_BUS

__all__ = ["MAX_MESSAGE_BYTES", "STORAGE_BUS", "TOPICS", "Bus", "open_bus"]
