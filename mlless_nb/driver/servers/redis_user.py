"""A Redis user for one job: functions get its password instead of the driver's, and reach nothing but the job's keys.

Redis keeps such users in its memory, without an expiry. A key of the job, which expires, marks a user as needed. Users
whose job has no key any more are removed by the next run on the server and by the clean-up after a killed driver.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import Any
from urllib.parse import urlsplit

import redis

from ...bus.urls import mask_url, redis_client
from ...errors import ServiceError
from ...exchange.protocol import key_prefix
from ...redaction import remember

#: Begins the names of all users that this package makes.
PREFIX = "mlless-"
#: Seconds that a user is kept after its driver was killed, if nothing else removes it.
KEPT_S = 86_400
#: What is taken from a user that may use the job's keys: administration, and whatever shows or touches others' keys.
REMOVED = ("@admin", "@dangerous", "keys", "scan", "randomkey", "dbsize", "swapdb", "move", "function", "script|flush")


class RedisUser:
    """The user of one job, on all of its servers.

    Parameters
    ----------
    run_id : str

    Attributes
    ----------
    password : str
        A new one, which no server but the job's has.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id, self.password = run_id, secrets.token_hex(16)
        self._prefix = key_prefix(run_id)
        self._urls: list[str] = []
        remember(self.password)

    def make(self, url: str) -> str:
        """Make the user on the server at ``url``, if it may be made there, and remove those that are left of old jobs.

        Returns "", or why there is no such user: functions then use the user of ``url``. Raises ServiceError if the
        server does not answer.
        """
        with contextlib.closing(redis_client(url)) as client:
            try:
                client.set(f"{self._prefix}user", "1", ex=KEPT_S)
                self._set(client)
            except redis.exceptions.ResponseError as error:
                with contextlib.suppress(redis.exceptions.RedisError):
                    client.unlink(f"{self._prefix}user")
                return f"Redis at {mask_url(url)} makes no user for the run ({' '.join(str(error).split())})"
            except (redis.exceptions.RedisError, OSError) as error:
                raise ServiceError(f"Redis at {mask_url(url)} does not answer: {error}") from None
            self._urls.append(url)
            with contextlib.suppress(redis.exceptions.RedisError):
                remove_left(client)
        return ""

    def _set(self, client: redis.Redis) -> None:
        rules = ["reset", "on", f">{self.password}", f"~{self._prefix}*", "resetchannels", "+@all"]
        name = name_of(client, self._run_id)
        client.execute_command("ACL SETUSER", name, *rules, *(f"-{each}" for each in REMOVED))

    def url_for_functions(self, url: str, seen: str | None = None) -> str:
        """``url`` with this user in the place of the driver's, where it was made; else as it is.

        ``seen`` is the same server as functions reach it, None if that is ``url``.
        """
        if url not in self._urls:
            return url if seen is None else seen
        with contextlib.closing(redis_client(url)) as client:
            name = name_of(client, self._run_id)
        parts = urlsplit(url if seen is None else seen)
        options = [each for each in parts.query.split("&") if each and not each.startswith(("username=", "password="))]
        if parts.scheme == "unix":
            options += [f"username={name}", f"password={self.password}"]
            return f"unix://{parts.path}?{'&'.join(options)}"
        netloc = f"{name}:{self.password}@{parts.netloc.rpartition('@')[2]}"
        return parts._replace(netloc=netloc, query="&".join(options)).geturl()

    def keep(self) -> None:
        """Make the user again where a server has lost it, by a restart or a failover. Never raises."""
        for url in self._urls:
            with (
                contextlib.suppress(redis.exceptions.RedisError, OSError),
                contextlib.closing(redis_client(url)) as client,
            ):
                if client.execute_command("ACL GETUSER", name_of(client, self._run_id)) is None:
                    self._set(client)

    def remove(self) -> None:
        """Remove the user from all servers. Idempotent; a server that does not answer keeps it until the next run."""
        urls, self._urls = self._urls, []
        for url in urls:
            with (
                contextlib.suppress(redis.exceptions.RedisError, OSError),
                contextlib.closing(redis_client(url)) as client,
            ):
                client.unlink(f"{self._prefix}user")
                client.execute_command("ACL DELUSER", name_of(client, self._run_id))


def name_of(client: Any, run_id: str) -> str:
    """The name of a job's user: with the database, since only there keys of the job say that it is needed."""
    return f"{PREFIX}{client.connection_pool.connection_kwargs.get('db') or 0}-{run_id}"


def remove_left(client: Any) -> list[str]:
    """Remove the users of jobs that have no keys any more in this client's database; returns their names."""
    own = name_of(client, "")
    named = [name.decode() if isinstance(name, bytes) else str(name) for name in client.execute_command("ACL USERS")]
    ours = [name for name in named if name.startswith(own)]
    if not ours:
        return []
    with client.pipeline(transaction=False) as pipeline:
        for name in ours:
            prefix = key_prefix(name.removeprefix(own))
            pipeline.exists(f"{prefix}user", f"{prefix}job")
        left = [name for name, n_keys in zip(ours, pipeline.execute(), strict=True) if not n_keys]
    if left:
        client.execute_command("ACL DELUSER", *left)
    return left
