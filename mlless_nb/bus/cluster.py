"""A Redis in cluster mode: which of its servers has a run's keys."""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import urlsplit

from ..errors import ServiceError
from .urls import mask_url, redis_client


def node_of(url: str, prefix: str) -> str:
    """``url`` with the server that has the keys beginning with ``prefix``, in which braces say where they lie.

    Raises
    ------
    ServiceError
        If the cluster does not answer, or no server has them.
    """
    import redis

    try:
        with contextlib.closing(redis_client(url)) as client:
            client.set_response_callback("CLUSTER SLOTS", lambda answer, **_: answer)  # redis-py's leaves out the ids
            slot = int(client.execute_command("CLUSTER KEYSLOT", prefix))
            own = _text(client.execute_command("CLUSTER MYID"))
            for first, last, primary, *_ in client.execute_command("CLUSTER SLOTS"):
                if first <= slot <= last:
                    host, port, node = _text(primary[0]), int(primary[1]), _text(primary[2])
                    return url if node == own else _at(url, host, port)
    except (redis.exceptions.RedisError, OSError, ValueError, TypeError, IndexError) as error:
        shown = mask_url(url)
        raise ServiceError(f"Redis at {shown} is in cluster mode, and does not say where keys lie: {error}") from None
    raise ServiceError(f"Redis at {mask_url(url)} is in cluster mode, and none of its servers has the run's keys")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _at(url: str, host: str, port: int) -> str:
    """``url`` with another host and port; a server that does not know its name says "" or "?"."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    host = host if host not in ("", "?") else str(parts.hostname)
    return parts._replace(netloc=f"{user}{at}{f'[{host}]' if ':' in host else host}:{port}").geturl()
