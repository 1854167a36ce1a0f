"""Which way updates go round: broadcast or scatter-reduce, from a short look at the server and a cost model.

Broadcast: a worker keeps its update once, everybody reads it. Scatter-reduce: a worker addresses to each other the part
of its update that falls into that one's range of rows; each adds up its range and keeps the sum, which everybody reads.
That moves fewer bytes for one more barrier and more messages.

The model follows LambdaML's analytic one (a round costs its messages times latency and bytes over bandwidth) with two
changes: all workers share one server, so bytes are counted there and not per worker; and updates are sparse, so a sum
is larger than what was added.
"""

from __future__ import annotations

import os
import time
from typing import Any, Literal

from redis.exceptions import RedisError

from ..errors import ServiceError
from .redis.connection import PipelinedConnection
from .redis.coordinator import connect

Pattern = Literal["broadcast", "scatter-reduce"]

#: Seconds of one frame's command and reply, beside their bytes. Like `ARRIVAL_S` fitted by hand to timed rounds of 2 to
#: 16 workers that shared two cores with their server and with other work: right to a factor of two, no better.
MESSAGE_S = 4e-6
#: Latencies that a barrier takes: the arrival there, the wake-up call back.
BARRIER_LATENCIES = 2
#: Seconds that one worker's arrival and wake-up call add to a round, client and server together.
ARRIVAL_S = 80e-6
#: Bytes that the probe writes and reads.
PROBE_BYTES = 1_000_000
#: Seconds until the probe's key is gone, should its deletion fail.
_PROBE_TTL_S = 60


def probe(url: str, prefix: str = "mlless:probe:") -> tuple[float, float]:
    """Latency (seconds there and back) and throughput (bytes a second) of the Redis at ``url``, as seen from here.

    Parameters
    ----------
    url : str
    prefix : str
        The key that is written, and deleted again, begins with it: the job's, so that it goes when the job goes.

    Raises
    ------
    ServiceError
        The server does not answer.
    """
    client = connect(url)
    line, key, value = PipelinedConnection(client), f"{prefix}probe:{os.getpid()}", bytes(PROBE_BYTES)
    try:
        latency_s = min(_answer_s(line, ("PING",)) for _ in range(10))
        # The second time around the memory is there already, on both sides.
        moved_s = min(
            _answer_s(line, ("SET", key, value, "EX", _PROBE_TTL_S)) + _answer_s(line, ("GET", key)) for _ in range(4)
        )
        line.send([("UNLINK", key)])
        line.read()
    except RedisError as error:
        raise ServiceError(f"Redis does not answer the probe: {error}") from None
    finally:
        line.close()
        client.close()
    return latency_s, 2 * PROBE_BYTES / max(moved_s - 2 * latency_s, 1e-9)


def _answer_s(line: PipelinedConnection, command: tuple[Any, ...]) -> float:
    began = time.perf_counter()
    line.send([command])
    line.read(views=True)
    return time.perf_counter() - began


def broadcast_s(n_workers: int, update_bytes: float, latency_s: float, bytes_per_s: float) -> float:
    """Seconds of a step's exchange by broadcast: each update goes to the server once and to all others from it."""
    p = n_workers
    return _barrier_s(p, latency_s) + p * p * update_bytes / bytes_per_s + p * p * MESSAGE_S


def scatter_reduce_s(
    n_workers: int, update_bytes: float, table_bytes: float, latency_s: float, bytes_per_s: float
) -> float:
    """Seconds of a step's exchange by scatter-reduce: parts to and from the server, then sums to and from it."""
    p = n_workers
    sum_bytes = min(table_bytes, p * update_bytes)
    moved = 2 * (p - 1) * update_bytes + p * sum_bytes
    return 2 * _barrier_s(p, latency_s) + moved / bytes_per_s + (3 * p * (p - 1) + p) * MESSAGE_S


def _barrier_s(n_workers: int, latency_s: float) -> float:
    return BARRIER_LATENCIES * latency_s + n_workers * ARRIVAL_S


def scatter_from(
    pattern: str, n_workers: int, update_bytes: float, table_bytes: float, latency_s: float, bytes_per_s: float
) -> int:
    """The number of workers from which on updates are scattered and reduced; 0: never.

    Parameters
    ----------
    pattern : {"auto", "broadcast", "scatter-reduce"}
    n_workers : int
        At the start; as they leave, broadcasting may become the quicker of the two.
    update_bytes, table_bytes, latency_s, bytes_per_s
        See `choose_pattern`.
    """
    if pattern != "auto":
        return 2 if pattern == "scatter-reduce" else 0
    link, least = (update_bytes, table_bytes, latency_s, bytes_per_s), n_workers + 1
    while choose_pattern(least - 1, *link) == "scatter-reduce":
        least -= 1
    return least if least <= n_workers else 0


def choose_pattern(
    n_workers: int, update_bytes: float, table_bytes: float, latency_s: float, bytes_per_s: float
) -> Pattern:
    """The pattern that the model finds quicker; the same on every worker that is given the same numbers.

    Parameters
    ----------
    n_workers : int
    update_bytes : float
        Of one worker's frame in a step.
    table_bytes : float
        Of a frame with every parameter: no sum of updates is larger.
    latency_s, bytes_per_s : float
        What `probe` says.
    """
    if n_workers <= 2:
        return "broadcast"  # every byte has one reader: there is nothing to save
    one = broadcast_s(n_workers, update_bytes, latency_s, bytes_per_s)
    other = scatter_reduce_s(n_workers, update_bytes, table_bytes, latency_s, bytes_per_s)
    return "scatter-reduce" if other < one else "broadcast"
