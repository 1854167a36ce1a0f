"""The driver's part of an event-driven run: it starts the first step, follows, and has lost parts done again.

Between steps it does nothing that the next step waits for. It keeps the bill and the trace, passes users' commands to
the launch function by way of the plan and the budget, and removes what is no longer needed.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from ..bus.messages import BY_USER, Command
from ..job.stop_rules import Verdict
from .messages import Call, Done, Task
from .platform import Ends
from .run import POLL_S, StatelessRun


class EventRun(StatelessRun):
    """The follower of an event-driven run."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._waiting: dict[Task, Call] = {}
        self._late_at: dict[Task, float] = {}

    def call(self, stage: str, step: int, index: int, **more: Any) -> Call:
        """See `StatelessRun.call`; functions start each other."""
        made = super().call(stage, step, index, **more)
        return replace(made, n_reducers=self.money.n_reducers, held_out_gets=self.money.held_out_gets)

    def train(self) -> Verdict:
        """Start the first step, and follow until a function says that the run ends, or has ended it here."""
        try:
            first = self.call("launch", 1, 0)
            self.invoke([first])
            self._expect(first)
            while True:
                verdict = self._follow()
                if verdict is not None:
                    return verdict
                self._repeat_late()
                self.look()
        except Ends as end:
            return end.verdict

    def _follow(self) -> Verdict | None:
        """Take in the functions' messages; returns how the run ended if one says so."""
        verdict = None
        for message in self.messages(POLL_S):
            if isinstance(message, Call):
                call = replace(message, job=self.fields)
                self.reports.launch(call)
                if call.step > self.judge.step:  # else another function has done its part already
                    self._expect(call)
            elif isinstance(message, Done) and self.reports.take(message):
                verdict = self._take(message) or verdict
        return verdict

    def _expect(self, call: Call) -> None:
        self._waiting[call.task] = call
        self._late_at[call.task] = time.monotonic() + self.patience_s(call.stage)

    def _take(self, done: Done) -> Verdict | None:
        """Take in the first report of a part of the step."""
        if done.task not in self._waiting:
            return None
        if done.error:
            self._again([self._waiting[done.task]], {done.task: done.error})
            return None
        del self._waiting[done.task], self._late_at[done.task]
        if done.stage == "merge":
            best_before = self.judge.best_step
            stats = done.loss_sum, done.loss_count, done.val_sum, done.val_count
            self.judge.observe(stats, has_emerged=done.has_emerged)
            self.after_step()
            for task in [task for task in self._waiting if task[0] <= done.step]:
                del self._waiting[task], self._late_at[task]
            self.forget_before(done.step, best_before)
        return Verdict(done.status, done.reason) if done.status else None

    def _repeat_late(self) -> None:
        """Invoke a second function for each part whose function is late: a straggler, or lost without a report."""
        now = time.monotonic()
        late = [task for task, late_at in self._late_at.items() if now > late_at]
        if late:
            self.refuse_if_aborted()
            self._again([self._waiting[task] for task in late], {})
        if self.functions.are_gone():
            raise Ends("failed", "the process that runs the functions on this machine was lost")

    def _again(self, calls: list[Call], errors: dict[Task, str]) -> None:
        again: dict[Task, Call] = {}
        self.repeat(calls, again, errors)
        for call in again.values():
            self._expect(call)

    def _carry_out(self, command: Command) -> str:
        """See `StatelessRun`; a stop is announced in the plan, which every launch function reads."""
        refused = super()._carry_out(command)
        if command.do == "stop":
            self.log.announce_stop("stopped", BY_USER)
        return refused
