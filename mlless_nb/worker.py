"""The worker: minibatches -> the replica's update -> exchange -> the peers' updates, step by step.

Which minibatches a worker takes is a pure function of the plan: step ``t`` continues where step ``t - 1`` ended in the
endless sequence 0, 1, ..., M - 1, 0, 1, ..., and the active slots take the next ones in slot order (data that is
partitioned by user: each slot those of its own shard). Updates are applied in slot order too, so that replicas are
bit-identical under BSP, and every worker judges the stop rules on the same numbers (they travel in the frames'
headers), so that all end at the same step without asking anyone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import checkpoint
from .channels import Bus
from .data.feed import MinibatchFeed
from .data.minibatches import Minibatch
from .data.prepare import Manifest
from .exchange import LOOK_S, Aborted, Exchanged, Plan, Round, StepLog
from .messages import Failed, Invocation, Left, Started
from .mind import StopRules, Verdict
from .money.budget import Prepaid
from .objects import ObjectStore
from .replica import Replica, Stats

#: Steps whose longest duration stands for the next one's when money is asked for.
_STEP_MEMORY = 0.9
#: Bytes a second at which a model is taken to be stored until one was.
PUT_BYTES_S = 25e6
#: Leases within which a supervisor, or a worker, is to have started.
START_LEASES = 6


@dataclass
class _Tally:
    """What one step took and moved, for the report that goes out with the next one."""

    compute_s: float = 0.0
    exchange_s: float = 0.0
    wait_s: float = 0.0
    merged_bytes: int = 0  # of the merged range that this worker published


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
    clock, make_replica, make_feed : callable
        Seconds that pass, the arithmetic and the minibatches: a simulation has its own.
    """

    def __init__(
        self,
        invocation: Invocation,
        log: StepLog,
        bus: Bus,
        objects: ObjectStore,
        prepaid: Prepaid,
        *,
        clock: Callable[[], float] = time.monotonic,
        make_replica: Callable[[Invocation, Manifest], Replica] = Replica,
        make_feed: Callable[[ObjectStore, Manifest, int], MinibatchFeed] = MinibatchFeed,
    ) -> None:
        self._job, self._log, self._bus, self._objects, self._prepaid = invocation, log, bus, objects, prepaid
        self._clock = clock
        self._slot = invocation.slot
        self._manifest = Manifest.from_json(invocation.manifest)
        self._replica = make_replica(invocation, self._manifest)
        n_rows = self._replica.n_rows
        self._feed = make_feed(objects, self._manifest, n_rows)
        validation = invocation.validation
        self._validation = Manifest.from_json(validation) if validation is not None else None
        self._validation_feed = make_feed(objects, self._validation, n_rows) if self._validation is not None else None
        self._rules = StopRules(invocation.stop, self._replica.model.metric)
        self._plan = Plan()
        self._step = 0
        self._position = 0  # minibatches taken by all workers before this step
        self._step_s = 0.0
        self._eval_s: float | None = None  # seconds that an evaluation took
        self._put_s = self._replica.params.nbytes / PUT_BYTES_S  # and storing a model, the longest so far
        # A supervisor that was never there is missed only once it is late.
        self._missed_from = self._clock() + START_LEASES * invocation.lease_s
        self._tally = _Tally()

    def run(self) -> Left | Failed:
        """Train until the end; returns (and sends) how it went."""
        self._bus.send("workers", Started(self._slot, self._log.now_s() - self._job.launched_at_s).encode())
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
            if self._validation_feed is not None:
                self._validation_feed.close()
        self._bus.send("workers", last.encode())
        return last

    def _left(self, status: str, reason: str, sums: tuple[float, float] = (0.0, 0.0)) -> Left:
        prepaid = self._prepaid
        merged = self._tally.merged_bytes
        return Left(self._slot, self._step, prepaid.spent_nusd, prepaid.storage_nusd, *sums, status, reason, merged)

    # -- the loop

    def _train(self) -> Verdict:
        """Step until a verdict; on leaving, the verdict's status is "left"."""
        n_workers = self._job.n_workers
        sums = (0.0, 0.0)
        while True:
            began = self._clock()
            self._step += 1
            active = self._plan.active(self._step, n_workers)
            rank = active.index(self._slot)
            self._prepaid.puts_ahead = 2 if rank == 0 else 0
            self._prepaid.gets_ahead = 1 + self._job.local_steps + self._n_unread(rank, len(active))
            self._prepaid.keep_for_exit(self._exit_s(rank, len(active)))
            minibatches = [self._feed.get(index) for index in self._turn(rank, len(active))]
            self._stats = self._make(minibatches, len(active), sums)
            self._position += len(active) * self._job.local_steps
            if self._is_scattered(active):
                loss, validation_loss = self._scatter_reduce(active, rank, began)
            else:
                loss, validation_loss = self._broadcast(active, rank, began)

            verdict = self._judge(loss, validation_loss)
            leaving = sorted(slot for slot, first in self._plan.leaves.items() if first == self._step + 1)
            staying = self._plan.active(self._step + 1, n_workers)
            if verdict is not None:
                self._hand_over(active, active)
                return verdict
            if leaving:
                self._hand_over(active if self._replica.holds_owned else leaving, staying)
                if self._slot in leaving:
                    return Verdict("left", f"left after step {self._step}")
            sums = self._evaluate(staying) if self._step % self._job.eval_every == 0 else (0.0, 0.0)
            if self._step % self._job.checkpoint_every == 0:
                self._checkpoint(staying)
            self._step_s = max(self._clock() - began, self._step_s)

    def _turn(self, rank: int, n_active: int) -> list[int]:
        """The minibatches that the worker of ``rank`` takes next, by number."""
        steps = range(self._job.local_steps)
        if self._replica.holds_owned:  # nobody has left yet: all have taken as many
            shard = self._manifest.shard(self._slot)
            return [shard[(self._position // n_active + step) % len(shard)] for step in steps]
        return [(self._position + step * n_active + rank) % self._manifest.n_minibatches for step in steps]

    def _make(self, minibatches: list[Minibatch], n_active: int, sums: tuple[float, float]) -> Stats:
        loss = self._replica.make(minibatches, self._step, n_active)
        return loss, float(sum(minibatch.n for minibatch in minibatches)), *sums

    def _is_scattered(self, active: list[int]) -> bool:
        return self._job.pattern == "scatter-reduce" and len(active) > 1

    def _broadcast(self, active: list[int], rank: int, began: float) -> tuple[float, float | None]:
        """Every worker reads every peer's frame; the step's training and validation loss."""
        frame = self._replica.encode(self._step, self._stats)
        computed = self._clock()
        self._prefetch(rank, len(active))
        done = self._exchange(self._round(str(self._step), active, active, frame, report=self._report(len(frame))))
        sums = self._replica.apply(active, done.frames, self._stats)
        self._note(began, computed, [done], 0)
        return self._losses(sums)

    def _scatter_reduce(self, active: list[int], rank: int, began: float) -> tuple[float, float | None]:
        """Every worker merges one range of rows and publishes it; the step's training and validation loss."""
        parts = self._replica.encode_parts(self._step, self._stats, active)
        own = parts.pop(self._slot)
        computed = self._clock()
        self._prefetch(rank, len(active))
        report = self._report(sum(map(len, parts.values())))
        first = self._exchange(self._round(str(self._step), active, active, b"", report=report, parts=parts))
        merged, sums = self._replica.merge(active, own, first.frames, self._step)
        second = self._exchange(self._round(f"{self._step}m", active, active, merged))
        self._replica.apply_merged(active, merged, second.frames)
        self._note(began, computed, [first, second], len(merged))
        return self._losses(sums)

    def _prefetch(self, rank: int, n_active: int) -> None:
        for index in self._turn(rank, n_active):
            self._feed.prefetch(index)

    def _exchange(self, part: Round) -> Exchanged:
        done = self._log.exchange(part, self._pay_for_waiting)
        self._prepaid.add(done.arrival.granted_nusd)
        self._plan = done.arrival.plan or self._plan
        self._miss_supervisor(done.arrival.has_supervisor)
        return done

    def _losses(self, sums: Stats) -> tuple[float, float | None]:
        value = self._replica.model.metric_value
        return value(sums[0], sums[1]), value(sums[2], sums[3]) if sums[3] else None

    def _note(self, began: float, computed: float, rounds: list[Exchanged], merged_bytes: int) -> None:
        """Remember where the time of the step went, for the next report."""
        applied = self._clock()
        waited = sum(done.complete_at - done.published_at for done in rounds)
        self._tally = _Tally(computed - began, applied - computed - waited, waited, merged_bytes)
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

    def _judge(self, loss: float, validation_loss: float | None) -> Verdict | None:
        """Whether training ends after this step; the same answer on every worker."""
        epoch = self._position / self._manifest.n_minibatches
        verdict = self._rules.observe(self._step, epoch, loss, validation_loss, self._validation is not None)
        if verdict is None and self._plan.stop_after is not None and self._step >= self._plan.stop_after:
            return Verdict(self._plan.stop_status, self._plan.stop_reason)
        return verdict

    def _hand_over(self, givers: list[int], takers: list[int]) -> None:
        """Exchange what ``givers`` hold back so that nothing produced is lost: at the end, and when workers leave.

        Where nothing is held back the leaving give nothing, but are waited for all the same: until then they read the
        step's frames, which their owners remove two steps later.
        """
        if self._replica.holds_back or givers != takers:
            stays = givers != takers and self._slot in takers
            self._give(f"{self._step}r", givers, takers, owned_only=stays)
        self._replica.disown()

    def _give(self, round_id: str, givers: list[int], takers: list[int], *, owned_only: bool) -> None:
        is_giver = self._slot in givers
        frame = self._replica.flush(self._step, owned_only=owned_only) if is_giver else b""
        part = self._round(round_id, givers, takers, frame)
        is_complete = False
        if is_giver:
            arrival = self._log.publish(part)
            self._prepaid.add(arrival.granted_nusd)
            is_complete = arrival.is_complete
        if self._slot not in takers or not part.peers:
            return
        if not is_complete:
            self._log.wait(part, self._pay_for_waiting)
        self._replica.apply_all(self._log.frames(part))

    def _round(
        self,
        round_id: str,
        publishers: list[int],
        waiters: list[int],
        frame: bytes,
        *,
        report: dict[str, Any] | None = None,
        parts: dict[int, bytes] | None = None,
    ) -> Round:
        """This worker's part in a round. Money is asked for in a step's own round, the one with a report."""
        return Round(
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
        )

    def _pay_for_waiting(self) -> None:
        if not self._prepaid.buy(LOOK_S, self._log.reserve):
            self._log.announce_stop("capped", "the budget does not pay for another step")

    # -- evaluation, checkpoints, the end

    def _share(self, rank: int, n_active: int) -> range:
        """Which minibatches of held-out rows the worker of ``rank`` evaluates."""
        if self._validation is None:
            return range(0)
        if self._replica.holds_owned:
            return self._validation.shard(self._slot)
        return range(rank, self._validation.n_minibatches, n_active)

    def _n_unread(self, rank: int, n_active: int) -> int:
        feed = self._validation_feed
        return sum(not feed.has(index) for index in self._share(rank, n_active)) if feed is not None else 0

    def _evaluate(self, active: list[int]) -> tuple[float, float]:
        """Loss sum and count of this worker's share of the held-out rows."""
        if self._validation is None or self._validation_feed is None or self._slot not in active:
            return 0.0, 0.0
        began = self._clock()
        total, count = 0.0, 0.0
        for index in self._share(active.index(self._slot), len(active)):
            minibatch = self._validation_feed.get(index)
            total += self._replica.evaluate(minibatch)
            count += minibatch.n
        self._eval_s = max(self._clock() - began, self._eval_s or 0.0)
        return total, count

    def _exit_s(self, rank: int, n_active: int) -> float:
        """Seconds that a good end takes beside saying goodbye: evaluating, and storing the model where that is done."""
        # Before the first evaluation: a minibatch takes no longer than a training step's.
        guess_s = len(self._share(rank, n_active)) * self._tally.compute_s
        return (guess_s if self._eval_s is None else self._eval_s) + (self._put_s if rank == 0 else 0.0)

    def _checkpoint(self, active: list[int]) -> None:
        if self._replica.holds_owned:  # what is stored is to hold everybody's rows
            self._give(f"{self._step}c", active, active, owned_only=True)
        if self._slot == active[0] and self._replica.is_finite:
            began = self._clock()
            params, every = self._replica.params, self._job.checkpoint_every
            checkpoint.save(self._objects, self._job.job_id, params, self._step, every)
            self._put_s = max(self._clock() - began, self._put_s)

    def _report(self, n_bytes: int) -> dict[str, Any]:
        """What the supervisor is told of this step; the tally is that of the step before."""
        tally = self._tally
        return {
            "stats": self._stats,
            "position": self._position,
            "storage": self._prepaid.storage_nusd,
            "exit_s": round(self._prepaid.exit_s, 3),
            "n_sent": self._replica.n_sent,
            "n_made": self._replica.n_made,
            "bytes": n_bytes,
            "times": [round(s, 6) for s in (tally.compute_s, tally.exchange_s, tally.wait_s)],
            "merged": tally.merged_bytes,
        }

    def _finish(self, verdict: Verdict) -> Left:
        """Store the model if this worker is the one to, evaluate for the last time, and say goodbye."""
        active = self._plan.active(self._step, self._job.n_workers)
        if verdict.status == "left":
            return self._left(verdict.status, verdict.reason)
        if self._slot == active[0] and verdict.status != "failed" and self._replica.is_finite:
            blob = checkpoint.encode(self._replica.params, self._step)
            self._objects.put(checkpoint.model_key(self._job.job_id), blob)
        return self._left(verdict.status, verdict.reason, self._evaluate(active))
