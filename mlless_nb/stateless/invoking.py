"""How a function of an event-driven run invokes others: through Lithops in a cloud, over the bus on one machine.

In a cloud a function invokes the next ones by an executor of its own. On one machine a process of Lithops' local
backend waits for all processes that its functions have started, so that the first function of a run would wait for the
last one. There the calls go over the control bus to the run's host (`host.py`), which stands for the cloud's service
that turns messages into invocations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ..bus import Bus
from ..bus.messages import Invocation
from ..errors import RunError
from ..exchange import RedisCoordinator
from . import nested
from .messages import Call

#: The topic of the calls that the host reads.
TOPIC = "functions"


def invoker(call: Call, job: Invocation, bus: Bus, log: RedisCoordinator) -> Callable[[list[Call]], None]:
    """What the function of ``call`` invokes others with. The driver is told of each, for the trace and the bill."""

    def invoke(calls: list[Call]) -> None:
        if call.attempt > 0:
            # The function that was lost may have invoked the same ones: these are paid once more.
            paid = sum(one.granted_nusd for one in calls)
            if log.reserve(paid, paid, f"{job.generation}-{call.account}") < paid:
                raise RunError("the budget does not pay for functions that are invoked again")
        now_s = log.now_s()
        calls = [dataclasses.replace(one, launched_at_s=now_s, by=[call.stage, call.index]) for one in calls]
        for one in calls:
            bus.send("driver", dataclasses.replace(one, job={}).encode())
        if job.n_cores:  # the cores of this machine
            for one in calls:
                bus.send(TOPIC, one.encode())
        else:
            from .functions import run_payload  # which imports this module

            name = f"{call.step}-{call.stage}-{call.index}-{call.attempt}"
            nested.invoke(run_payload, [one.encode().decode() for one in calls], name, job.memory_mb)

    return invoke
