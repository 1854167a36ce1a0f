"""The choice between broadcast and scatter-reduce, from a short probe of the server and a cost model.

AllReduce by a leader is used only if a job asks for it: on a server of small latency it is never the fastest, because
the leader merges alone what scatter-reduce merges on all workers.

Broadcast: each worker publishes its update once, and all peers read it. Scatter-reduce: each worker owns one range of
rows and receives from each peer the part of the peer's update in that range; it adds the parts and publishes the sum,
which all peers read. That moves fewer bytes, but needs a second barrier and more messages.

The model follows LambdaML's analytic one (a round costs its messages times latency, and its bytes over bandwidth) with
two changes: all workers share one server, so bytes are counted at the server and not per worker; and updates are
sparse, so a sum is larger than each of its terms. How much larger depends on the data: in click logs, most of the rows
that an update touches are touched by others, too.
"""

from __future__ import annotations

import os
import time
from typing import Any, Literal

from redis.exceptions import RedisError

from ..errors import ServiceError
from .redis.client import connect
from .redis.connection import PipelinedConnection

Pattern = Literal["broadcast", "scatter-reduce"]

#: Seconds of one frame's command and reply, without their bytes. Like `ARRIVAL_S`, fitted by hand to timed rounds of 2
#: to 16 workers that shared two cores with their server and with other work: accurate to a factor of two.
MESSAGE_S = 4e-6
#: Latencies of a barrier: one for the arrival, one for the wake-up message.
BARRIER_LATENCIES = 2
#: Seconds that one worker's arrival and wake-up message add to a round, client and server together.
ARRIVAL_S = 80e-6
#: Bytes that the probe writes and reads.
PROBE_BYTES = 1_000_000
#: Seconds until the probe's key expires, in case its deletion fails.
_PROBE_TTL_S = 60


def probe(url: str, prefix: str = "mlless:probe:") -> tuple[float, float]:
    """Round-trip latency (seconds) and throughput (bytes/s) of the Redis at ``url``, measured from this process.

    Parameters
    ----------
    url : str
    prefix : str
        Prefix of the key that is written and deleted. With the job's prefix, the key is removed with the job at last.

    Raises
    ------
    ServiceError
        The server does not answer.
    """
    client = connect(url)
    line, key, value = PipelinedConnection(client), f"{prefix}probe:{os.getpid()}", bytes(PROBE_BYTES)
    try:
        latency_s = min(_answer_s(line, ("PING",)) for _ in range(10))
        # The minimum leaves out the first time, in which both sides allocate memory.
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
    """Seconds of a step's exchange by broadcast: the server receives each update once and sends it to all peers."""
    p = n_workers
    return _barrier_s(p, latency_s) + p * p * update_bytes / bytes_per_s + p * p * MESSAGE_S


def scatter_reduce_s(
    n_workers: int, update_bytes: float, table_bytes: float, latency_s: float, bytes_per_s: float, growth: float = 1.0
) -> float:
    """Seconds of a step's exchange by scatter-reduce: the server receives and sends the parts, then the sums."""
    p = n_workers
    sum_bytes: float = min(table_bytes, p**growth * update_bytes)
    moved = 2 * (p - 1) * update_bytes + p * sum_bytes
    return 2 * _barrier_s(p, latency_s) + moved / bytes_per_s + (3 * p * (p - 1) + p) * MESSAGE_S


def _barrier_s(n_workers: int, latency_s: float) -> float:
    return BARRIER_LATENCIES * latency_s + n_workers * ARRIVAL_S


def scatter_from(
    pattern: str,
    n_workers: int,
    update_bytes: float,
    table_bytes: float,
    latency_s: float,
    bytes_per_s: float,
    *,
    growth: float = 1.0,
) -> int:
    """The least number of workers at which scatter-reduce is used; 0: never.

    Parameters
    ----------
    pattern : {"auto", "broadcast", "scatter-reduce", "allreduce"}
    n_workers : int
        Workers at the start; as workers leave, broadcast may become the faster pattern.
    update_bytes, table_bytes, latency_s, bytes_per_s, growth
        See `choose_pattern`.
    """
    if pattern != "auto":
        return 2 if pattern == "scatter-reduce" else 0
    link, least = (update_bytes, table_bytes, latency_s, bytes_per_s, growth), n_workers + 1
    while choose_pattern(least - 1, *link) == "scatter-reduce":
        least -= 1
    return least if least <= n_workers else 0


def choose_pattern(
    n_workers: int, update_bytes: float, table_bytes: float, latency_s: float, bytes_per_s: float, growth: float = 1.0
) -> Pattern:
    """The pattern that the model predicts to be faster; equal numbers give the same pattern on every worker.

    Parameters
    ----------
    n_workers : int
    update_bytes : float
        Size of one worker's frame in a step.
    table_bytes : float
        Size of a frame with every parameter: no sum of updates is larger.
    latency_s, bytes_per_s : float
        As `probe` returns them.
    growth : float
        Power of the number of updates with which their sum grows: 1.0 if no two touch the same row, 0.0 if all touch
        the same ones. See `mlless_nb.job.partitioning.growth`.
    """
    if n_workers <= 2:
        return "broadcast"  # every byte has one reader, so scatter-reduce saves nothing
    one = broadcast_s(n_workers, update_bytes, latency_s, bytes_per_s)
    other = scatter_reduce_s(n_workers, update_bytes, table_bytes, latency_s, bytes_per_s, growth)
    return "scatter-reduce" if other < one else "broadcast"
