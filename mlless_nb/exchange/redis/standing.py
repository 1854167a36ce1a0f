"""Where a run stands, read from Redis in one round trip: the driver looks several times a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import redis

from ..plan import Plan
from ..restarts import LostData
from ..standing import Standing
from .arrivals import GONE, restart_of


def standing_of(
    shards: Sequence[redis.Redis], key: Callable[..., str], slots: Sequence[int], generation: str
) -> Standing:
    """See `Coordinator.standing`; ``key`` makes a key of its parts."""
    first, *others = shards
    fields = ["plan", "cap", "reserved", "fence", *(f"refunded:{slot}" for slot in slots)]
    with first.pipeline(transaction=True) as pipeline:
        pipeline.hmget(key("job"), fields)
        for slot in slots:
            pipeline.get(key("claim", slot))
        pipeline.info("server")
        (plan, cap, reserved, fence, *refunds), *claims, server = pipeline.execute()
    if cap is None:
        raise LostData(GONE)
    found = zip(slots, claims, refunds, strict=True)
    at_work = {slot: nonce.decode() for slot, nonce, refund in found if nonce is not None and refund is None}
    identities = [str(info["run_id"]) for info in (server, *(shard.info("server") for shard in others))]
    return Standing(Plan.decode(plan or ""), at_work, int(reserved), restart_of(fence, generation), identities)
