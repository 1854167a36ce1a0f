"""Where a run stands, read from Redis in one round trip: the driver looks several times a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis

from ..plan import Plan
from ..restarts import LostData
from ..standing import Standing
from .arrivals import GONE, restart_of


def identities_of(shards: Sequence[redis.Redis]) -> list[str]:
    """See `Coordinator.identities`."""
    return [_identity(shard.info("server")) for shard in shards]


def _identity(server: dict[str, Any]) -> str:
    return str(server["run_id"])


def standing_of(
    shards: Sequence[redis.Redis], key: Callable[..., str], slots: Sequence[int], generation: str
) -> Standing:
    """See `Coordinator.standing`; ``key`` makes a key of its parts."""
    first, *others = shards
    fields = ["plan", "cap", "reserved", "fence", *(f"refunded:{slot}" for slot in slots)]
    with first.pipeline(transaction=True) as pipeline:
        pipeline.hmget(key("job"), fields)
        pipeline.mget([key("claim", slot) for slot in slots])
        pipeline.info("server")
        (plan, cap, reserved, fence, *refunds), claims, server = pipeline.execute()
    if cap is None:
        raise LostData(GONE)
    found = zip(slots, claims, refunds, strict=True)
    at_work = {slot: nonce.decode() for slot, nonce, refund in found if nonce is not None and refund is None}
    identities = [_identity(server), *identities_of(others)]
    return Standing(Plan.decode(plan or ""), at_work, int(reserved), restart_of(fence, generation), identities)
