"""URLs of Redis and RabbitMQ servers: parsed, checked for TLS and a password, masked for messages."""

from __future__ import annotations

import ast
import ipaddress
import re
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from ..errors import JobError, ServiceError

#: The oldest Redis that has all the commands used.
OLDEST_REDIS = (6, 2)
#: Seconds until a server that does not answer counts as unreachable.
CONNECT_S = 3.0
REDIS_SCHEMES = ("redis", "rediss", "unix")
REDIS_FORMS = "redis://[:password@]host:6379/0, rediss://... or unix:///path/to/socket"


class RedisServer(NamedTuple):
    """Properties that a Redis reports. A changed ``run_id`` means that it was restarted."""

    version: str
    run_id: str
    used_bytes: int
    maxmemory_bytes: int  # 0: no limit
    is_cluster: bool = False


def mask_url(url: str) -> str:
    """``url`` with every password replaced by ``***``, fit for a message or a log."""
    masked = re.sub(r"([?&][^=&]*password[^=&]*=)[^&]*", r"\1***", url, flags=re.IGNORECASE)
    return re.sub(r"(://[^:@/?]*):.*@", r"\1:***@", masked, flags=re.DOTALL)


def scheme_of(url: str) -> str:
    """The part of ``url`` before ``://``, in lower case; empty when there is none."""
    return url.partition("://")[0].lower() if "://" in url else ""


def require_private(field: str, url: str, insecure: bool) -> None:
    """Refuse a server on another machine without a password, or without TLS that proves which server it is.

    Parameters
    ----------
    field : str
        The job's field that holds ``url``, for the message.
    url : str
        That of a Redis or a RabbitMQ.
    insecure : bool
        The user accepts that anyone on the network can read and change the run's data.

    Raises
    ------
    JobError
        When the host is not this machine, and TLS, its verification or the password is missing.
    """
    scheme = scheme_of(url)
    if insecure or scheme in ("unix", "memory", "storage"):
        return
    try:
        parts = urlsplit(url)
        host, password = parts.hostname or "localhost", parts.password or parse_qs(parts.query).get("password")
    except ValueError:
        raise JobError(
            field, mask_url(url), "a URL: a password with one of @ : / ? # in it is to be %-encoded"
        ) from None
    if is_loopback(host):
        return
    secure = "rediss" if scheme in REDIS_SCHEMES else "amqps"
    if scheme != secure or not password:
        valid = f"{secure}://user:password@host (TLS and a password), or set insecure=True"
        raise JobError(field, mask_url(url), valid)
    if not _verifies(parse_qs(parts.query)):
        valid = "one whose certificate and host name are verified, without the options that turn this off"
        raise JobError(field, mask_url(url), f"{valid}; or set insecure=True")


def _verifies(options: dict[str, list[str]]) -> bool:
    """Whether TLS with these ``options`` of a URL, redis-py's or pika's, verifies certificate and host name."""
    for value in options.get("ssl_options", ()):
        try:
            if "protocol" in ast.literal_eval(value):  # the only one of pika's that can turn it off
                return False
        except (ValueError, SyntaxError, TypeError):
            return False
    required = all(value.lower() == "required" for value in options.get("ssl_cert_reqs", ()))
    return required and all(
        value.lower() in ("true", "1", "yes", "y") for value in options.get("ssl_check_hostname", ())
    )


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_here(url: str) -> bool:
    """Whether a server's ``url`` names this machine; False for a URL that is malformed."""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return False
    return scheme_of(url) in ("unix", "memory") or is_loopback(host or "localhost")


def redis_client(url: str, field: str = "redis", **options: Any) -> Any:
    """A ``redis.Redis`` for ``url`` that returns bytes, and gives up connecting after `CONNECT_S`.

    It never retries a command, because a command that is not idempotent would be applied twice.

    Raises
    ------
    JobError
        When ``url`` is not one of redis-py's forms; the connection itself is made with the first command.
    """
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    if scheme_of(url) not in REDIS_SCHEMES:
        raise JobError(field, mask_url(url), REDIS_FORMS)
    defaults: dict[str, Any] = {"socket_connect_timeout": CONNECT_S, "socket_timeout": 5.0, "protocol": 2}
    try:
        return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **(defaults | options))
    except (ValueError, TypeError):
        raise JobError(field, mask_url(url), REDIS_FORMS) from None


def check_redis(url: str, insecure: bool = False) -> RedisServer:
    """Whether the Redis at ``url`` can hold a run, asked before anything is launched.

    Parameters
    ----------
    url : str
        ``redis://``, ``rediss://`` or ``unix://``, as redis-py reads them.
    insecure : bool
        Accept a server on another machine without TLS or password.

    Raises
    ------
    JobError
        The URL is malformed or not private, or the server could lose data (eviction).
    ServiceError
        The server does not answer, refuses the password or is too old.
    """
    import redis

    shown = mask_url(url)
    client = redis_client(url, socket_timeout=CONNECT_S)
    require_private("redis", url, insecure)
    try:
        info = client.info()
    except redis.exceptions.AuthenticationError:
        raise ServiceError(f"Redis at {shown} refuses the user or the password") from None
    except redis.exceptions.NoPermissionError:
        raise ServiceError(f"Redis at {shown}: the user may not run INFO; grant it (ACL SETUSER user +info)") from None
    except (redis.exceptions.RedisError, OSError) as error:
        raise ServiceError(f"Redis at {shown} does not answer: {_first_line(error)}") from None
    finally:
        client.close()
    version = str(info.get("redis_version", "0"))
    if _version_tuple(version) < OLDEST_REDIS:
        raise ServiceError(f"Redis at {shown} is version {version}; it must be 6.2 or newer, or any Valkey")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise JobError(
            "redis",
            shown,
            f"a server with maxmemory-policy noeviction; this one has {policy} and would silently drop updates "
            f"(redis-cli CONFIG SET maxmemory-policy noeviction)",
        )
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    return RedisServer(version, str(info.get("run_id", "")), used, limit, info.get("redis_mode") == "cluster")


def _version_tuple(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
