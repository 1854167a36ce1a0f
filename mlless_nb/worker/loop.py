"""The worker: minibatches -> the replica's update -> exchange -> the peers' updates, step by step.

Which minibatches a worker takes is a pure function of the plan (`minibatch_schedule`). In lockstep, updates are applied
in slot order, so that replicas are bit-identical under BSP. Every worker evaluates the stop rules on the same losses
(they are in the frames' headers), so that all workers end at the same step without further communication.

With bounded staleness, workers are at different steps and wait only for updates that are older than the bound. A worker
whose stop rules end training therefore announces a stop step in the plan. At the end, each worker waits for all updates
that the others published, so that no update is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..bus import Bus
from ..bus.messages import HANDED_OVER, Failed, Invocation, Left, Started
from ..data.minibatches import Minibatch
from ..data.prepare import Manifest
from ..errors import RunError, ServiceError
from ..exchange import FROM_THE_START, Aborted, Coordinator, Fenced, LostData, Restart, Restarted
from ..exchange.policies import policy_of
from ..exchange.slots import successor_of
from ..exchange.stats import Stats
from ..exchange.step_report import Report
from ..job.algorithm import algorithm_from_json
from ..job.stop_rules import Verdict
from ..job.sync import sync_from_json
from ..money.budget import Prepaid
from ..storage.checkpoint import Progress
from ..storage.objects import ObjectStore
from ..storage.worker_state import WorkerState
from .best_replica import BestReplica
from .checkpoints import Checkpoints
from .evaluation import HeldOut
from .final_model import FinalModel, Kept
from .judge import Judge
from .membership import Membership
from .minibatch_loader import MinibatchFeed
from .minibatch_merging import MergedFeed
from .minibatch_schedule import SCHEDULES, WholeShards
from .reintegration import Reintegration
from .replica import Replica
from .resuming import Resuming
from .step_exchange import StepExchange


class Worker:
    """One worker's training loop.

    Parameters
    ----------
    invocation : Invocation
    log : Coordinator
    bus : Bus
        Carries messages to the supervisor.
    objects : ObjectStore
        Minibatches, checkpoints, the final model.
    prepaid : Prepaid
        The money that this worker may spend.
    clock, cpu_clock : callable
        Wall time and processor time of this thread, seconds. A simulation passes its own.
    make_replica, make_feed : callable
        Create the replica and the source of minibatches. A simulation passes its own.
    restart : Restart
        From where the worker goes on.
    in_background : bool
        Whether checkpoints are stored by a thread.

    Raises
    ------
    LostData
        The checkpoint cannot be read.
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
        cpu_clock: Callable[[], float] = time.thread_time,
        make_replica: Callable[[Invocation, Manifest], Replica] = Replica,
        make_feed: Callable[[ObjectStore, Manifest], MinibatchFeed] = MinibatchFeed,
        restart: Restart = FROM_THE_START,
        in_background: bool = True,
    ) -> None:
        self._job, self._log, self._bus, self._prepaid = invocation, log, bus, prepaid
        self._slot = invocation.slot
        self._manifest = Manifest.from_json(invocation.manifest)
        self._replica = make_replica(invocation, self._manifest)
        self._feed = MergedFeed(make_feed(objects, self._manifest))
        n_workers, by_shard = invocation.n_workers, self._replica.divergence.owned_rows
        algorithm = algorithm_from_json(invocation.algorithm)
        self._passes = algorithm.passes
        schedule = WholeShards if algorithm.takes_whole_shards else SCHEDULES[invocation.scale_in["global_minibatch"]]
        self._shares = schedule(self._manifest, invocation.slot, n_workers, by_shard=by_shard)
        self._feed.expect(self._shares.part)
        if invocation.start_key is not None:
            self._replica.go_on_from(Progress.decode(objects.get(invocation.start_key)))
            self._shares.skip(self._replica.n_updates_before)
        self._best = BestReplica(self._replica)
        self._held_out = HeldOut(invocation, objects, self._replica, clock, make_feed)
        self._sync = sync = sync_from_json(invocation.sync)
        self._policy = policy_of(sync.policy)(log, self._replica, sync, invocation.scatters, clock)
        self._policy.has_leader = invocation.has_leader
        self._membership = Membership(invocation, log, prepaid, clock)
        self._checkpoints = Checkpoints(
            invocation,
            objects,
            self._membership,
            self._can_pay,
            is_lockstep=self._policy.counts_all,
            in_background=in_background,
            is_on=self._replica.can_resume,
            restart=restart,
        )
        known = invocation, bus, self._replica, self._best, self._membership
        self._judge = Judge(*known, has_validation=self._held_out.has_rows, is_lockstep=self._policy.is_lockstep)
        self._exchange = StepExchange(
            invocation,
            log,
            prepaid,
            self._membership,
            clock,
            cpu_clock,
            prefetch=self._prefetch,
            report=self._report,
            is_last=lambda: self._judge.is_last(self._step, self._epoch),
            checkpoints=self._checkpoints,
        )
        self._exchange.kept_steps, exchange = self._policy.retention, self._exchange
        self._handing_over = Reintegration(self._slot, log, self._replica, prepaid, exchange.pay, exchange.round)
        parts = self._replica, self._best, self._held_out, self._handing_over, log.restart
        self._final = FinalModel(invocation, objects, *parts, clock)
        self._step, self._position = 0, 0  # the latter: minibatches that all have passed over before this step
        self._began_epoch = 0.0  # passes over the data when this step began
        self._sums = self._quality = (0.0, 0.0)  # of the newest evaluation; the former until they are sent
        self._met: set[int] = set()  # minibatches whose users' shard is already recorded in the ownership
        self._resuming = Resuming(
            invocation, self._replica, self._best, self._judge, self._policy, self._held_out, exchange.reports
        )
        if restart != FROM_THE_START:
            self._go_on(restart)

    def run(self) -> Left | Failed:
        """Train until the end; returns, and sends to the supervisor, the outcome.

        Raises `Restarted`, `Fenced` or `LostData`, see `mlless_nb.exchange.restarts`.
        """
        prepaid = self._prepaid
        run_s = self._log.now_s() - self._job.launched_at_s
        self._exchange.note_time(run_s)
        started = Started(self._slot, run_s - self._job.invoked_s, run_s - prepaid.elapsed_s, prepaid.is_cold, run_s)
        self._bus.send("supervisor", started.encode())
        try:
            verdict = self._train()
            last: Left | Failed = self._finish(verdict)
        except (Fenced, LostData, Restarted):
            raise
        except Exception as error:
            is_whole = isinstance(error, (Aborted, RunError, ServiceError))  # others may come while updates are applied
            if is_whole and self._replica.is_finite:
                self._checkpoints.keep_interrupted(self._exchange.applied, lambda: self._state(self._exchange.active))
            last = self._left(error.status, str(error)) if isinstance(error, Aborted) else self._failed(error)
        finally:
            self._feed.close()
            self._held_out.close()
            self._checkpoints.close()
        self._bus.send("supervisor", last.encode())
        return last

    def _failed(self, error: Exception) -> Failed:
        reason = f"worker {self._slot} failed at step {self._step}: {type(error).__name__}: {error}"
        self._log.abort(reason, self._job.n_workers)
        spent, storage, stored = self._prepaid.spent_nusd, self._prepaid.storage_nusd, self._prepaid.store_nusd
        return Failed(self._slot, self._step, spent, storage, reason, stored, [*self._log.frame_count()])

    def _left(
        self, status: str, reason: str, sums: tuple[float, float] = (0.0, 0.0), kept: Kept = (0, 0.0, 0.0)
    ) -> Left:
        self._checkpoints.close()  # the part that is being stored is on the bill
        prepaid, merged, number = self._prepaid, self._exchange.tally.merged_bytes, self._checkpoints.number
        left_s = self._log.now_s() - self._job.launched_at_s if status == HANDED_OVER else 0.0
        said = *sums, status, reason, merged, *kept, prepaid.store_nusd, left_s, number, [*self._log.frame_count()]
        return Left(self._slot, self._step, prepaid.spent_nusd, prepaid.storage_nusd, *said)

    # -- the loop

    def _train(self) -> Verdict:
        """Run steps until a verdict; its status is "left" when this worker leaves before the end."""
        members = self._membership
        while True:
            self._step += 1
            active = members.active(self._step)
            self._exchange.begin(self._step, active)
            self._reassign(active)
            self._began_epoch = self._epoch
            groups = self._advance()
            self._exchange.epoch = self._epoch
            completed = self._policy.skip(self._exchange)
            if not completed:
                minibatches = self._take(groups)
                self._foresee(active)
                self._exchange.stats = self._make(minibatches, len(active))
                completed = self._policy.exchange(self._exchange)
            self._replica.finish(self._step, len(active))
            self._exchange.end()
            verdict = self._judge.judge(completed, self._step, self._epoch)
            leaving, staying = members.leaving(self._step), members.active(self._step + 1)
            if verdict is not None:
                self._handing_over.end(self._step, active)
                return verdict
            # With bounded staleness, the staying workers apply the leaving workers' residuals on arrival instead.
            if leaving and (self._policy.is_lockstep or self._slot in leaving):
                self._checkpoints.await_part(self._step, leaves=self._slot in leaving)
                self._handing_over.leave(self._step, leaving, staying, self._best)
            if self._slot in leaving:
                return Verdict("left", f"left after step {self._step}")
            self._sums = (0.0, 0.0)
            if self._step % self._job.eval_every == 0:
                self._sums, self._quality = self._held_out.evaluate(staying), self._held_out.compare()
                if self._held_out.has_rows:
                    self._best.take(self._step)
            if self._checkpoints.is_due(self._step):
                is_needed = self._step in members.plan.hand_overs.values()
                self._checkpoints.store(self._state(staying), self._exchange.passed, is_needed=is_needed)
                if members.hands_over(self._step, self._slot) and self._log.alive([successor_of(self._slot)])[0]:
                    self._checkpoints.await_part(self._step, leaves=True)
                    return Verdict(HANDED_OVER, f"worker {self._slot} handed over after step {self._step}")
            self._checkpoints.await_part(self._step + 1)
            self._exchange.note_extra()

    def _advance(self) -> list[list[int]]:
        """The minibatches of the step by number, in groups of those that are merged; all workers pass over theirs."""
        groups = self._shares.take(self._job.local_steps)
        self._position += self._shares.count(self._job.local_steps) * self._passes
        return groups

    def _reassign(self, active: list[int]) -> None:
        """Reassign the minibatches if the set of active workers changes with this step."""
        if self._shares.reassign(active):
            self._feed.expect(self._shares.part)
            if self._replica.divergence.owned_rows:
                self._replica.reassign(self._shares.owners)
            self._replica.hold(len(self._shares.held))

    def _take(self, groups: list[list[int]]) -> list[Minibatch]:
        """The minibatches of a step: one for each local step (merged from all held shards), or one for each shard."""
        shares, replica = self._shares, self._replica
        if not replica.merges:  # then there is one local step
            return [self._feed.get([index]) for index in groups[0]]
        minibatches = [self._feed.get(group) for group in groups]
        if replica.divergence.owned_rows:
            for index in {index for group in groups for index in group} - self._met:
                replica.ownership.meet(self._feed.ids(index), shares.shard_of(index))
                self._met.add(index)
        return minibatches

    def _foresee(self, active: list[int]) -> None:
        """Tell the prepaid budget which requests and seconds must be paid before the next grant or the end."""
        prepaid = self._prepaid
        # One that is being stored may be refused, and is stored again then.
        n_parts = self._checkpoints.is_due(self._step) + self._checkpoints.is_writing
        prepaid.puts_ahead = self._final.n_puts(active) + n_parts
        # Up to the next grant: the reads that this step and the next begin, and 2 for a read that cannot be foreseen.
        n_reads = 0 if self._feed.has_all else self._feed.n_gets(self._shares.next(2 * self._job.local_steps))
        prepaid.gets_ahead = 2 + n_reads + self._held_out.n_unread(active)
        prepaid.keep_for_exit(self._final.exit_s(active, self._exchange.quickest_s))

    def _make(self, minibatches: list[Minibatch], n_active: int) -> Stats:
        shares, policy = self._shares, self._policy
        # The stats of the step after an evaluation have each worker's part of the validation loss.
        has_evaluated = self._held_out.has_rows and self._step > 1 and (self._step - 1) % self._job.eval_every == 0
        quorum = n_active if has_evaluated and not policy.counts_all else policy.quorum(self._step, n_active)
        self._exchange.quorum = 0 if policy.counts_all else quorum
        # The mean is over the updates that a step applies, which is fewer than all with a quorum. The protocol's factor
        # of the learning rate scales the update as a whole.
        n_all, factor = float(shares.n_all), self._sync.rate_factor(self._began_epoch)
        if quorum != n_active or factor != 1.0:
            n_all *= quorum / n_active / factor
        loss = self._replica.make(minibatches, self._step, n_active, len(shares.held), n_all)
        return loss, float(sum(minibatch.n for minibatch in minibatches)), *self._sums

    @property
    def _epoch(self) -> float:
        return self._position / self._manifest.n_minibatches

    def _prefetch(self) -> None:
        for group in () if self._feed.has_all else self._shares.next(self._job.local_steps):
            self._feed.prefetch(group)

    def _report(self, n_bytes: int) -> Report:
        """The report of this step for the supervisor; its durations and merged bytes are those of the step before."""
        tally, replica = self._exchange.tally, self._replica
        return Report(
            *self._exchange.stats,
            *self._quality,
            self._held_out.interaction,
            *tally.durations,
            self._prepaid.exit_s,
            self._position,
            self._prepaid.storage_nusd,
            *self._log.frame_count(),
            replica.n_sent,
            replica.n_made,
            n_bytes,
            tally.merged_bytes,
            self._policy.staleness(self._step),
            *replica.residuals,
            *self._policy.spread,
        )

    # -- checkpoints

    def _can_pay(self) -> bool:
        """Whether one more write to the storage is paid for, now that the step is done."""
        prepaid = self._prepaid
        prepaid.puts_ahead = self._final.n_puts(self._exchange.active) + 1
        return not prepaid.has_cap or prepaid.buy(0.0, self._log.reserve)

    def _state(self, active: list[int]) -> WorkerState:
        """The state after the newest step that was applied; ``active`` are the slots that take part in the next one."""
        weight = len(self._shares.held) / self._shares.n_all
        return self._resuming.state(self._exchange.applied, active, weight, self._sums, self._quality)

    def _go_on(self, restart: Restart) -> None:
        """Go on from the checkpoint of ``restart``; step 0: from the start, with the plan as it is."""
        members, step = self._membership, restart.step
        members.plan = self._log.read_plan()
        for number in range(1, step + 1):
            active = members.active(number)
            if number == 1 or active != members.active(number - 1):
                self._reassign(active)
                self._held_out.share(active)
            self._advance()
        self._step = self._exchange.applied = step
        if step:
            self._sums, self._quality = self._resuming.resume(self._checkpoints.load(restart))

    def _finish(self, verdict: Verdict) -> Left:
        """Evaluate for the last time, store the model if this is the first active worker, and report the end."""
        if verdict.status in ("left", HANDED_OVER):
            return self._left(verdict.status, verdict.reason)
        active, weight = self._membership.active(self._step), len(self._shares.held) / self._shares.n_all
        return self._left(verdict.status, verdict.reason, *self._final.finish(verdict, self._step, active, weight))
