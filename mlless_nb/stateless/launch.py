"""The launch stage of an event-driven run: a new model starts it, and it starts an update function for each slot."""

from __future__ import annotations

import dataclasses

from ..bus.messages import Invocation
from ..job.stop_rules import Verdict
from ..money import Rates, price_profile
from .grants import StatelessMoney
from .messages import Call
from .platform import CAPPED
from .stage import Made, Stage


def launch(stage: Stage) -> Made:
    """Pay for the step and invoke its update functions, unless the run ends here."""
    call, job, log = stage.call, stage.job, stage.log
    plan, limit_s = log.read_plan(), job.stop.get("time_s")
    if plan.stop_after is not None:
        return Made(verdict=Verdict(plan.stop_status, plan.stop_reason))
    if not log.alive(["driver"])[0]:
        return Made(verdict=Verdict("stopped", "the driver was lost"))
    if limit_s is not None and log.now_s() - job.launched_at_s >= limit_s:
        return Made(verdict=Verdict("finished", f"the limit of {limit_s:g} s is over"))
    paid = step_nusd(call, job)
    # The first step is part of what was reserved when the run was created. A repeated call reserves nothing more.
    if call.step > 1 and log.reserve(paid, paid, f"{job.generation}-{call.step}") < paid:
        return Made(verdict=CAPPED)
    stage.invoke([following(call, job, "update", slot) for slot in range(job.n_workers)])
    return Made()


def money_of(call: Call, job: Invocation) -> StatelessMoney:
    """The grants of the run's functions."""
    rates = Rates(price_profile(job.prices), job.memory_mb, len(job.redis_urls), job.has_broker)
    return StatelessMoney(
        rates, job.n_workers, bool(job.n_cores), call.held_out_gets, n_reducers=call.n_reducers, is_chained=True
    )


def following(call: Call, job: Invocation, stage: str, index: int) -> Call:
    """A call of the same step, of another stage. What it is granted was reserved by `launch`."""
    granted = money_of(call, job).grant_nusd(stage, n_local_steps=job.local_steps, evaluates=call.evaluates)
    return dataclasses.replace(call, stage=stage, index=index, attempt=0, granted_nusd=granted)


def step_nusd(call: Call, job: Invocation) -> int:
    """The grants of all functions of a step, and of the one that begins the next, nano-dollars."""
    counts = {"update": job.n_workers, "reduce": call.n_reducers, "merge": 1, "launch": 1}
    return sum(count * following(call, job, stage, 0).granted_nusd for stage, count in counts.items())
