"""A function that prepares data, from begin to end: it does its part, reports it, and returns its unused grant."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from ..bus import open_bus
from ..exchange import RedisCoordinator
from ..money import Rates, price_profile
from ..money.budget import Prepaid
from ..money.grant_watch import GrantWatch
from ..stateless.grants import LITHOPS_GETS, LITHOPS_PUTS
from ..storage.objects import LithopsObjects
from .messages import PartCall, PartDone
from .stages import work


def budget_id(job_id: str) -> str:
    """The id under which the coordinator keeps the budget of a run's preparation; its keys are among the run's."""
    return f"{job_id}:data"


def run_part(call: PartCall, storage: Any) -> PartDone:
    """Do what ``call`` says; the report is sent to the driver, and returned."""
    objects, files = LithopsObjects(storage), LithopsObjects(storage, "", call.bucket)
    log = RedisCoordinator(call.redis_urls, budget_id(call.job_id), call.generation, f"{os.getpid()}")
    try:
        began, late_s = time.monotonic(), max(log.now_s() - call.launched_at_s, 0.0)
        rates = Rates(price_profile(call.prices), call.memory_mb, len(call.redis_urls), call.has_broker)
        prepaid = Prepaid(
            rates,
            call.granted_nusd,
            lambda: late_s + time.monotonic() - began,
            lambda: rates.requests_nusd(
                objects.gets + files.gets + LITHOPS_GETS, objects.puts + files.puts + LITHOPS_PUTS
            ),
            n_functions=call.n_functions,
        )
        prepaid.learn(*log.money())
        prepaid.buy(0.0, log.reserve)  # the start may have taken longer than was prepaid
        GrantWatch(prepaid, log.reserve, lambda: _abort_run(call), log.money)
        error = ""
        try:
            found = work(call.stage, json.loads(objects.get(call.plan_key)), call.index, objects, files)
            objects.put(call.found_key, json.dumps(found).encode())
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        span_s = late_s + time.monotonic() - began
        done = PartDone(call.plan_key, call.index, call.attempt, span_s, prepaid.spent_nusd, error)
        bus = open_bus(call.bus_url, call.job_id, insecure=call.insecure)
        with contextlib.closing(bus):
            bus.send("driver", done.encode())
        # Not what the report says: a broker may have taken it late, and that time was paid, too.
        log.refund(prepaid.granted_nusd - prepaid.spent_nusd, account_of(call))
        prepaid.end()
        return done
    finally:
        log.close()


def account_of(call: PartCall) -> int:
    """A number that is unique to this call in its run, under which its unused grant is returned."""
    number = int(call.plan_key.rpartition("-")[2])
    return (number * 100_000 + call.index) * 10 + call.attempt


def _abort_run(call: PartCall) -> None:
    """Say over a separate connection that the budget was used up before this function could end."""
    log = RedisCoordinator(call.redis_urls, budget_id(call.job_id), call.generation)
    with contextlib.closing(log):
        log.abort(f"the budget was used up while functions prepared the data ({call.stage})", 0, "capped")
