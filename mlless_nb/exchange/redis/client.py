"""Clients of a Redis server: one that repeats what a lost connection left unanswered, and whether it answers at all."""

from __future__ import annotations

import contextlib

import redis
from redis.backoff import ExponentialBackoff, NoBackoff
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


def is_silent(redis_url: str, key: str, within_s: float) -> bool:
    """Whether a Redis does not answer within so many seconds; one that answers by an error is not silent.

    It is asked to remove ``key``, which there is not: a server may hold back what is to change its data alone.
    """
    client = redis.Redis.from_url(
        redis_url, socket_timeout=within_s, socket_connect_timeout=within_s, protocol=2, retry=Retry(NoBackoff(), 0)
    )
    with contextlib.closing(client):
        try:
            client.delete(key)
        except (redis.AuthenticationError, redis.ResponseError):
            return False
        except (redis.ConnectionError, redis.TimeoutError):
            return True
    return False
