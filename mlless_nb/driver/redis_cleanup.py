"""Removes a run's keys from Redis for a driver that was killed. A program of its own, which the watchdog starts."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path

import redis

#: Passes over the keys: what a dying function had sent may come in after the first.
PASSES, PAUSE_S = 3, 0.2


def sweep(urls: list[str], prefix: str) -> None:
    """Remove all keys that begin with ``prefix`` from the servers at ``urls``; one that is gone is passed over."""
    for url in urls:
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(url, socket_timeout=2) as client:
            keys = list(client.scan_iter(match=prefix + "*", count=1000))
            for first in range(0, len(keys), 500):
                client.unlink(*keys[first : first + 500])


if __name__ == "__main__":
    told = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    for left in reversed(range(PASSES)):
        sweep(told["urls"], told["prefix"])
        time.sleep(PAUSE_S if left else 0)
