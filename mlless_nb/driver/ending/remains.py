"""What is really left of a run once it was shut down, counted where a look costs next to nothing.

Processes of functions, objects and temporary files are counted on this machine, keys on the run's Redis servers, and
queues if the broker has not confirmed that they are gone. Functions elsewhere cannot be seen, and to list a cloud's
storage is slow and billed: these are not in the result.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import redis

from ...bus.urls import REDIS_SCHEMES, redis_client, scheme_of
from ...exchange.protocol import key_prefix
from ..backends.processes import all_processes, has_members
from ..servers.services import Services

#: Most keys of a server among which a run's are looked for: a scan of so many takes some 10 ms.
MOST_KEYS = 50_000
#: Longest waits for a server that is asked, and for processes that were killed, seconds.
ASK_S, GONE_S = 1.0, 5.0
#: Lithops' name of the storage on this machine.
HERE = "localhost"


class Remains:
    """What one run may leave. To be made before its functions are shut down, which forgets where their things are.

    Parameters
    ----------
    services : Services
    run_id : str
    """

    def __init__(self, services: Services, run_id: str) -> None:
        launcher = services.launcher
        self._services, self._prefix, self._is_local = services, key_prefix(run_id), launcher.is_local
        self._groups, self._paths = launcher.process_groups, launcher.temporary_paths
        self._folder = Path(launcher.folder_of(f"runs/{run_id}")) if launcher.place[0] == HERE else None

    def count(self, n_queues: int, *, with_objects: bool) -> dict[str, int]:
        """How many things of which kind (`mlless_nb.telemetry.left.KINDS`) are left; kinds not looked for are missing.

        Parameters
        ----------
        n_queues : int
            Queues that may be left, as `Bus.close` says.
        with_objects : bool
            Whether the run's objects were to be removed.
        """
        found: dict[str, int] = {}
        if self._is_local:
            found["processes"] = _n_processes(self._groups)
        n_keys = keys_left(self._services, self._prefix)
        if n_keys is not None:
            found["keys"] = n_keys
        # On Redis the topics are keys, which were counted.
        is_on_redis = scheme_of(self._services.bus_url) in REDIS_SCHEMES
        found["queues"] = 0 if is_on_redis and n_keys is not None else n_queues
        if with_objects and self._folder is not None:
            found["objects"] = sum(len(files) for _, _, files in os.walk(self._folder))
        if self._is_local:
            found["files"] = sum(map(os.path.lexists, self._paths))
        return found


def _n_processes(groups: list[int]) -> int:
    """Processes of these groups; those that were killed get a moment to end."""
    give_up_at = time.monotonic() + GONE_S
    while (groups := [group for group in groups if has_members(group)]) and time.monotonic() < give_up_at:
        time.sleep(0.02)
    return sum(process.group in groups for process in all_processes()) if groups else 0


def keys_left(services: Services, prefix: str) -> int | None:
    """Keys that begin with ``prefix`` on the run's Redis servers; None if that is not known, or there is no server.

    What functions have written while the run's keys were removed is removed here.
    """
    on_redis = [services.bus_url] if scheme_of(services.bus_url) in REDIS_SCHEMES else []
    urls = dict.fromkeys([*services.redis_urls, *on_redis])
    n_keys = 0
    for url in urls:
        try:
            with contextlib.closing(redis_client(url, socket_connect_timeout=ASK_S, socket_timeout=ASK_S)) as client:
                if client.dbsize() > MOST_KEYS:
                    return None
                if late := _found(client, prefix):
                    client.unlink(*late)
                    n_keys += len(_found(client, prefix))
        except (redis.RedisError, OSError):
            if services.embedded is None or services.embedded.is_alive:
                return None  # else they are gone with their server
    return n_keys if urls else None


def _found(client: redis.Redis, prefix: str) -> list[bytes]:
    return list(client.scan_iter(match=prefix + "*", count=1000))
