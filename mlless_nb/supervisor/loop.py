"""The supervisor: step records in -> decisions -> commands out. It holds no state that the coordinator does not hold.

It is never on a step's critical path: workers meet at the coordinator by themselves. The supervisor reads along, turns
steps into telemetry, carries out commands by announcing them in the plan, watches leases, time and money, and says the
last word when all have left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import redis

from ..bus import Bus
from ..bus.messages import Command, Ended, Failed, FromWorker, Invocation, Left, Message, RateCut, Started, Update
from ..data.prepare import Manifest
from ..errors import DecodeError, ServiceError
from ..exchange import Aborted, Coordinator, StepEntry
from ..exchange.protocol import START_LEASES
from ..exchange.step_report import Report
from ..models import model_from_json
from ..money import Rates, price_profile
from ..money.budget import Prepaid
from ..money.meter import NUSD
from ..storage import checkpoint
from ..storage.objects import ObjectStore
from ..telemetry.live import Row
from .bill import Bill
from .policy.overfitting import Evaluation, Overfitting
from .policy.policy import Policy, Prices
from .policy.victim import asked_to_leave

#: Seconds between two looks at steps and leases, each told to the driver; what people ask is heard at once.
STEP_POLL_S = 0.2
#: Seconds between two looks while the knee or a removal may be near.
TUNING_POLL_S = 0.03
#: Seconds that it takes to gather the workers' last words.
LAST_WORDS_S = 0.05
#: The reason where nobody is left to give one.
LOST = "every worker was lost"
#: Share of a function's lifetime after which the run is ended in good order.
LIFETIME_SHARE = 0.8


class _Step(NamedTuple):
    """What a row tells of a step, but for what comes with the next one."""

    step: int
    epoch: float
    at_s: float
    loss: float
    n_workers: int
    sent_bytes: int
    sent_fraction: float
    staleness: float


class Supervisor:
    """One run's supervisor.

    Parameters
    ----------
    invocation, log, bus, objects, prepaid
        As for `Worker`.
    clock : callable
        Seconds that pass.
    """

    def __init__(
        self,
        invocation: Invocation,
        log: Coordinator,
        bus: Bus,
        objects: ObjectStore,
        prepaid: Prepaid,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job, self._log, self._bus, self._objects, self._prepaid = invocation, log, bus, objects, prepaid
        self._clock = clock
        self._rates = Rates(
            price_profile(invocation.prices), invocation.memory_mb, len(invocation.redis_urls), invocation.has_broker
        )
        prices, has_held_out = Prices.of(self._rates), invocation.validation is not None
        self._policy = Policy(
            invocation.scale_in, invocation.n_workers, invocation.stop, prices, has_held_out, invocation.n_cores
        )
        self._cap_usd: float | None = None  # as of the newest look
        self._overfitting = Overfitting(invocation.stop)
        self._reports: dict[int, Report] = {}  # of the newest step, by slot
        self._leaving: set[int] = set()
        self._model = model_from_json(invocation.model)
        self._manifest = Manifest.from_json(invocation.manifest)
        self._started: set[int] = set()
        self._ended: dict[int, Left | Failed] = {}
        self._late_s = log.now_s() - invocation.launched_at_s
        self._began = self._clock()
        self._held: _Step | None = None  # the newest step: its validation and timings come with the next
        self._early: dict[int, StepEntry] = {}  # steps that are complete before one that they follow
        self._n_rows = 0
        self._step, self._epoch = 0, 0.0
        self._update = Update()
        self._due_at = -math.inf  # the next look that is told to the driver
        self._n_active = invocation.n_workers
        self._commands_done: set[str] = set()
        self._suspects: dict[int, float] = {}
        self._called_off: tuple[str, str] | None = None
        self._aborted_at = math.inf
        prepaid.puts_ahead = 0  # it writes nothing
        self._bill = Bill(self._rates, invocation.n_workers, prepaid, invocation.spent_before_nusd)
        self._step_s = self._workers_exit_s = 0.0
        self._rate = math.inf  # of learning, as of the newest cut
        self._best: tuple[float, int, float] | None = None  # validation loss, step and epoch

    @property
    def _time_s(self) -> float:
        """Seconds since the invocation."""
        return self._late_s + self._clock() - self._began

    def run(self) -> Ended:
        """Supervise until every worker has ended; sends and returns the last word."""
        try:
            self._supervise()
        except Aborted as error:
            self._called_off = self._called_off or (error.status, str(error))
        except Exception as error:
            self._called_off = self._called_off or ("failed", f"the supervisor failed: {type(error).__name__}: {error}")
            with contextlib.suppress(Exception):  # what failed may be Redis itself
                self._log.abort(self._called_off[1], self._job.n_workers)
        return self._last_word()

    def _supervise(self) -> None:
        while len(self._ended) < self._job.n_workers:
            looked_at = self._clock()
            self._watch_time_and_money()
            is_due = looked_at >= self._due_at
            if is_due:
                self._due_at = looked_at + 0.9 * STEP_POLL_S  # a pause may end a little before its time
                if self._is_lost():
                    break
                self._watch_leases()
            # The first loss is waited for, and told at once; later steps are read many at a time.
            is_first = not self._n_rows and self._read_steps(TUNING_POLL_S) and self._n_rows > 0
            self._read_steps(0.001)
            self._decide()
            if is_due or is_first or self._update.done:  # what came of a command is not held back
                self._advise()
                self._send_update()
            left_s = self._look_s - (self._clock() - looked_at)
            self._hear(max(left_s, 0.0) if self._n_rows else 0.0)
        while self._read_steps(0.001):
            pass

    @property
    def _look_s(self) -> float:
        """Seconds between two looks: where little money is left each has to be paid for ahead."""
        return TUNING_POLL_S if self._policy.is_tuning or self._prepaid.is_scarce else STEP_POLL_S

    # -- what the workers do

    def _read_steps(self, timeout_s: float) -> bool:
        """Take in the steps completed since the last call; whether there were any."""
        entries = self._log.read_steps(timeout_s)
        self._early |= {entry.step: entry for entry in entries}
        # Under bounded staleness those who stay may be past the last step of one that leaves before that is complete.
        while (entry := self._early.pop(self._step + 1, None)) is not None:
            self._record(entry)
        return bool(entries)

    def _record(self, entry: StepEntry) -> None:
        """Turn the step before ``entry`` into a row; its validation loss and timings came with ``entry``."""
        held, n_workers = self._held, len(entry.reports)
        all_of: Any = Report._make(zip(*entry.reports.values(), strict=True))  # a tuple for each field
        self._held = _Step(
            entry.step,
            max(all_of.position) / self._manifest.n_minibatches,
            entry.at_s,
            self._model.metric_value(math.fsum(all_of.loss_sum), math.fsum(all_of.loss_count)),
            n_workers,
            sum(all_of.sent_bytes),
            sum(all_of.n_sent) / max(sum(all_of.n_made), 1),
            sum(all_of.staleness) / n_workers,
        )
        self._step, self._epoch, self._n_active = entry.step, self._held.epoch, n_workers
        self._reports = entry.reports
        self._workers_exit_s = max(all_of.exit_s)
        for slot, report in entry.reports.items():
            self._bill.note_requests(slot, report.storage_nusd)
        if held is not None:
            self._step_s = max(entry.at_s - held.at_s, 0.9 * self._step_s)
            validation = self._loss_of(all_of.val_sum, all_of.val_count)
            seen = [one for one, rows in zip(all_of.interaction, all_of.val_count, strict=True) if rows]
            interaction = math.fsum(seen) / len(seen) if seen else None
            timed = (all_of.compute_s, all_of.exchange_s, all_of.wait_s, all_of.compute_cpu_s)
            means = [math.fsum(one) / n_workers for one in timed]
            self._add_row(held, (validation, interaction), means, sum(all_of.merged_bytes))

    def _loss_of(self, sums: Iterable[float], counts: Iterable[float]) -> float | None:
        """The loss of all workers' rows together, None where there are none."""
        count = math.fsum(counts)
        return self._model.metric_value(math.fsum(sums), count) if count else None

    def _add_row(
        self, step: _Step, told: tuple[float | None, float | None], mean_times: list[float], merged_bytes: int
    ) -> None:
        validation_loss, interaction = told
        time_s = step.at_s - self._job.launched_at_s
        n_peers = step.n_workers - 1
        # Updates that were scattered are read by one worker each, merged ranges by all the others.
        n_readers = 1 if self._job.scatters(step.n_workers) else n_peers
        self._n_rows += 1
        compute_s, exchange_s, wait_s, compute_cpu_s = mean_times
        row = Row(
            step=step.step,
            epoch=step.epoch,
            time_s=time_s,
            loss=step.loss,
            validation_loss=validation_loss,
            n_workers=step.n_workers,
            spent_usd=self._bill.spent(time_s) / NUSD,
            servers_usd=self._rates.servers_nusd(time_s) / NUSD,
            sent_bytes=step.sent_bytes + merged_bytes,
            received_bytes=n_readers * step.sent_bytes + n_peers * merged_bytes,
            sent_fraction=step.sent_fraction,
            compute_s=compute_s,
            exchange_s=exchange_s,
            wait_s=wait_s,
            staleness=step.staleness,
            interaction=interaction,
            compute_cpu_s=compute_cpu_s,
        )
        self._update.rows.append(list(row))
        self._policy.append(row)
        if validation_loss is not None:
            self._overfitting.observe(Evaluation(step.step, step.epoch, time_s, validation_loss))
        if validation_loss is not None and (self._best is None or validation_loss < self._best[0]):
            self._best = (validation_loss, step.step, step.epoch)
            best = zip(("best_loss", "best_step", "best_epoch"), self._best, strict=True)
            self._update.state.update(best)

    # -- what workers say and people ask

    def _hear(self, timeout_s: float) -> bool:
        """Take in what arrived, and say whether anything did; whoever speaks ends the wait."""
        bodies = self._bus.receive("supervisor", timeout_s)
        for body in bodies:
            try:
                message = Message.decode(body)
            except DecodeError:
                continue
            if isinstance(message, FromWorker):
                self._hear_worker(message)
            elif isinstance(message, Command) and message.id not in self._commands_done:
                self._commands_done.add(message.id)
                self._update.done[message.id] = self._carry_out(message)
        return bool(bodies)

    def _hear_worker(self, message: FromWorker) -> None:
        if isinstance(message, Started) and message.slot not in self._started:
            self._started.add(message.slot)
            if len(self._started) == self._job.n_workers:
                self._tell(f"{self._job.n_workers} of {self._job.n_workers} workers started")
        elif isinstance(message, RateCut) and message.rate < self._rate:
            self._rate = message.rate  # who leaves and who stays may both say it
            metric = self._model.metric
            self._tell(f"Learning rate cut to {message.rate:.3g} at step {message.step}: {metric} had stopped falling")
        elif isinstance(message, (Left, Failed)) and message.slot not in self._ended:
            self._ended[message.slot] = message
            self._bill.close(message.slot, message.spent_nusd, message.storage_nusd)
            if isinstance(message, Left) and message.status == "left":
                self._tell(f"Removed worker {message.slot} after step {message.step}; its bill ends")
            elif isinstance(message, Failed):
                self._called_off = self._called_off or ("failed", message.reason)
            elif message.status == "failed" and len(self._ended) < self._job.n_workers:
                self._abort(message.reason)  # nobody is to wait for it

    def _carry_out(self, command: Command) -> str:
        """Do what ``command`` says; returns what came of it, "" when all went well."""
        if command.do == "stop":
            plan = self._log.announce_stop("stopped", "stopped by hand")
            self._tell(f"Stop asked for: the run ends after step {plan.stop_after}")
        elif command.do == "budget":
            if not self._log.set_cap(command.nusd):
                reserved = self._log.money()[1]
                asked, least = command.nusd / NUSD, reserved / NUSD
                return f"a budget of ${asked:.6g}: it cannot go below ${least:.6f}, which is spent and committed"
            self._tell(f"Budget set to ${command.nusd / NUSD:.6g}")
        elif command.do == "scale_in":
            return self._scale_in(command)
        elif command.do == "tune":
            return self._policy.switch(bool(command.count))
        else:
            return f"{command.do!r} is not a command"
        return ""

    def _scale_in(self, command: Command) -> str:
        slots = asked_to_leave(command.slots, command.count, self._job.n_workers, self._log.read_plan().leaves)
        if isinstance(slots, str):
            return slots
        leaves = self._log.announce_leave(slots).leaves
        self._leaving.update(leaves)
        for slot in slots:
            self._tell(f"Worker {slot} leaves after step {leaves[slot] - 1}")
        self._policy.pause_for_user()
        return ""

    # -- who is still there

    def _watch_leases(self) -> None:
        """A worker whose lease is gone, and half a lease more, is lost: the run ends, naming it and the step.

        Without the driver it ends in good order.
        """
        is_late = self._time_s > START_LEASES * self._job.lease_s
        slots = range(self._job.n_workers) if is_late else sorted(self._started)
        waiting = [slot for slot in slots if slot not in self._ended]
        has_driver, *are_alive = self._log.alive(["driver", *map(str, waiting)])
        if not has_driver:
            self._log.announce_stop("stopped", "the notebook that started the run is gone")
        if self._called_off:
            return
        now = self._clock()
        for slot, is_alive in zip(waiting, are_alive, strict=True):
            if is_alive:
                self._suspects.pop(slot, None)
            elif now - self._suspects.setdefault(slot, now) > self._job.lease_s / 2:
                how = f"was lost at step {self._step + 1}" if slot in self._started else "did not start"
                self._abort(f"worker {slot} {how}")
                return

    def _abort(self, reason: str) -> None:
        self._called_off = self._called_off or ("failed", reason)
        self._log.abort(reason, self._job.n_workers)

    def _is_lost(self) -> bool:
        """Whether the run was called off and who has not said goodbye by now will not."""
        self._called_off = self._called_off or self._log.aborted()
        if self._called_off is not None:
            self._aborted_at = min(self._aborted_at, self._clock())
            silent = [str(slot) for slot in range(self._job.n_workers) if slot not in self._ended]
            if silent and not any(self._log.alive(silent)):
                return True
        return self._clock() - self._aborted_at > 2 * self._job.lease_s

    # -- what the policy decides

    def _decide(self) -> None:
        """Ask the policy, carry out what it decides, tell and record it."""
        for decision, worker in self._policy.decide(self._reports, self._leaving, self._cap_usd):
            if worker is not None:
                self._leaving.update(self._log.announce_leave([worker]).leaves)
            self._update.decisions.append({**decision.to_json(), "worker": worker})
            if decision.text:
                self._tell(decision.text)

    # -- time and money

    def _watch_time_and_money(self) -> None:
        limit_s = self._job.stop.get("time_s")
        if limit_s is not None and self._time_s >= limit_s:
            self._log.announce_stop("finished", f"{limit_s:g} seconds are over")
        if self._time_s > LIFETIME_SHARE * self._job.lifetime_s:
            self._log.announce_stop("stopped", f"the functions' lifetime of {self._job.lifetime_s:g} s is nearly over")
        # The supervisor outlives the workers' steps and exits by the time it takes to gather their last words.
        exit_s = max(self._workers_exit_s, self._prepaid.plain_exit_s)
        self._prepaid.keep_for_exit(LAST_WORDS_S + exit_s - self._prepaid.plain_exit_s)
        if not self._prepaid.buy(max(self._look_s, self._step_s), self._log.reserve):
            self._log.announce_stop("capped", "the budget does not pay for another step")

    def _tell(self, text: str) -> None:
        self._update.sentences.append([self._time_s, text])

    @property
    def _rate_usd_s(self) -> float:
        """Dollars a second at the present number of workers."""
        return (self._bill.n_running + 1) * self._rates.function_usd_s + self._rates.servers_usd_s

    def _advise(self) -> None:
        """Tell when training has stopped helping."""
        text = self._overfitting.advise(self._bill.spent(self._time_s) / NUSD, self._rate_usd_s, self._cap_usd)
        if text:
            self._tell(text)

    def _send_update(self) -> None:
        time_s = self._time_s
        cap, reserved = self._log.money()
        self._cap_usd = None if cap is None else cap / NUSD
        self._update.state.update(
            status="running" if self._started else "starting",
            step=self._step,
            epoch=self._epoch,
            time_s=time_s,
            n_workers=self._n_active,
            n_workers_started=len(self._started),
            leaving=sorted(self._leaving),
            spent_usd=self._bill.spent(time_s) / NUSD,
            committed_usd=reserved / NUSD,
            budget_usd=self._cap_usd,
            rate_usd_s=self._rate_usd_s,
            **self._policy.state(self._cap_usd),
        )
        for first in range(0, max(len(self._update.rows), 1), 500):
            part = Update(self._update.rows[first : first + 500])
            if first == 0:
                part = dataclasses.replace(self._update, rows=part.rows)
            self._bus.send("driver", part.encode())
        self._update = Update()

    # -- the end

    def _last_word(self) -> Ended:
        left = [message for message in self._ended.values() if isinstance(message, Left)]
        closing = [message for message in left if message.status != "left"]
        # The verdict on the training is common to all: who was lost later takes back neither it nor the stored model.
        judged = [one for one in closing if one.status != "failed" and (one.status, one.reason) != self._called_off]
        if judged and self._called_off is not None and self._is_model_stored():
            self._called_off = None
        if self._called_off is not None or not closing:
            status, reason = self._called_off or self._judge()
        else:
            status, reason = (judged or closing)[0].status, (judged or closing)[0].reason
        validation = self._loss_of([one.validation_sum for one in closing], [one.validation_count for one in closing])
        if len(self._ended) < self._job.n_workers:
            validation = None  # of some of the rows
        if self._held is not None:
            merged = sum(message.merged_bytes for message in closing)
            self._add_row(self._held, (validation, None), [math.nan] * 4, merged)
        key, last, kept_step, kept_loss = self._kept(status, closing)
        if status == "failed" or self._called_off is not None:
            validation = None
        with contextlib.suppress(Aborted, redis.RedisError):  # there is no more money to read when Redis lost the run
            self._send_update()
        time_s = self._time_s
        costs = self._costs_nusd(time_s)
        ended = Ended(status, reason, self._step, key, validation, costs, time_s, last, kept_step, kept_loss)
        self._bus.send("driver", ended.encode())
        return ended

    def _kept(self, status: str, closing: list[Left]) -> tuple[str | None, str | None, int | None, float | None]:
        """Keys of the model that is returned and of the last one, where that is another; step and loss of the former.

        A run that was called off, or whose loss exploded before there was a best model, has its newest checkpoint.
        """
        job_id, kept_step = self._job.job_id, max((one.kept_step for one in closing), default=0)
        if self._called_off is None and kept_step and (status != "failed" or kept_step < self._step):
            loss = self._loss_of([one.kept_sum for one in closing], [one.kept_count for one in closing])
            has_last = status != "failed" and kept_step < self._step
            return checkpoint.model_key(job_id), checkpoint.last_key(job_id) if has_last else None, kept_step, loss
        try:
            found = checkpoint.newest(self._objects, job_id)
        except ServiceError:
            found = None  # the driver looks again
        return found[0] if found is not None else None, None, None, None

    def _judge(self) -> tuple[str, str]:
        """Status and reason where no worker says how the run ended."""
        return "failed", LOST

    def _is_model_stored(self) -> bool:
        job_id = self._job.job_id
        with contextlib.suppress(ServiceError):
            return checkpoint.model_key(job_id) in self._objects.list(f"runs/{job_id}/")
        return False

    def _costs_nusd(self, time_s: float) -> dict[str, int]:
        """The bill by component. What is gone without a word is never billed more than was granted."""
        costs = self._bill.by_component(time_s)
        if self._bill.n_running:
            with contextlib.suppress(Aborted, redis.RedisError):
                _, reserved = self._log.money()
                costs["workers"] -= max(0, min(sum(costs.values()) - reserved, costs["workers"]))
        return costs
