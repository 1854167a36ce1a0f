"""A stateless function from begin to end: it does its stage's part, reports it, and returns its unused grant."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any

from ..bus import open_bus
from ..bus.messages import Invocation
from ..exchange import RedisCoordinator
from ..money import Rates, price_profile
from ..money.budget import Prepaid
from ..money.grant_watch import GrantWatch
from ..redaction import in_configuration, in_job, remember, scrub
from ..storage.objects import LithopsObjects, ObjectStore
from .events import EVENTS
from .grants import LITHOPS_GETS, LITHOPS_PUTS
from .invoking import invoker
from .messages import Begun, Call, Done
from .reduce import reduce_all
from .stage import Made, Stage
from .traced_objects import TracedObjects
from .update import evaluate, update

#: What the functions of a map-reduce run do, by stage.
MAP_REDUCE: dict[str, Callable[[Stage], Made]] = {
    "update": lambda stage: update(stage, 1),
    "reduce": reduce_all,
    "evaluate": evaluate,
}


def run_payload(payload: str, storage: Any) -> str:
    """The entry point of functions that other functions invoke: do what the `Call` in ``payload`` says."""
    call, objects = Call.decode(payload), LithopsObjects(storage)
    remember(*in_job(call.job), *in_configuration([getattr(storage, "config", {}), dict(os.environ)]))
    try:
        objects.part_connections()
        return run_call(call, objects).encode().decode()
    except Exception as error:
        scrub(error)  # Lithops logs and stores it
        raise


def run_call(call: Call, objects: ObjectStore) -> Done:
    """Do what ``call`` says; the report is sent to the driver, and returned."""
    job = dataclasses.replace(Invocation(**call.job), role="worker", slot=call.index)
    log = RedisCoordinator(job.redis_urls, job.job_id, job.generation, f"{os.getpid()}")
    try:
        began, began_at_s = time.monotonic(), log.now_s()
        prepaid = _prepaid(call, job, objects, began, began_at_s)
        prepaid.learn(*log.money())
        prepaid.buy(0.0, log.reserve)  # the start may have taken longer than was prepaid
        GrantWatch(prepaid, log.reserve, lambda: _abort_run(call, job), log.money)
        bus = open_bus(job.bus_url, job.job_id, insecure=job.insecure)
        try:
            bus.send("driver", Begun(*_names(call), os.getpid()).encode())
            traced = TracedObjects(objects, lambda: began_at_s + time.monotonic() - began)
            made, error = Made(), ""
            try:
                made = _work(call)(Stage(call, job, traced, log, invoker(call, job, bus, log)))
            except Exception as problem:
                error = f"{type(problem).__name__}: {problem}"
            done = Done(
                *_names(call),
                os.getpid(),
                call.launched_at_s,
                began_at_s,
                began_at_s + time.monotonic() - began,
                prepaid.spent_nusd,
                prepaid.storage_nusd,
                error,
                *made.stats,
                made.compute_s,
                made.compute_cpu_s,
                made.has_emerged,
                made.verdict.status if made.verdict is not None else "",
                made.verdict.reason if made.verdict is not None else "",
                call.by,
                traced.spans,
            )
            bus.send("driver", done.encode())
        finally:
            bus.close()
        # Not what the report says: a broker may have taken it late, and that time was paid, too.
        log.refund(prepaid.granted_nusd - prepaid.spent_nusd, call.account)
        prepaid.end()
        return done
    finally:
        log.close()


def _work(call: Call) -> Callable[[Stage], Made]:
    return (EVENTS if call.n_reducers else MAP_REDUCE)[call.stage]


def _names(call: Call) -> tuple[str, int, int, int]:
    return call.stage, call.step, call.index, call.attempt


def _prepaid(call: Call, job: Invocation, objects: ObjectStore, began: float, began_at_s: float) -> Prepaid:
    late_s = max(began_at_s - call.launched_at_s, 0.0)
    rates = Rates(price_profile(job.prices), job.memory_mb, len(job.redis_urls), job.has_broker)
    return Prepaid(
        rates,
        call.granted_nusd,
        lambda: late_s + time.monotonic() - began,
        lambda: rates.requests_nusd(objects.gets + LITHOPS_GETS, objects.puts + LITHOPS_PUTS),
        n_functions=job.n_workers + 1,
    )


def _abort_run(call: Call, job: Invocation) -> None:
    """Say over a separate connection that this function's budget is used up before it could end."""
    log = RedisCoordinator(job.redis_urls, job.job_id, job.generation)
    with contextlib.closing(log):
        who = f"{call.stage} function {call.index} of step {call.step}"
        log.abort(f"the budget was used up before {who} could end", job.n_workers, "capped")
