"""Calibration: measures the processor time of each piece of work on this machine; other load disturbs it little.

Kernels and frames are timed on a replica, the connection and Redis' thread with plain commands to a private server, and
the loop with a tiny job of one worker. The effect of many processes on each other is not measured here, see
`Machine.crowding`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from ..bus import open_bus
from ..bus.messages import Invocation
from ..data import datasets
from ..data.prepare import Manifest, pack
from ..driver.launch.invocations import DETACHED, invocations_of
from ..driver.servers.embedded_redis import EmbeddedRedis
from ..exchange import RedisCoordinator
from ..exchange.redis.client import connect
from ..exchange.redis.connection import PipelinedConnection
from ..exchange.stats import NO_STATS
from ..exchange.step_report import Report
from ..job.limits import Stop
from ..job.optimizers import SGD
from ..job.sync import BSP, ISP, Sync
from ..models import PMF
from ..money import Rates, price_profile
from ..money.budget import Prepaid
from ..money.start import StartingMoney
from ..storage.objects import MemoryObjects
from ..worker.loop import Worker
from ..worker.minibatch_loader import MinibatchFeed
from ..worker.replica import Replica
from .machine import Costs
from .workload import Workload

#: Ratings in a minibatch, and the shape of the data: those of PMF on MovieLens-1M.
MINIBATCH, SHAPE = 6250, (6040, 3706)
#: Repetitions, of which the fastest counts.
REPEATS = 30
#: Size of a large value, bytes, and how many are moved.
VALUE_BYTES, N_VALUES = 400_000, 200
#: Small values that are requested at once.
N_SMALL = 50
#: Steps of the tiny job, and an interval for what it never does (evaluations, checkpoints).
TINY_STEPS, NEVER = 1000, 10**9
#: Duration of leases and round timeouts, seconds: longer than anything here takes.
PATIENCE_S = 60.0
RATES = Rates(price_profile("aws-lambda-x86"), 2048)


def calibrate() -> Costs:
    """Measure `Costs` on this machine; takes some seconds.

    Raises
    ------
    ServiceError
        No Redis server could be started.
    """
    return dataclasses.replace(_arithmetic(), **_server(), **_loop(), read_report_s=_report_s())


def _quickest(action: Callable[[], Any]) -> float:
    """Processor seconds of ``action`` in this thread."""
    best = float("inf")
    for _ in range(REPEATS):
        began = time.thread_time()
        action()
        best = min(best, time.thread_time() - began)
    return best


def _invocation(slot: int, n_workers: int, manifest: Manifest, sync: Sync | None = None) -> Invocation:
    """The invocation of worker ``slot`` in the job whose pieces are timed."""
    workload = Workload(
        n_workers,
        model=PMF(rank=20, l2=0.02),
        optimizer=SGD(0.1, 0.8, nesterov=True, lazy=True),
        sync=sync or BSP(),
        stop=Stop(steps=TINY_STEPS),
        eval_every=NEVER,
        checkpoint_every=NEVER,
    )
    _, *workers = invocations_of(
        workload,
        manifest,
        None,
        StartingMoney(RATES, n_workers, is_local=True),
        seed=0,
        **DETACHED,
        lease_s=PATIENCE_S,
        round_timeout_s=PATIENCE_S,
    )
    return workers[slot]


def _arithmetic() -> Costs:
    """Kernels, filter and frames, on data of MovieLens-1M's shape."""
    objects, peers = MemoryObjects(), 4
    manifest = pack(datasets.synthetic_ratings(*SHAPE, 8 * MINIBATCH, seed=1), MINIBATCH, 0, objects)
    feed = MinibatchFeed(objects, manifest)
    rows = [feed.get(index) for index in range(4)]
    feed.close()
    replica = Replica(_invocation(0, peers, manifest), manifest)
    filtering = Replica(_invocation(0, peers, manifest, ISP(0.7)), manifest)
    make_s = _quickest(lambda: replica.make([rows[0]], 1, peers))
    # Everything is significant in the first step: the pass over the values is timed, not the part that it keeps.
    filter_s = _quickest(lambda: filtering.make([rows[0]], 1, peers)) - make_s
    frame = replica.encode(1, NO_STATS)
    n_bytes = len(frame)
    active = list(range(peers))
    apply_s = _quickest(lambda: replica.apply(active, [frame] * (peers - 1), NO_STATS))
    parts = replica.encode_parts(1, NO_STATS, active)
    n_part_bytes = sum(map(len, parts.values()))
    encode_s = _quickest(lambda: replica.encode(1, NO_STATS))
    parts_s = _quickest(lambda: replica.encode_parts(1, NO_STATS, active))
    merge_s = _quickest(lambda: replica.merge(active, parts[0], [parts[0]] * (peers - 1), 1))
    evaluate_s = _quickest(lambda: replica.evaluate(rows[1]))
    return Costs(
        row_s=make_s / MINIBATCH,
        filter_value_s=max(filter_s, 0.0) / replica.n_made,
        evaluate_row_s=evaluate_s / MINIBATCH,
        encode_byte_s=encode_s / n_bytes,
        apply_byte_s=apply_s / peers / n_bytes,
        merge_byte_s=merge_s / peers / len(parts[0]),
        part_s=max(parts_s - encode_s * n_part_bytes / n_bytes, 0.0) / peers,
    )


def _server() -> dict[str, float]:
    """The costs of both sides of a connection over the unix socket."""
    with EmbeddedRedis() as server:
        client = connect(server.url)
        line, value = PipelinedConnection(client), bytes(VALUE_BYTES)

        def cost(command: tuple[Any, ...]) -> tuple[float, float]:
            line.send([command])
            line.read(views=True)
            before, began = _redis_s(client), time.thread_time()
            for _ in range(N_VALUES):
                line.send([command])
                line.read(views=True)
            return (time.thread_time() - began) / N_VALUES, (_redis_s(client) - before) / N_VALUES

        try:
            ping, stored, fetched = cost(("PING",)), cost(("SET", "value", value)), cost(("GET", "value"))
            client.set("small", b"x" * 100)
            asked = cost(("MGET", *["small"] * N_SMALL))
        finally:
            line.close()
            client.close()
    return {
        "send_byte_s": max(stored[0] - ping[0], 0.0) / VALUE_BYTES,
        "receive_byte_s": max(fetched[0] - ping[0], 0.0) / VALUE_BYTES,
        "in_byte_s": max(stored[1] - ping[1], 0.0) / VALUE_BYTES,
        "out_byte_s": max(fetched[1] - ping[1], 0.0) / VALUE_BYTES,
        "command_s": max(asked[1] - ping[1], 0.0) / N_SMALL,
        "frame_s": max(asked[0] - ping[0], 0.0) / N_SMALL + _small_frame_s(),
    }


def _small_frame_s() -> float:
    """The cost of applying a peer's nearly empty frame, without reading it from the connection."""
    objects = MemoryObjects()
    manifest = pack(datasets.synthetic_ratings(40, 30, 240, seed=1), 40, 0, objects)
    replica = Replica(_invocation(0, 2, manifest), manifest)
    feed = MinibatchFeed(objects, manifest)
    replica.make([feed.get(0)], 1, 2)
    feed.close()
    frame = replica.encode(1, NO_STATS)
    active = list(range(N_SMALL))
    few_s = _quickest(lambda: replica.apply([0], [], NO_STATS))
    return (_quickest(lambda: replica.apply(active, [frame] * (N_SMALL - 1), NO_STATS)) - few_s) / (N_SMALL - 1)


def _loop() -> dict[str, float]:
    """The cost of a step without its bytes and rows, for the worker and for Redis; measured with one worker."""
    objects = MemoryObjects()
    manifest = pack(datasets.synthetic_ratings(40, 30, 240, seed=1), 40, 0, objects)
    with EmbeddedRedis() as server:
        log, client = RedisCoordinator([server.url], "calibrate", "1"), connect(server.url)
        bus = open_bus("memory://", "calibrate")
        try:
            log.create(cap_nusd=None, reserved_nusd=0)
            log.renew("supervisor", PATIENCE_S)
            log.claim(0)
            prepaid = Prepaid(RATES, 10**12, lambda: 0.0, lambda: 0)
            worker = Worker(_invocation(0, 1, manifest), log, bus, objects, prepaid)
            before, began = _redis_s(client), time.thread_time()
            last = worker.run()
            spent_s, redis_s = time.thread_time() - began, _redis_s(client) - before
            assert last.step == TINY_STEPS, last.reason
        finally:
            bus.close(delete=True)
            client.close()
            log.close()
    return {"step_s": spent_s / TINY_STEPS, "arrival_s": redis_s / TINY_STEPS}


def _redis_s(client: Any) -> float:
    """Processor seconds that the server's main thread has used."""
    info = client.info("cpu")
    return float(info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"])


def _report_s() -> float:
    """The cost for the supervisor to read a report."""
    bodies = [Report().encode()] * 64
    return 2 * _quickest(lambda: Report._make(zip(*map(Report.decode, bodies), strict=True))) / len(bodies)
