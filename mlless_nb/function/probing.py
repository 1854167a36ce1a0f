"""The link between a function and a run's Redis, measured where functions are: a notebook has another one.

`lambda_handler` calls it for an event that asks for it; `mlless_nb.clouds.links` sends such events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..bus.cluster import node_of
from ..bus.urls import check_redis
from ..exchange.pattern import probe
from ..exchange.protocol import key_prefix
from ..redaction import in_url, remember, scrubbed
from .package_digest import digest_here

#: The name of a probe's keys, in the place of a run's.
NAME = "probe"


def answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Measure.

    Parameters
    ----------
    asked : Mapping
        ``redis``, a URL with its password, and ``insecure``: whether it may be without TLS or password.

    Returns
    -------
    dict
        ``sources``, the digest of this function's mlless_nb, and ``latency_s`` (seconds) and ``bytes_per_s`` (bytes/s),
        or ``error``, a sentence.
    """
    url, found = str(asked["redis"]), {"sources": digest_here()}
    remember(*in_url(url))
    try:
        if check_redis(url, bool(asked["insecure"])).is_cluster:
            url = node_of(url, key_prefix(NAME))
        latency_s, bytes_per_s = probe(url, key_prefix(NAME))
    except Exception as error:
        return {**found, "error": scrubbed(f"{error}".partition("\n")[0])}
    return {**found, "latency_s": latency_s, "bytes_per_s": bytes_per_s}
