"""The worker: minibatches -> the replica's update -> exchange -> the peers' updates, step by step.

Which minibatches a worker takes is a pure function of the plan (`Shards`). Updates are applied in slot order, so that
replicas are bit-identical under BSP, and every worker judges the stop rules on the same numbers (they travel in the
frames' headers), so that all end at the same step without asking anyone.

With bounded staleness workers are at different steps and wait only for what is due. A verdict on a step's losses then
finds them at different steps, and becomes an announced stop. At the end each waits for all that the others published,
so that there, too, nothing is lost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..bus import Bus
from ..bus.messages import Failed, Invocation, Left, RateCut, Started
from ..data.minibatches import Minibatch
from ..data.prepare import Manifest
from ..exchange import WAIT_POLL_S, Aborted, Arrival, Coordinator, Exchanged, Plan, RoundRequest
from ..exchange.protocol import START_LEASES
from ..exchange.step_report import Report
from ..job.rate_schedule import Schedule
from ..job.stop_rules import StopRules, Verdict
from ..money.budget import STEPS_TO_END, Prepaid
from ..storage import checkpoint
from ..storage.objects import ObjectStore
from .best_replica import BestReplica
from .bounded_staleness import BoundedStaleness
from .evaluation import ROW_SHARE, HeldOut
from .minibatch_loader import MinibatchFeed
from .minibatch_merging import MergedFeed
from .minibatch_schedule import DEALERS
from .outstanding_rounds import CompletedRound
from .reintegration import Reintegration
from .replica import Float32, Replica, Stats

#: Steps whose longest duration stands for the next one's when money is asked for.
_STEP_MEMORY = 0.9
#: Bytes a second at which a model is taken to be stored until one was.
PUT_BYTES_S = 25e6


@dataclass
class _Tally:
    """What one step took and moved, for the report that goes out with the next one."""

    compute_s: float = 0.0
    exchange_s: float = 0.0
    wait_s: float = 0.0
    merged_bytes: int = 0  # of the merged range that this worker published
    compute_cpu_s: float = 0.0  # processor time of ``compute_s``


class Worker:
    """One worker's training loop.

    Parameters
    ----------
    invocation : Invocation
    log : StepLog
        The exchange.
    bus : Bus
        For word to the supervisor.
    objects : ObjectStore
        Minibatches, checkpoints, the final model.
    prepaid : Prepaid
        The money it may spend.
    clock, cpu_clock, make_replica, make_feed : callable
        Seconds that pass, those that this thread was at work, the arithmetic and the minibatches: a simulation has its
        own.
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
    ) -> None:
        self._job, self._log, self._bus, self._objects, self._prepaid = invocation, log, bus, objects, prepaid
        self._clock, self._cpu_clock = clock, cpu_clock
        self._slot = invocation.slot
        self._manifest = Manifest.from_json(invocation.manifest)
        self._replica = make_replica(invocation, self._manifest)
        self._feed = MergedFeed(make_feed(objects, self._manifest))
        n_workers, by_shard = invocation.n_workers, self._replica.holds_owned
        reassign = DEALERS[invocation.scale_in["global_minibatch"]]
        self._shares = reassign(self._manifest, invocation.slot, n_workers, by_shard=by_shard)
        self._feed.expect(self._shares.part)
        self._best = BestReplica(self._replica)
        self._held_out = HeldOut(invocation, objects, self._replica, clock, make_feed)
        self._handing_over = Reintegration(self._slot, log, self._replica, prepaid, self._pay_for_waiting, self._round)
        self._rate = invocation.optimizer["learning_rate"]
        self._rules = StopRules(invocation.stop, self._replica.model.metric, self._rate)
        self._schedule = Schedule(invocation.schedule, self._go_on())
        self._replica.rate_factor = self._schedule.factor
        self._verdict: Verdict | None = None  # of the rules, on the losses so far
        self._plan = Plan()
        self._staleness, self._ahead = self._replica.staleness, BoundedStaleness(log, self._replica, clock)
        self._step = 0
        self._position = 0  # minibatches taken by all workers before this step
        self._step_s = self._quickest_s = 0.0  # 0: there was none
        self._put_s = self._replica.params.nbytes / PUT_BYTES_S  # and storing a model, the longest so far
        # A supervisor that was never there is missed only once it is late.
        self._missed_from = self._clock() + START_LEASES * invocation.lease_s
        self._tally = _Tally()
        self._quality = (0.0, 0.0)
        self._met: set[int] = set()  # minibatches whose users are known to be of their shards
        self._cpu_began = self._computed_cpu_s = 0.0

    def _go_on(self) -> float:
        """Begin where another run ended, if the job says so; the factor of the learning rate there."""
        if self._job.start_key is None:
            return 1.0
        start = checkpoint.Progress.decode(self._objects.get(self._job.start_key))
        self._replica.go_on_from(start)
        return start.rate_factor

    def run(self) -> Left | Failed:
        """Train until the end; returns (and sends) how it went."""
        self._bus.send("supervisor", Started(self._slot, self._log.now_s() - self._job.launched_at_s).encode())
        try:
            verdict = self._train()
            last: Left | Failed = self._finish(verdict)
        except Aborted as error:
            last = self._left(error.status, str(error))
        except Exception as error:
            reason = f"worker {self._slot} failed at step {self._step}: {type(error).__name__}: {error}"
            self._log.abort(reason, self._job.n_workers)
            last = Failed(self._slot, self._step, self._prepaid.spent_nusd, self._prepaid.storage_nusd, reason)
        finally:
            self._feed.close()
            self._held_out.close()
        self._bus.send("supervisor", last.encode())
        return last

    def _left(
        self,
        status: str,
        reason: str,
        sums: tuple[float, float] = (0.0, 0.0),
        kept: tuple[int, float, float] = (0, 0.0, 0.0),
    ) -> Left:
        spent, storage = self._prepaid.spent_nusd, self._prepaid.storage_nusd
        merged, (step, loss_sum, count) = self._tally.merged_bytes, kept
        return Left(self._slot, self._step, spent, storage, *sums, status, reason, merged, step, loss_sum, count)

    # -- the loop

    def _train(self) -> Verdict:
        """Step until a verdict; on leaving, the verdict's status is "left"."""
        n_workers = self._job.n_workers
        sums = (0.0, 0.0)
        while True:
            began, self._cpu_began = self._clock(), self._cpu_clock()
            self._step += 1
            active = self._plan.active(self._step, n_workers)
            self._reassign(active)
            # The best model and the last one, and a checkpoint where one may be due before the end.
            self._prepaid.puts_ahead = 2 + self._is_checkpoint_near() if self._slot == active[0] else 0
            minibatches = self._take()
            # Up to the next grant: what this step and the next begin to read; and a run that nobody could foresee.
            following = self._shares.next(2 * self._job.local_steps)
            self._prepaid.gets_ahead = 2 + self._feed.n_gets(following) + self._held_out.n_unread(active)
            self._prepaid.keep_for_exit(self._exit_s(active))
            self._stats = self._make(minibatches, len(active), sums)
            self._position += self._shares.n_all * self._job.local_steps
            verdict = self._judge(self._exchange_updates(active, began))
            leaving = self._leaving()
            staying = self._plan.active(self._step + 1, n_workers)
            if verdict is not None:
                self._handing_over.end(self._step, active)
                return verdict
            if leaving and (self._staleness == 0 or self._slot in leaving):  # else what they leave comes when it comes
                self._handing_over.leave(self._step, leaving, staying, self._best)
            if self._slot in leaving:
                return Verdict("left", f"left after step {self._step}")
            sums = (0.0, 0.0)
            if self._step % self._job.eval_every == 0:
                sums, self._quality = self._held_out.evaluate(staying), self._held_out.compare()
                if self._held_out.has_rows:
                    self._best.take(self._step)
            if checkpoint.is_due(self._step, self._job.checkpoint_every):
                self._checkpoint(staying)
            self._step_s = max(self._clock() - began, self._step_s)

    def _reassign(self, active: list[int]) -> None:
        """Deal the minibatches anew where others are active from this step on."""
        if self._shares.reassign(active):
            self._feed.expect(self._shares.part)
            if self._replica.holds_owned:
                self._replica.reassign(self._shares.owners)
            self._replica.hold(len(self._shares.held))

    def _take(self) -> list[Minibatch]:
        """The minibatches of a step: of each local step, those of all shards that this worker holds, as one or not."""
        shares, replica = self._shares, self._replica
        groups = shares.take(self._job.local_steps)
        if not replica.merges:  # one step at a time then
            return [self._feed.get([index]) for index in groups[0]]
        minibatches = [self._feed.get(group) for group in groups]
        if replica.holds_owned:
            for index in {index for group in groups for index in group} - self._met:
                replica.ownership.meet(self._feed.ids(index), shares.shard_of(index))
                self._met.add(index)
        return minibatches

    def _make(self, minibatches: list[Minibatch], n_active: int, sums: tuple[float, float]) -> Stats:
        shares = self._shares
        loss = self._replica.make(minibatches, self._step, n_active, len(shares.held), shares.n_all)
        return loss, float(sum(minibatch.n for minibatch in minibatches)), *sums

    @property
    def _epoch(self) -> float:
        return self._position / self._manifest.n_minibatches

    def _leaving(self) -> list[int]:
        """Who takes part for the last time in this step."""
        return sorted(slot for slot, first in self._plan.leaves.items() if first == self._step + 1)

    def _exchange_updates(self, active: list[int], began: float) -> list[CompletedRound]:
        """Publish the update and apply the peers'; the rounds that are done with then."""
        if self._staleness:
            return self._run_ahead(active, began)
        exchange = self._scatter_reduce if self._job.scatters(len(active)) else self._broadcast
        return [CompletedRound(self._step, self._epoch, exchange(active, began))]

    def _broadcast(self, active: list[int], began: float) -> Stats:
        """Every worker reads every peer's frame; the sums of the step's stats."""
        frame = self._replica.encode(self._step, self._stats) if len(active) > 1 else b""
        computed = self._computed()
        self._prefetch()
        done = self._exchange(self._round(str(self._step), active, active, frame, report=self._report(len(frame))))
        sums = self._replica.apply(active, done.frames, self._stats)
        self._note(began, computed, done.complete_at - done.published_at)
        return sums

    def _scatter_reduce(self, active: list[int], began: float) -> Stats:
        """Every worker merges one range of rows and publishes it; the sums of the step's stats."""
        parts = self._replica.encode_parts(self._step, self._stats, active)
        own = parts.pop(self._slot)
        computed = self._computed()
        self._prefetch()
        report = self._report(sum(map(len, parts.values())))
        first = self._exchange(self._round(str(self._step), active, active, b"", report=report, parts=parts))
        merged, sums = self._replica.merge(active, own, first.frames, self._step)
        second = self._exchange(self._round(f"{self._step}m", active, active, merged))
        self._replica.apply_merged(active, merged, second.frames)
        waited = sum(done.complete_at - done.published_at for done in (first, second))
        self._note(began, computed, waited, len(merged))
        return sums

    def _run_ahead(self, active: list[int], began: float) -> list[CompletedRound]:
        """Every worker reads what there is of its peers' frames, and waits only for those that are due."""
        frame = self._replica.encode(self._step, self._stats) if len(active) > 1 else b""
        computed = self._computed()
        self._prefetch()
        part = self._round(str(self._step), active, active, frame, report=self._report(len(frame)))
        self._learn(self._ahead.publish(part, self._epoch, self._stats))
        is_last, waited = self._is_last(), 0.0
        leaving = [] if is_last else self._leaving()
        if self._slot not in leaving:  # who leaves needs no more
            self._ahead.expect_residuals(leaving)
            due = self._step if is_last else self._step - self._staleness
            waited = self._ahead.catch_up(part, due, self._pay_for_waiting)
        self._note(began, computed, waited)
        return self._ahead.settle()

    def _computed(self) -> float:
        """The update is made and encoded: when that was, noting the processor time that it took."""
        self._computed_cpu_s = self._cpu_clock() - self._cpu_began
        return self._clock()

    def _prefetch(self) -> None:
        for group in self._shares.next(self._job.local_steps):
            self._feed.prefetch(group)

    def _exchange(self, part: RoundRequest) -> Exchanged:
        done = self._log.exchange(part, self._pay_for_waiting)
        self._learn(done.arrival)
        return done

    def _learn(self, arrival: Arrival) -> None:
        self._prepaid.add(arrival.granted_nusd)
        self._plan = arrival.plan or self._plan
        self._miss_supervisor(arrival.has_supervisor)

    def _note(self, began: float, computed: float, waited: float, merged_bytes: int = 0) -> None:
        """Remember where the time of the step went, for the next report."""
        applied = self._clock()
        self._tally = _Tally(computed - began, applied - computed - waited, waited, merged_bytes, self._computed_cpu_s)
        self._quickest_s = min(self._quickest_s or math.inf, computed - began)
        self._step_s = max(applied - began, _STEP_MEMORY * self._step_s)

    def _miss_supervisor(self, is_there: bool) -> None:
        """End the run when the supervisor is gone for a lease, or has not come long after the start."""
        now = self._clock()
        if is_there:
            self._missed_from = math.inf
        elif self._missed_from == math.inf:
            self._missed_from = now
        if now - self._missed_from > self._job.lease_s:
            self._log.announce_stop("failed", f"the supervisor was lost by step {self._step}")

    def _judge(self, settled: list[CompletedRound]) -> Verdict | None:
        """Whether training ends after this step; the same answer on every worker.

        All judge the same rounds in the same order. Where they do so at different steps of their own, what they find is
        announced, and training goes on to the step that was announced first.
        """
        value = self._replica.model.metric_value
        for one in settled:
            loss, validation_loss = value(*one.sums[:2]), value(*one.sums[2:]) if one.sums[3] else None
            if validation_loss is not None:
                self._best.judge(one.step - 1, validation_loss)  # of the evaluation that was told with this step
            verdict = self._rules.observe(one.step, one.epoch, loss, validation_loss, self._held_out.has_rows)
            if verdict is None and validation_loss is not None:
                verdict = self._follow_schedule(one.step, one.epoch, validation_loss)
            self._verdict = self._verdict or verdict
        if self._staleness and not self._is_last():
            if self._verdict is not None and self._plan.stop_after is None:
                self._plan = self._log.announce_stop(self._verdict.status, self._verdict.reason)
            return None
        if self._is_stopped() and (self._staleness or self._verdict is None):
            return Verdict(self._plan.stop_status, self._plan.stop_reason)
        return self._verdict

    def _follow_schedule(self, step: int, epoch: float, validation_loss: float) -> Verdict | None:
        """Set the learning rate by the newest validation loss; a verdict where it is that the descent has settled."""
        replica = self._replica
        before, has_emerged = replica.rate_factor, replica.has_emerged
        replica.rate_factor = self._schedule.observe(step, epoch, validation_loss, has_emerged=has_emerged)
        if replica.rate_factor < before and self._slot == self._plan.active(step, self._job.n_workers)[0]:
            self._bus.send("supervisor", RateCut(self._slot, step, self._rate * replica.rate_factor).encode())
        if not self._schedule.is_settled or not self._job.ends_settled:
            return None
        said = f"the validation loss has settled: no better {replica.model.metric} than {self._best.loss:.4f}"
        return Verdict("finished", said)

    def _is_last(self) -> bool:
        """Whether this step is the last one whatever the losses; told of its plan, every worker says the same."""
        return self._is_stopped() or self._rules.end(self._step, self._epoch) is not None

    def _is_stopped(self) -> bool:
        return self._plan.stop_after is not None and self._step >= self._plan.stop_after

    def _round(
        self,
        round_id: str,
        publishers: list[int],
        waiters: list[int],
        frame: bytes,
        *,
        report: Report | None = None,
        parts: dict[int, bytes] | None = None,
    ) -> RoundRequest:
        """This worker's part in a round. Money is asked for in a step's own round, the one with a report."""
        return RoundRequest(
            round_id,
            self._step,
            self._slot,
            publishers,
            waiters,
            frame,
            report,
            self._prepaid.wanted(self._step_s if report is not None else 0.0),
            self._plan.version,
            self._job.lease_s,
            self._job.round_timeout_s,
            parts,
            self._staleness,
        )

    def _pay_for_waiting(self) -> None:
        if not self._prepaid.buy(WAIT_POLL_S, self._log.reserve):
            self._log.announce_stop("capped", "the budget does not pay for another step")

    # -- checkpoints, the end

    def _exit_s(self, active: list[int]) -> float:
        """Seconds that a good end takes beside saying goodbye: evaluating, and storing the model where that is done."""
        # Before the first evaluation: a row takes a share of a training row's time, in a step that nothing held up.
        guess_s = ROW_SHARE * len(self._held_out.share(active)) * self._quickest_s
        took_s = self._held_out.seconds
        evaluating_s = guess_s if took_s is None else took_s
        # The last model, with the optimiser's state, and the best one.
        return 2 * evaluating_s + ((2 + len(self._replica.state)) * self._put_s if self._slot == active[0] else 0.0)

    def _is_checkpoint_near(self) -> bool:
        steps = range(self._step, self._step + STEPS_TO_END + 1)
        return any(checkpoint.is_due(step, self._job.checkpoint_every) for step in steps)

    def _checkpoint(self, active: list[int]) -> None:
        params = self._handing_over.whole(self._step, active, active[0])
        if self._slot == active[0] and self._replica.is_finite:
            began, every = self._clock(), self._job.checkpoint_every
            checkpoint.save(self._objects, self._job.job_id, params, self._step, every)
            self._put_s = max(self._clock() - began, self._put_s)

    def _report(self, n_bytes: int) -> Report:
        """What the supervisor is told of this step; the tally is that of the step before."""
        tally, replica = self._tally, self._replica
        return Report(
            *self._stats,
            *self._quality,
            self._held_out.interaction,
            tally.compute_s,
            tally.exchange_s,
            tally.wait_s,
            tally.compute_cpu_s,
            self._prepaid.exit_s,
            self._position,
            self._prepaid.storage_nusd,
            replica.n_sent,
            replica.n_made,
            n_bytes,
            tally.merged_bytes,
            self._ahead.staleness(self._step),
        )

    def _finish(self, verdict: Verdict) -> Left:
        """Store the model if this worker is the one to, evaluate for the last time, and say goodbye."""
        active = self._plan.active(self._step, self._job.n_workers)
        if verdict.status == "left":
            return self._left(verdict.status, verdict.reason)
        sums = kept_sums = self._held_out.evaluate(active)
        kept_step, has_ended_well = self._step, verdict.status != "failed"
        shares, state = self._shares, []
        if has_ended_well:
            state = self._handing_over.state(self._step, active, len(shares.held) / shares.n_all)
        if self._best.step is not None:
            loss = self._handing_over.loss("e", self._step, active, sums)
            if not has_ended_well or not loss < self._best.loss:
                if has_ended_well:
                    self._store(checkpoint.last_key(self._job.job_id), active, state)
                kept_step, kept_sums = self._go_back_to_best(active, loss) or (kept_step, kept_sums)
        if has_ended_well or kept_step < self._step:
            self._store(checkpoint.model_key(self._job.job_id), active, state if kept_step == self._step else [])
        return self._left(verdict.status, verdict.reason, sums, (kept_step, *kept_sums))

    def _go_back_to_best(self, active: list[int], loss: float) -> tuple[int, tuple[float, float]] | None:
        """Make the best replica the model, and evaluate it; its step and its sums.

        Under ISP the replicas differ a little from what they have in common, and what was found to be the best may not
        be better than the last model, of this ``loss``: then that one stays, and None is returned.
        """
        self._best.swap()
        self._handing_over.end_best(self._step, active)
        sums = self._held_out.evaluate(active)
        if self._handing_over.loss("f", self._step, active, sums) >= loss:
            self._best.swap()
            return None
        return self._best.step or 0, sums

    def _store(self, key: str, active: list[int], state: list[Float32]) -> None:
        """Store the model, and ``state`` of the optimiser, under ``key`` where this worker is the one to."""
        if self._slot == active[0] and self._replica.is_finite:
            self._objects.put(key, self._replica.progress(self._step, state).encode())
