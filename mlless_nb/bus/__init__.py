"""The control bus: small messages between the driver, the supervisor and the workers of one run.

Commands and status messages travel here; updates do not (see `mlless_nb.exchange`).

::

    base.py      the interface
    messages.py  the types of messages; field_types.py checks their fields
    factory.py   chooses a bus by its URL
    redis.py     the bus on Redis Streams; cluster.py: Redis in cluster mode
    rabbitmq.py  the bus on RabbitMQ; rabbitmq_connection.py rabbitmq_mail.py: the thread that owns its connection, and
                 the data that other threads share with it; rabbitmq_errors.py: its errors
    recorded.py  a broker's messages to the supervisor, recorded on Redis: the next supervisor receives them again
    storage.py   the bus in the object storage, for runs without a server
    memory.py    the bus in one process, for tests
    urls.py      checks URLs of servers, and masks passwords in messages; passwords.py looks up passwords
"""

from .base import MAX_MESSAGE_BYTES, TOPICS, Bus
from .factory import open_bus
from .storage import URL as STORAGE_BUS

__all__ = ["MAX_MESSAGE_BYTES", "STORAGE_BUS", "TOPICS", "Bus", "open_bus"]
