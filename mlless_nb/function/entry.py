"""The entry point of a function, for both roles. Lithops calls it with an `Invocation` as JSON."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from typing import Any

import redis

from ..bus import Bus, open_bus
from ..bus.messages import HANDED_OVER, Invocation, Left, Message
from ..errors import DecodeError
from ..exchange import RedisCoordinator
from ..exchange.protocol import key_prefix
from ..exchange.stores import FrameStore, open_store, store_servers
from ..job.sync import sync_from_json
from ..money import Rates, price_profile
from ..money.budget import Prepaid
from ..preparation.messages import PartCall
from ..stateless.messages import Call
from ..storage.objects import LithopsObjects, ObjectStore
from ..worker.attempts import work
from .malloc import keep_memory
from .succession import UNUSED, await_slot


def run_function(payload: str, storage: Any) -> str:
    """Run the function that ``payload`` describes, of whichever kind, until it has ended.

    Parameters
    ----------
    payload : str
        An `Invocation`, a `Call` or a `PartCall` as JSON.
    storage : lithops.Storage
        Passed by Lithops.

    Returns
    -------
    str
        The final message as JSON; Lithops stores it, nothing depends on it.
    """
    invocation, objects = Message.decode(payload), LithopsObjects(storage)
    keep_memory()
    if isinstance(invocation, Call):
        from ..stateless.functions import run_call  # workers do not need it, and start sooner without

        return run_call(invocation, objects).encode().decode()
    if isinstance(invocation, PartCall):
        from ..preparation.functions import run_part

        return run_part(invocation, storage).encode().decode()
    if not isinstance(invocation, Invocation):
        raise DecodeError(f"a {type(invocation).__name__} where an Invocation was expected")
    if invocation.role == "host":
        from ..stateless.host import serve

        return serve(invocation, objects)
    nonce = f"{os.getpid()}-{uuid.uuid4().hex}"
    store = _open_store(invocation, objects) if invocation.role == "worker" else None
    log = RedisCoordinator(invocation.redis_urls, invocation.job_id, invocation.generation, nonce, store)
    is_over = threading.Event()
    try:
        prepaid = _prepaid(invocation, log, objects, store)
        if not invocation.is_successor and not log.claim(invocation.slot):
            return ""  # another invocation with the same payload is running
        prepaid.add(log.start_grant(invocation.slot))
        prepaid.learn(*log.money())
        prepaid.buy(0.0, log.reserve)  # the start may have taken longer than was prepaid
        prepaid.watch(
            log.reserve,
            lambda: _call_off(invocation),
            log.money,
            lambda nusd, part: log.refund(nusd, invocation.slot, part),
        )
        bus = open_bus(invocation.bus_url, invocation.job_id, insecure=invocation.insecure)
        try:
            if invocation.is_successor and not await_slot(invocation, log, bus):
                log.refund(prepaid.granted_nusd - prepaid.spent_nusd, invocation.slot, UNUSED)
                prepaid.end()
                return ""
            threading.Thread(
                target=_keep_lease, args=(invocation, log, is_over), name="mlless-lease", daemon=True
            ).start()
            act = _supervise if invocation.role == "supervisor" else work
            last = act(invocation, log, bus, objects, prepaid)
        finally:
            bus.close()  # delivers pending messages, while the budget is still watched
        if last is None:
            prepaid.end()
            return ""  # another invocation has the slot; what this one had is not returned
        rest = prepaid.granted_nusd - prepaid.spent_nusd
        if isinstance(last, Left) and last.status == HANDED_OVER:
            log.refund(rest, invocation.slot, UNUSED)
            is_over.set()
            log.release(invocation.slot)  # from now on the successor has it
        else:
            # A function that settled its budget has ended properly; one that exits without doing so counts as lost.
            log.refund(rest, invocation.slot)
        prepaid.end()
        return last.encode().decode()
    finally:
        is_over.set()
        log.close()


def _open_store(invocation: Invocation, objects: ObjectStore) -> FrameStore | None:
    """The job's frame store; aborts the run if this runtime lacks its package, which the driver cannot know."""
    try:
        return open_store(invocation.store, key_prefix(invocation.job_id), objects)
    except Exception as error:
        log = RedisCoordinator(invocation.redis_urls, invocation.job_id, invocation.generation)
        log.abort(f"worker {invocation.slot} could not start: {error}", invocation.n_workers)
        log.close()
        raise


def _supervise(
    invocation: Invocation, log: RedisCoordinator, bus: Bus, objects: ObjectStore, prepaid: Prepaid
) -> Message:
    try:
        from ..supervisor.loop import Supervisor  # imported here, since workers do not need it and start sooner without

        supervisor = Supervisor(invocation, log, bus, objects, prepaid)
    except Exception as error:
        log.abort(f"the supervisor could not start: {type(error).__name__}: {error}", invocation.n_workers)
        raise
    return supervisor.run()


def _keep_lease(invocation: Invocation, log: RedisCoordinator, is_over: threading.Event) -> None:
    """Renew the lease while the function is busy; a process that is stopped or killed loses it."""
    role = "supervisor" if invocation.role == "supervisor" else str(invocation.slot)
    while True:
        with contextlib.suppress(redis.RedisError):  # the main thread meets the same error and reports it
            log.renew(role, invocation.lease_s)
        if is_over.wait(invocation.lease_s / 3):
            return


def _call_off(invocation: Invocation) -> None:
    """Abort the run, over a separate connection: this function's budget is used up before it could end properly."""
    log = RedisCoordinator(invocation.redis_urls, invocation.job_id, invocation.generation)
    who = f"worker {invocation.slot}" if invocation.role == "worker" else "the supervisor"
    log.abort(f"the budget was used up before {who} could end", invocation.n_workers, "capped")


def _prepaid(invocation: Invocation, log: RedisCoordinator, objects: ObjectStore, store: FrameStore | None) -> Prepaid:
    began, invoked_at_s = time.monotonic(), invocation.launched_at_s + invocation.invoked_s
    late_s = max(log.now_s() - invoked_at_s, 0.0)
    rates = Rates(
        price_profile(invocation.prices),
        invocation.memory_mb,
        len(invocation.redis_urls),
        invocation.has_broker,
        store_servers(invocation.store),
    )
    prepaid = Prepaid(
        rates,
        invocation.granted_nusd,
        lambda: late_s + time.monotonic() - began,
        lambda: rates.requests_nusd(objects.gets, objects.puts) + (store.cost_nusd(rates) if store else 0),
        with_servers=invocation.role == "supervisor",
        n_functions=invocation.n_workers + 1,
        store_nusd=lambda: store.price_nusd(store.usage(), rates) if store else 0,
        store_end_nusd=invocation.store_end_nusd if invocation.role == "worker" else 0,
    )
    prepaid.steps_to_end += sync_from_json(invocation.sync).staleness
    return prepaid
