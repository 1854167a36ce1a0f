"""Removes a run's keys and its user from Redis after its driver was killed: a program that the watchdog starts.

Its standard input has one line of JSON: the servers' ``urls``, and the ``prefix`` of the keys.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time

import redis

#: Passes over the keys: commands sent by a dying function may arrive after the first.
PASSES, PAUSE_S = 3, 0.2


def sweep(urls: list[str], prefix: str) -> None:
    """Remove all keys that begin with ``prefix``, and the job's user; servers that are out of reach are skipped."""
    for url in urls:
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(url, socket_timeout=2) as client:
            keys = list(client.scan_iter(match=prefix + "*", count=1000))
            for first in range(0, len(keys), 500):
                client.unlink(*keys[first : first + 500])
            # As in redis_user.py; this program imports nothing of the package, so that it starts at once.
            database = client.connection_pool.connection_kwargs.get("db") or 0
            client.execute_command("ACL DELUSER", f"mlless-{database}-{prefix.split(':')[1].strip('{}')}")


if __name__ == "__main__":
    spec = json.loads(sys.stdin.readline())
    for left in reversed(range(PASSES)):
        sweep(spec["urls"], spec["prefix"])
        time.sleep(PAUSE_S if left else 0)
