"""What is known of a run whose functions live for a part of a step: its steps, and what they cost at least. Pure."""

from __future__ import annotations

import math

from .. import plurals
from ..job.execution import MAP_REDUCE
from ..job.job import TrainingJob
from ..money.meter import NUSD
from .advice import rates_of
from .descent import Descent
from .estimate import Estimate, count, of_target, until_of, usd

#: Why there is no time: a function's start is most of it.
UNKNOWN = "how long they take is seen in the run, since each function starts anew"


def stateless_estimate(job: TrainingJob, most: float | None, descent: Descent | None = None) -> Estimate:
    """The estimate of a map-reduce or event-driven ``job``; the arguments are those of `estimate.estimate`."""
    # what merges the updates; in an event-driven run functions also launch a step and end it
    n_others = 1 if job.execution == MAP_REDUCE else 2 + (job.reducers or 1)
    step_usd = (job.workers + n_others) * rates_of(job).function_nusd(0.0) / NUSD
    per_epoch = job.n_minibatches / (job.workers * job.local_steps)
    at_target = descent.epochs if descent is not None else None
    needed = min((epochs for epochs in (most, at_target) if epochs is not None), default=None)
    until, cap = until_of(job, at_target), job.cap_usd
    functions = f"of {job.workers} + {n_others} functions"
    if needed is None:
        steps = plurals.count(math.ceil(per_epoch), "step")
        line = f"{steps} {functions} an epoch, at least {usd(per_epoch * step_usd)}"
        line += f", until {' or '.join(until)}" if until else ""
    else:
        n_steps = max(math.ceil(needed * per_epoch), 1)
        line = f"{count(needed)}, {plurals.count(n_steps, 'step')} {functions}, at least {usd(n_steps * step_usd)}"
        line = f"at most {line}, or until {' or '.join(until)}" if until else line
        if cap is not None and cap < n_steps * step_usd:
            paid = plurals.count(math.floor(cap / step_usd), "step")
            line += f", of which the budget of {usd(cap)} pays for {paid} at most"
    return Estimate(f"{line}; {UNKNOWN}", tuple(of_target(job, descent)), 1.0 if needed is None else needed)
