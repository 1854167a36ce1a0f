"""The control bus between driver, supervisor and workers: one interface, Redis, RabbitMQ and memory behind it."""

from .base import MAX_MESSAGE_BYTES, TOPICS, Bus
from .factory import open_bus

__all__ = ["MAX_MESSAGE_BYTES", "TOPICS", "Bus", "open_bus"]
