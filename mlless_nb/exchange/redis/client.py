"""A client of a Redis server that repeats what a lost connection left unanswered."""

from __future__ import annotations

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry


def connect(url: str) -> redis.Redis:
    """A client for ``url`` that repeats a command if the connection was lost; all our commands are safe to repeat."""
    return redis.Redis.from_url(
        url,
        socket_timeout=15,
        socket_connect_timeout=5,
        protocol=2,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), 4),
        retry_on_error=[redis.ConnectionError, redis.TimeoutError],
    )
