"""The driver's part of a stateless run: functions are invoked, followed and invoked again, between users' commands."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..bus import Bus
from ..bus.messages import BY_USER, Command, Invocation, Message, Update
from ..errors import DecodeError, RunError
from ..exchange import Coordinator
from ..job.stop_rules import Verdict
from ..money.meter import NUSD
from ..storage.objects import ObjectStore
from .function_reports import FunctionReports
from .grants import ROOM, StatelessMoney
from .judge import Judge
from .keys import model_key, written
from .messages import Call, Done, Task
from .platform import CAPPED, Ends, Functions

#: Longest wait for messages between two checks of the functions and of users' commands, seconds.
POLL_S = 0.1
#: A part of a step is sent to another function after this many times the longest span of its stage so far, and
LATE = 4.0
#: after at least so many seconds.
LEAST_LATE_S = 30.0
#: Functions that are sent to do the same part of a step before the run fails.
MOST_ATTEMPTS = 4


class StatelessRun:
    """What both kinds of stateless runs have in common.

    Parameters
    ----------
    job : Invocation
        Of the run, without role and slot.
    log : Coordinator
        Has the budget.
    bus : Bus
    objects : ObjectStore
    functions : Functions
    money : StatelessMoney
    send : callable
        Takes the updates for telemetry and record.
    trace : callable
        Takes entries of the trace.
    look : callable
        Called between messages; raises `Ends` if the driver's process wants the run to end.
    first_factor : float
        See `Judge`.
    """

    def __init__(
        self,
        job: Invocation,
        log: Coordinator,
        bus: Bus,
        objects: ObjectStore,
        functions: Functions,
        money: StatelessMoney,
        *,
        send: Callable[[Update], None],
        trace: Callable[[list[dict[str, Any]]], None],
        look: Callable[[], None],
        first_factor: float = 1.0,
    ) -> None:
        self.job, self.log, self.bus, self.objects = job, log, bus, objects
        self.functions, self.money = functions, money
        self._send, self._trace, self._look = send, trace, look
        self.reports = FunctionReports(job, money.rates)
        self.judge = Judge(job, first_factor)
        self.fields = vars(job)
        self._update = Update()
        self._asked: Verdict | None = None  # a user's stop
        self._servers_until_s = money.servers_s(0.0)
        self._kept_for_end = money.end_nusd()
        self._began = time.monotonic()
        self.n_repeated = 0

    @property
    def time_s(self) -> float:
        """Seconds since the launch."""
        return time.monotonic() - self._began

    # -- invoking

    def call(self, stage: str, step: int, index: int, **more: Any) -> Call:
        """A call of a function of ``stage`` that is granted what the stage needs."""
        evaluates = bool(more.get("evaluates"))
        longest_s = self.reports.longest_s.get(stage)
        granted = self.money.grant_nusd(stage, longest_s, n_local_steps=self.job.local_steps, evaluates=evaluates)
        key = model_key(self.job.job_id, step - 1 if stage != "evaluate" else step)
        return Call(self.fields, stage, step, index, 0, granted, 0.0, key, self.judge.rate_factor, **more)

    def reserve(self, nusd: int) -> bool:
        """Reserve ``nusd`` of the budget; False if it does not pay for them."""
        return nusd <= 0 or self.log.reserve(nusd, nusd, uuid.uuid4().hex) >= nusd

    def reserve_servers(self, step_s: float | None) -> bool:
        """Pay the servers for another step of about ``step_s`` seconds."""
        until_s, rates = self.money.servers_s(self.time_s, step_s), self.money.rates
        if until_s <= self._servers_until_s:
            return True
        paid = rates.servers_nusd(until_s) - rates.servers_nusd(self._servers_until_s)
        if not self.reserve(paid):
            return False
        self._servers_until_s = until_s
        return True

    def invoke(self, calls: list[Call]) -> None:
        """Invoke functions, whose grants are reserved."""
        launched = [replace(call, launched_at_s=self.log.now_s()) for call in calls]
        for call in launched:
            self.reports.launch(call)
        self.functions.invoke(launched)

    # -- following

    def complete(self, calls: list[Call]) -> dict[int, Done]:
        """Invoke ``calls``, all of one stage, and wait until each part is done; returns the reports by index.

        A part whose function was lost, has failed or is late is sent to another function. The first report counts.
        """
        waiting = {call.task: call for call in calls}
        done: dict[int, Done] = {}
        errors: dict[Task, str] = {}
        self.invoke(calls)
        late_at = time.monotonic() + self.patience_s(calls[0].stage)
        while self._receive(waiting, done, errors):
            is_over = self.functions.are_gone() or time.monotonic() > late_at
            if is_over and self._receive(waiting, done, errors):  # what was sent last
                errors = dict.fromkeys(waiting, "no report") | errors
                self.refuse_if_aborted()
            if errors and (is_over or not self.functions.are_serial):
                if self.functions.are_serial:
                    self.functions.kill()
                self.repeat([waiting[task] for task in errors], waiting, errors)
                errors = {}
                late_at = time.monotonic() + self.patience_s(calls[0].stage)
            self.look()
        return done

    def patience_s(self, stage: str) -> float:
        """Seconds after which a function of ``stage`` is late."""
        longest_s = self.reports.longest_s.get(stage)
        return max(self.money.start_s * ROOM, LEAST_LATE_S, LATE * (longest_s or 0.0))

    def repeat(self, calls: list[Call], waiting: dict[Task, Call], errors: dict[Task, str]) -> None:
        """Send the parts of ``calls`` to other functions."""
        again = []
        for call in calls:
            if call.attempt + 1 >= MOST_ATTEMPTS:
                who = f"{call.stage} function {call.index} of step {call.step}"
                raise RunError(f"{who} was lost {MOST_ATTEMPTS} times: {errors.get(call.task, 'no report')}")
            self.reports.lose(call.task)
            again.append(replace(call, attempt=call.attempt + 1))
        if not self.reserve(sum(call.granted_nusd for call in again)):
            raise Ends(CAPPED.status, CAPPED.reason)
        self.n_repeated += len(again)
        for call in again:
            waiting[call.task] = call
            self.add_event(f"Step {call.step}: {call.stage} function {call.index} was lost and is invoked again")
        self.invoke(again)

    def _receive(self, waiting: dict[Task, Call], done: dict[int, Done], errors: dict[Task, str]) -> bool:
        """Move parts that are done from ``waiting`` to ``done``, note errors; returns whether some are waited for."""
        for message in self.messages(POLL_S):
            if not isinstance(message, Done) or not self.reports.take(message) or message.task not in waiting:
                continue
            if message.error:
                errors[message.task] = message.error
            else:
                del waiting[message.task]
                errors.pop(message.task, None)
                done[message.index] = message
        return bool(waiting)

    def messages(self, timeout_s: float) -> list[Message]:
        """The functions' messages, waiting at most ``timeout_s`` seconds for them."""
        found = []
        for body in self.bus.receive("driver", timeout_s):
            try:
                found.append(Message.decode(body))
            except DecodeError:
                continue
        return found

    def refuse_if_aborted(self) -> None:
        """End the run if a function has said that its budget was used up."""
        aborted = self.log.aborted()
        if aborted is not None:
            raise Ends(*aborted)

    # -- users

    def look(self) -> None:
        """Carry out users' commands and pay for the servers; in the middle of a step, too."""
        for body in self.bus.receive("supervisor", 0.0):
            try:
                command = Message.decode(body)
            except DecodeError:
                continue
            if isinstance(command, Command):
                self._update.done[command.id] = self._carry_out(command)
        if self._update.done:
            self.publish()
        self._look()
        paid_s = self._servers_until_s - self.money.rates.tail_s - self.time_s
        if paid_s < 2 * POLL_S and not self.reserve_servers(self.time_s / max(self.judge.step, 1)):
            raise Ends(CAPPED.status, CAPPED.reason)

    def _carry_out(self, command: Command) -> str:
        """Carry out ``command``; returns why it was refused, "" if it was carried out."""
        if command.do == "stop":
            self._asked = Verdict("stopped", BY_USER)
            self.add_event(f"Stopping after step {self.judge.step + 1}, as you asked")
            return ""
        if command.do == "budget":
            if self.log.set_cap(command.nusd):
                self.add_event(f"The budget is ${command.nusd / NUSD:.6g} now, as you asked")
                return ""
            asked, least = command.nusd / NUSD, self.log.money()[1] / NUSD
            return f"a budget of ${asked:.6g}: it cannot go below ${least:.6f}, which is spent and committed"
        return "no worker lives longer than a step, so that none can be removed"

    def asked(self) -> Verdict | None:
        """Why the run ends here although no rule of the losses says so: a user's stop, or its time is over."""
        limit_s = self.job.stop.get("time_s")
        if limit_s is not None and self.time_s >= limit_s:
            return Verdict("finished", f"the limit of {limit_s:g} s is over")
        return self._asked

    def add_event(self, text: str) -> None:
        """Add an event."""
        self._update.sentences.append([self.time_s, text])

    # -- telemetry

    def spent_nusd(self) -> int:
        """What the run has cost so far, nano-dollars."""
        driver = self.money.rates.requests_nusd(self.objects.gets, self.objects.puts)
        return sum(self.reports.costs_nusd(self.time_s, driver).values())

    def after_step(self) -> None:
        """Publish the newest step of ``judge``."""
        judge = self.judge
        row = self.reports.row(judge, self.time_s, self.spent_nusd())
        if row is not None:
            self._update.rows.append(list(row))
        if judge.cut_rate is not None:
            self.add_event(
                f"Learning rate cut to {judge.cut_rate:.3g} at step {judge.step}: the loss had stopped falling"
            )
        if judge.best_step is not None and judge.validation_loss == judge.best_loss:
            epoch = judge.epoch * judge.best_step / judge.step
            self._update.state.update(best_loss=judge.best_loss, best_step=judge.best_step, best_epoch=epoch)
        self.publish()

    def publish(self) -> None:
        """Send what has changed to telemetry and record."""
        cap, reserved = self.log.money()
        n_started = self.job.n_workers if self.judge.step else 0
        self._update.state.update(
            status="running" if self.judge.step else "starting",
            step=self.judge.step,
            epoch=self.judge.epoch,
            time_s=self.time_s,
            n_workers=self.job.n_workers,
            n_workers_started=n_started,
            spent_usd=self.spent_nusd() / NUSD,
            committed_usd=reserved / NUSD,
            budget_usd=None if cap is None else cap / NUSD,
            rate_usd_s=self.job.n_workers * self.money.rates.function_usd_s + self.money.rates.servers_usd_s,
            tuner="off",
        )
        self._send(self._update)
        self._update = Update()
        self._trace(self.reports.take_trace())

    # -- the end

    def evaluate_last(self) -> tuple[float, float]:
        """Sum and count of the last model's validation loss; the money for it was reserved before the first step."""
        if not self._kept_for_end or not self.judge.step:
            return 0.0, 0.0
        self._kept_for_end = 0
        calls = [self.call("evaluate", self.judge.step, slot) for slot in range(self.job.n_workers)]
        paid = self.money.grant_nusd("evaluate")
        done = self.complete([replace(call, granted_nusd=paid) for call in calls])
        sums = [done[slot] for slot in range(self.job.n_workers)]
        return sum(one.val_sum for one in sums), sum(one.val_count for one in sums)

    def drain(self, patience_s: float) -> None:
        """Wait for functions whose part was done by others, or is no longer wanted: they write and cost meanwhile."""
        give_up_at = time.monotonic() + patience_s
        while self.reports.n_open and time.monotonic() < give_up_at and not self.functions.are_gone():
            for message in self.messages(POLL_S):
                if isinstance(message, Call):
                    self.reports.launch(replace(message, job=self.fields))
                elif isinstance(message, Done):
                    self.reports.take(message)

    def finish_rows(self, validation_loss: float | None) -> None:
        """Publish the last step's row."""
        row = self.reports.last_row(validation_loss)
        if row is not None:
            self._update.rows.append(list(row))
        self.publish()

    def forget_before(self, step: int, best_before: int | None) -> None:
        """Remove what is no longer needed after ``step``: all but the two newest models, their state and the best one.

        ``best_before`` was the best model's step before this one.
        """
        job, best = self.job, self.judge.best_step
        keys = []
        if step > 1:
            keys = written(job.job_id, step - 2, job.n_workers, self.money.n_reducers)
            if step - 2 != best:
                keys.append(model_key(job.job_id, step - 2))
        if best_before is not None and best_before != best and best_before < step - 1:
            keys.append(model_key(job.job_id, best_before))
        self.objects.delete(keys)
