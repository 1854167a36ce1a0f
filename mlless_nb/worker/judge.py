"""When training ends and how the learning rate is cut. Every worker decides both, from the same losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..bus import Bus
from ..bus.messages import Invocation, RateCut
from ..exchange.policies import CompletedRound
from ..job.rate_schedule import Schedule
from ..job.stop_rules import StopRules, Verdict
from .best_replica import BestReplica
from .membership import Membership
from .replica import Replica


class Judge:
    """The stop rules and the rate schedule of one worker.

    All workers judge the same rounds in the same order. In lockstep they do so at the same step, and all end there.
    With bounded staleness they do so at different steps. A worker whose rules end training then announces a stop, and
    all workers train to the stop step that was announced first.

    Parameters
    ----------
    invocation : Invocation
    bus : Bus
        Carries the message that the learning rate was cut.
    replica : Replica
        Its ``rate_factor`` is set here.
    best : BestReplica
        Receives the validation losses.
    membership : Membership
    has_validation : bool
        Whether the job has held-out rows.
    is_lockstep : bool
        See `RoundPolicy`.
    """

    def __init__(
        self,
        invocation: Invocation,
        bus: Bus,
        replica: Replica,
        best: BestReplica,
        membership: Membership,
        *,
        has_validation: bool,
        is_lockstep: bool,
    ) -> None:
        self._slot, self._bus, self._replica, self._best = invocation.slot, bus, replica, best
        self._membership, self._has_validation, self._is_lockstep = membership, has_validation, is_lockstep
        self._rate, self._ends_settled = invocation.optimizer["learning_rate"], invocation.ends_settled
        self._rules = StopRules(invocation.stop, replica.model.metric, self._rate)
        self._schedule = Schedule(invocation.schedule, replica.rate_factor)
        replica.rate_factor = self._schedule.factor
        self._verdict: Verdict | None = None  # what the rules decided on the losses so far

    def state(self) -> dict[str, Any]:
        """What the losses so far have left, as JSON."""
        verdict = None if self._verdict is None else [self._verdict.status, self._verdict.reason]
        return {"rules": self._rules.state(), "schedule": self._schedule.state(), "verdict": verdict}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a `state`."""
        self._rules.resume(state["rules"])
        self._schedule.resume(state["schedule"])
        self._verdict = None if state["verdict"] is None else Verdict(*state["verdict"])

    def judge(self, completed: Sequence[CompletedRound], step: int, epoch: float) -> Verdict | None:
        """The verdict if training ends after ``step``, when ``epoch`` passes over the data are done; else None."""
        value = self._replica.model.metric_value
        for one in completed:
            loss, validation_loss = value(*one.sums[:2]), value(*one.sums[2:]) if one.sums[3] else None
            if validation_loss is not None:
                self._best.judge(one.step - 1, validation_loss)  # step s + 1 carries the evaluation after s
            verdict = self._rules.observe(one.step, one.epoch, loss, validation_loss, self._has_validation)
            if verdict is None and validation_loss is not None:
                verdict = self._follow_schedule(one.step, one.epoch, validation_loss)
            self._verdict = self._verdict or verdict
        if not self._is_lockstep and not self.is_last(step, epoch):
            if self._verdict is not None:
                self._membership.announce_stop(self._verdict.status, self._verdict.reason)
            return None
        if self._membership.is_stopped(step) and (not self._is_lockstep or self._verdict is None):
            plan = self._membership.plan
            return Verdict(plan.stop_status, plan.stop_reason)
        return self._verdict

    def is_last(self, step: int, epoch: float) -> bool:
        """Whether ``step`` is the last one whatever the losses. Workers with the same plan give the same answer."""
        return self._membership.is_stopped(step) or self._rules.end(step, epoch) is not None

    def _follow_schedule(self, step: int, epoch: float, validation_loss: float) -> Verdict | None:
        """Set the learning rate from the newest validation loss; returns a verdict if the loss has settled."""
        replica = self._replica
        before, has_emerged = replica.rate_factor, replica.has_emerged
        replica.rate_factor = self._schedule.observe(step, epoch, validation_loss, has_emerged=has_emerged)
        if replica.rate_factor < before and self._slot == self._membership.active(step)[0]:
            self._bus.send("supervisor", RateCut(self._slot, step, self._rate * replica.rate_factor).encode())
        if not self._schedule.is_settled or not self._ends_settled:
            return None
        reason = f"the validation loss has settled: no better {replica.model.metric} than {self._best.loss:.4f}"
        return Verdict("finished", reason)
