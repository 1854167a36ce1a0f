"""The supervisor's loop: step reports in -> decisions -> commands out.

It is never on a step's critical path: workers synchronise through the coordinator without it. The supervisor reads the
step reports, turns them into telemetry, carries out commands by announcing them in the plan, watches leases, time and
budget, and sends the final message when all workers have ended. It holds no state that the coordinator does not hold.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from functools import partial

import redis

from ..bus import Bus
from ..bus.messages import HANDED_OVER, Ended, Invocation, Left
from ..errors import ServiceError
from ..exchange import SUPERVISOR, Aborted, Coordinator, Fenced, LostData, StepEntry
from ..exchange.stores import store_servers
from ..money import Rates, price_profile
from ..money.budget import Prepaid
from ..money.meter import NUSD
from ..storage.objects import ObjectStore
from ..storage.run_objects import is_model_stored
from ..telemetry.live import Row
from .bill import Bill
from .checkpoint_times import CheckpointTimes
from .ending import Ending, judged
from .incoming import IncomingMessages
from .outage import ServerOutage
from .outgoing import Outgoing
from .policy.decision import Decision
from .policy.overfitting import Evaluation, Overfitting
from .policy.policy import Policy, Prices
from .quorum import QuorumControl
from .step_rows import StepRows
from .successors import Successors, left_s
from .takeover import departed, whole_log
from .worker_times import WorkerTimes
from .worker_watch import WorkerWatch

#: Seconds between two polls of steps and leases, each with an update to the driver. Commands are handled at once.
STEP_POLL_S = 0.2
#: Seconds between two polls while the knee or a removal may be near.
TUNING_POLL_S = 0.03
#: Seconds needed to receive the workers' final messages, and for which the steps that they have done are waited for.
LAST_WORDS_S, LAST_STEPS_S = 0.05, 0.5


class Supervisor:
    """One run's supervisor.

    Parameters
    ----------
    invocation, log, bus, objects, prepaid
        As for `Worker`.
    clock : callable
        Monotonic clock, seconds.
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
            price_profile(invocation.prices),
            invocation.memory_mb,
            len(invocation.redis_urls),
            invocation.has_broker,
            store_servers(invocation.store),
        )
        prices, has_held_out = Prices.of(self._rates), invocation.validation is not None
        self._policy = Policy(
            invocation.scale_in, invocation.n_workers, invocation.stop, prices, has_held_out, invocation.n_cores
        )
        self._quorum = QuorumControl(invocation.sync, invocation.n_workers)
        self._overfitting, prepaid.puts_ahead = Overfitting(invocation.stop), 0  # it writes nothing to the storage
        self._late_s, self._began = log.now_s() - invocation.launched_at_s, self._clock()
        self._bill = Bill.of(invocation, self._rates, prepaid, self._late_s)
        self._rows = StepRows(invocation, self._rates, self._bill)
        self._workers = WorkerWatch(invocation, log, clock)
        self._cap_usd: float | None = None  # as of the newest poll, as the next
        self._reserved_usd = 0.0
        self._outgoing, self._outage = Outgoing(bus), ServerOutage(clock)
        self._checkpoints = CheckpointTimes.of(invocation, self._rates, self._rows.model)
        self._due_at, self._best_loss, self._followed = -math.inf, math.inf, 0  # the last: newest restart looked at
        self._successors = Successors(invocation, log, bus, self._bill, self._late_s)
        is_stored = partial(is_model_stored, objects, invocation.job_id)
        parts = log, bus, self._workers, self._bill, self._policy, self._successors
        self._incoming = IncomingMessages(invocation, *parts, self._rows.model.metric, self._add_event, is_stored)
        self._worker_times = WorkerTimes(self._workers, self._incoming)

    @property
    def _time_s(self) -> float:
        """Seconds since the invocation."""
        return self._late_s + self._clock() - self._began

    def run(self) -> Ended | Left | None:
        """Supervise until every worker has ended; sends and returns the final message.

        Returns a `Left` that is not sent if a successor takes over, and None if one has done so already.
        """
        try:
            self._supervise()
            if self._incoming.is_succeeded and not self._workers.have_all_ended:
                self._send_update()
                return Left(SUPERVISOR, self._rows.step, 0, 0, 0.0, 0.0, HANDED_OVER, "the supervisor handed over")
        except Fenced:
            return None
        except Aborted as error:
            self._workers.note_abort(error.status, str(error))
        except Exception as error:
            with contextlib.suppress(Exception):  # what failed may be Redis itself
                self._workers.abort(f"the supervisor failed: {type(error).__name__}: {error}")
        return self._final_message()

    def _supervise(self) -> None:
        has_begun = not self._job.invoked_s
        while not (has_begun and self._workers.have_all_ended):
            try:
                if not has_begun:
                    self._take_over()
                    has_begun = True
                elif not self._look():
                    break
                self._outage.answered()
            except (LostData, redis.ConnectionError, redis.TimeoutError, ServiceError) as error:
                self._outgoing.repeat()
                self._outage.wait(error)
        is_short = self._rows.step < self._workers.last_step  # a log in the storage is not read twice at once
        concludes = self._workers.have_all_ended or not self._incoming.is_succeeded  # else its successor reads them
        with contextlib.suppress(LostData):  # nobody takes them again
            while concludes and self._read_steps(LAST_STEPS_S if is_short else 0.001):
                is_short = False

    def _look(self) -> bool:
        """One round of the loop; returns whether to go on."""
        looked_at = self._clock()
        self._watch_time_and_money()
        is_due = looked_at >= self._due_at
        if is_due:
            self._due_at = looked_at + 0.9 * STEP_POLL_S  # a pause may end a little before its time
            if not self._log.claim(SUPERVISOR):
                raise Fenced("another supervisor has taken over")
            if self._workers.is_over():
                return False
            self._incoming.miss_lost(self._time_s, self._rows.step)
            self._save()
            self._speculate()
        # The first step is waited for and sent to the driver at once; later steps are read in batches.
        is_first = not self._rows.n_rows and self._read_steps(TUNING_POLL_S) and self._rows.n_rows > 0
        self._read_steps(0.001)
        self._decide()
        if is_due or is_first or self._incoming.done:  # results of commands are sent at once
            self._advise()
            self._look_at_money()
            self._send_update()
        left_s = self._look_s - (self._clock() - looked_at)
        self._incoming.receive(max(left_s, 0.0) if self._rows.n_rows else 0.0)
        if self._incoming.restart != self._followed:
            self._outgoing.repeat()
            self._rows.begin_at(self._incoming.restored_step)
            self._incoming.announce_hand_overs({}, self._rows.step)  # a restart forgets them, and the quorum
            self._quorum.repeat()
            self._followed = self._incoming.restart
        return not self._incoming.is_succeeded

    def _save(self) -> None:
        """Let the workers store a checkpoint if one is due; a small rest of the budget is for training."""
        if self._rows.step and not self._prepaid.is_scarce and self._checkpoints.is_passed(self._rows.step):
            time_s = self._time_s
            if self._checkpoints.is_due(time_s, self._bill.spent(time_s)):
                self._checkpoints.announced = self._log.announce_checkpoint().checkpoint

    def _take_over(self) -> None:
        """Learn from the step log, the bus and the plan what a lost supervisor knew, before anything is decided."""
        settled = self._log.settled(list(range(self._job.n_workers)))
        self._incoming.catch_up()
        self._followed = self._incoming.restart
        self._rows.begin_at(self._incoming.restored_step)
        for entries in whole_log(self._log, self._rows):  # after who was replaced: it says what they have spent
            self._take_in(entries)
        plan = self._log.read_plan()
        self._checkpoints.announced = plan.checkpoint
        self._incoming.learn(plan, self._log.at_work(list(range(self._job.n_workers))), self._time_s)
        known = plan, self._workers.ended, settled, self._rates, self._time_s, self._job.n_workers
        for message in departed(self._log, *known):
            self._incoming.take(message)
        self._incoming.announce_hand_overs(plan.hand_overs, self._rows.step)
        self._outgoing.forget_events()

    @property
    def _look_s(self) -> float:
        """Seconds between two polls; short if the budget is nearly spent, since the time until the next is prepaid."""
        is_urgent = self._policy.is_tuning or self._quorum.is_dynamic or self._prepaid.is_scarce
        return TUNING_POLL_S if is_urgent else STEP_POLL_S

    # -- what the workers do

    def _read_steps(self, timeout_s: float) -> bool:
        """Read the steps completed since the last call; returns whether there were any."""
        self._take_in(entries := self._log.read_steps(timeout_s))
        return bool(entries)

    def _take_in(self, entries: list[StepEntry]) -> None:
        """Take in complete steps, but for those that the step log has again after lost data."""
        entries = [entry for entry in entries if entry.step > min(self._rows.step, self._incoming.base)]
        self._quorum.note(entries, self._log.read_late())
        self._successors.note(entries)
        for row in self._rows.append(entries):
            self._add_row(row)

    def _add_row(self, row: Row) -> None:
        """Pass a row to the driver, the policy and the check for overfitting."""
        self._outgoing.add(row)
        self._policy.append(row)
        if row.validation_loss is None:
            return
        self._overfitting.observe(Evaluation(int(row.step), row.epoch, row.time_s, row.validation_loss))
        if row.validation_loss < self._best_loss:
            self._best_loss = row.validation_loss
            self._outgoing.note(best_loss=row.validation_loss, best_step=row.step, best_epoch=row.epoch)

    # -- what the policy decides

    def _decide(self) -> None:
        """Ask the policies for decisions, carry them out, report and record them."""
        changed = self._quorum.decide(self._time_s)
        if changed is not None:
            quorum, decision = changed
            self._log.announce_quorum(quorum)
            self._record(decision, None)
        for decision, worker in self._policy.decide(self._rows.reports, self._incoming.leaving, self._cap_usd):
            if worker is not None:
                self._incoming.leaving.update(self._log.announce_leave([worker]).leaves)
            self._record(decision, worker)

    def _record(self, decision: Decision, worker: int | None) -> None:
        self._outgoing.record(decision, worker)
        if decision.text:
            self._add_event(decision.text)

    # -- time and money

    def _watch_time_and_money(self) -> None:
        limit_s = self._job.stop.get("time_s")
        if limit_s is not None and self._time_s >= limit_s:
            self._log.announce_stop("finished", f"the limit of {limit_s:g} s is over")
        self._successors.watch_ages(self._time_s, self._workers.started - self._workers.ended.keys())
        # The supervisor exits after the workers, once it has received their final messages: that time is prepaid too.
        self._prepaid.keep_for_exit(LAST_WORDS_S + max(self._rows.exit_s - self._prepaid.plain_exit_s, 0.0))
        if not self._prepaid.buy(max(self._look_s, self._rows.step_s), self._log.reserve):
            self._log.announce_stop("capped", "the budget does not pay for another step")

    def _speculate(self) -> None:
        """Ask the driver for a duplicate of a straggler, if that pays."""
        time_s, cap = self._time_s, self._cap_usd
        budget_s = math.inf if cap is None else (cap - self._bill.spent(time_s) / NUSD) / self._rate_usd_s
        run_s = left_s(self._job.stop, self._rows, time_s, budget_s)
        self._successors.speculate(self._rows, run_s, self._incoming.leaving | set(self._bill.waiting))

    def _add_event(self, text: str) -> None:
        self._outgoing.add_event(self._time_s, text)

    @property
    def _rate_usd_s(self) -> float:
        """Dollars per second with the present number of workers."""
        return (self._bill.n_running + 1) * self._rates.function_usd_s + self._rates.servers_usd_s

    def _advise(self) -> None:
        """Add an event when the validation loss has stopped falling."""
        if text := self._overfitting.advise(self._bill.spent(self._time_s) / NUSD, self._rate_usd_s, self._cap_usd):
            self._add_event(text)

    def _look_at_money(self) -> None:
        cap, reserved = self._log.money()
        self._cap_usd, self._reserved_usd = None if cap is None else cap / NUSD, reserved / NUSD

    def _send_update(self) -> None:
        time_s = self._time_s
        self._outgoing.note(
            status=self._workers.status(self._rows.step),
            step=self._rows.step,
            epoch=self._rows.epoch,
            time_s=time_s,
            n_workers=self._rows.n_workers,
            **self._worker_times.state(self._rows.reports, time_s),
            **self._bill.state(time_s),
            committed_usd=self._reserved_usd,
            budget_usd=self._cap_usd,
            rate_usd_s=self._rate_usd_s,
            **self._policy.state(self._cap_usd),
        )
        self._outgoing.send(self._incoming.done)
        self._incoming.done = {}

    # -- the end

    def _final_message(self) -> Ended:
        """Send the last rows and the final message on how the run ended; returns the message."""
        ending = Ending(self._job, self._rows.model, self._objects, self._workers, self._judge)
        for row in self._rows.last(ending.validation_loss, ending.merged_bytes):
            self._add_row(row)
        kept = ending.kept_model()
        # If Redis lost the run, its budget cannot be read; the rows are there.
        with contextlib.suppress(Aborted, redis.RedisError, ServiceError):
            self._look_at_money()
        with contextlib.suppress(redis.RedisError, ServiceError):
            self._send_update()
        time_s = self._time_s
        ended = Ended(
            ending.status,
            ending.reason,
            max(self._rows.step, self._workers.last_step, kept.last_step),
            kept.model_key,
            None if ending.has_failed else ending.validation_loss,
            self._bill.by_component(time_s),
            time_s,
            kept.last_key,
            kept.step,
            kept.loss,
            self._bill.n_invoked,
            self._bill.store_use,
            self._bill.unheard,
            self._reserved_nusd(),
        )
        self._bus.send("driver", ended.encode())
        return ended

    def _judge(self) -> tuple[str, str]:
        """Status and reason if no worker reports how the run ended."""
        return judged(self._job.job_id, self._log.read_plan(), self._rows.step, self._objects)

    def _reserved_nusd(self) -> int | None:
        """What is reserved: functions that were lost are never billed more than was granted. None: no matter."""
        if self._bill.is_estimate:
            with contextlib.suppress(Aborted, redis.RedisError, ServiceError):
                return self._log.money()[1]
        return None
