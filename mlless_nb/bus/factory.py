"""The choice of a control bus by its URL."""

from __future__ import annotations

from ..errors import JobError
from ..storage.conditional import conditional, exchange_folder
from ..storage.objects import ObjectStore
from .base import PATIENCE_S, TTL_S, Bus, check_name
from .memory import MemoryBus
from .redis import RedisBus
from .storage import URL, StorageBus
from .urls import mask_url, require_private, scheme_of

SCHEMES = ("memory", "redis", "rediss", "unix", "amqp", "amqps")


def open_bus(
    url: str,
    job_id: str,
    insecure: bool = False,
    *,
    from_start: bool = True,
    ttl_s: int = TTL_S,
    patience_s: float = PATIENCE_S,
    broker_patience_s: float | None = None,
    objects: ObjectStore | None = None,
) -> Bus:
    """The control bus of job ``job_id`` on the server at ``url``.

    Parameters
    ----------
    url : str
        ``memory://`` (this process), ``storage://`` (``objects``), ``redis://``, ``rediss://``, ``unix://path``
        (redis-py's forms), ``amqp://`` or ``amqps://`` (RabbitMQ).
    job_id : str
        Letters, digits, ``_ . -``. Jobs do not see each other's messages.
    insecure : bool
        Accept a server on another machine without TLS or password.
    from_start : bool
        Read each topic from the first message kept; else only messages sent after the first `Bus.receive`.
        RabbitMQ always reads from the first message that no reader took.
    ttl_s : int
        Seconds that an unused topic is kept on the server. It must be equal in all processes of a job.
    patience_s : float
        Seconds that Redis or the object storage may be unreachable.
    broker_patience_s : float, optional
        Seconds that messages wait for RabbitMQ, and `Bus.close` for them; None: minutes.
    objects : ObjectStore, optional
        The object storage, for ``storage://``.

    Raises
    ------
    JobError
        Unknown scheme, malformed URL, or a server on another machine without TLS or password.
    ServiceError
        The server does not answer, or refuses the user.
    """
    check_name("job_id", job_id)
    scheme = scheme_of(url)
    if scheme not in SCHEMES and url != URL:
        raise JobError("bus", mask_url(url), f"a URL that begins with {', '.join(s + '://' for s in SCHEMES)}")
    require_private("bus", url, insecure)
    if scheme == "memory":
        return MemoryBus(url, job_id, from_start=from_start)
    if url == URL:
        if objects is None:
            raise JobError("bus", url, "a server that is reached without an object storage: redis://... or amqp://...")
        return StorageBus(conditional(objects), exchange_folder(job_id), from_start=from_start, patience_s=patience_s)
    if scheme in ("amqp", "amqps"):
        from . import rabbitmq  # imports pika, which most runs do not need

        most_s = rabbitmq.PATIENCE_S if broker_patience_s is None else broker_patience_s
        return rabbitmq.RabbitMqBus(url, job_id, ttl_s=ttl_s, patience_s=most_s)
    return RedisBus(url, job_id, from_start=from_start, ttl_s=ttl_s, patience_s=patience_s)
