"""The worker: minibatch -> gradient -> optimiser -> sync filter -> exchange -> apply the peers' updates, step by step.

Which minibatch a worker takes is a pure function of the plan: step ``t`` continues where step ``t - 1`` ended in the
endless sequence 0, 1, ..., M - 1, 0, 1, ..., and the active slots take the next ones in slot order. Updates are applied
in slot order too, so that replicas are bit-identical under BSP, and every worker judges the stop rules on the same
numbers (they travel in the frames' headers), so that all end at the same step without asking anyone.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import checkpoint
from .channels import Bus
from .data.feed import MinibatchFeed
from .data.prepare import Manifest
from .exchange import LOOK_S, Aborted, Plan, Round, StepLog
from .kernels import (
    SignificanceSplit,
    apply_frame,
    apply_rows,
    encode_sparse,
    encode_update,
    flush_residual,
    read_header,
)
from .messages import Failed, Invocation, Left, Started
from .mind import StopRules, Verdict
from .models import model_from_json
from .money.budget import Prepaid
from .objects import ObjectStore
from .optimizers import optimizer_from_json
from .sync import sync_from_json

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
    """

    def __init__(self, invocation: Invocation, log: StepLog, bus: Bus, objects: ObjectStore, prepaid: Prepaid) -> None:
        self._job, self._log, self._bus, self._objects, self._prepaid = invocation, log, bus, objects, prepaid
        self._slot = invocation.slot
        self._model = model_from_json(invocation.model)
        self._optimizer = optimizer_from_json(invocation.optimizer)
        self._sync = sync_from_json(invocation.sync)
        self._manifest = Manifest.from_json(invocation.manifest)
        shape = self._manifest.shape
        self._n_rows, self._width = self._model.table_shape(shape)
        self._params = self._model.init(shape, self._manifest.mean, invocation.seed)
        self._l2, self._l2_rows = self._model.dense_l2, self._model.dense_l2_rows(shape)
        self._is_dense = self._optimizer.moves_untouched(self._l2)
        self._state = self._optimizer.init(self._n_rows, self._width)
        self._split = SignificanceSplit(self._n_rows, self._width) if self._sync.filters else None
        self._residual = self._split.residual if self._split is not None else None
        self._feed = MinibatchFeed(objects, self._manifest, self._n_rows)
        validation = invocation.validation
        self._validation = Manifest.from_json(validation) if validation is not None else None
        self._validation_feed = (
            MinibatchFeed(objects, self._validation, self._n_rows) if self._validation is not None else None
        )
        self._rules = StopRules(invocation.stop, self._model.metric)
        self._plan = Plan()
        self._step = 0
        self._position = 0  # minibatches taken by all workers before this step
        self._step_s = 0.0
        self._eval_s: float | None = None  # seconds that an evaluation took
        self._put_s = self._params.nbytes / PUT_BYTES_S  # and storing a model, the longest so far
        # A supervisor that was never there is missed only once it is late.
        self._missed_from = time.monotonic() + START_LEASES * invocation.lease_s
        self._tally = _Tally()
        self._grow(0)

    def _grow(self, n_touched: int) -> None:
        """Make room for a minibatch that touches ``n_touched`` rows."""
        n_updated = self._n_rows if self._is_dense else n_touched
        self._grad = np.empty((n_touched, self._width), np.float32)
        self._update = np.empty((n_updated, self._width), np.float32)

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
        return Left(self._slot, self._step, prepaid.spent_nusd, prepaid.storage_nusd, *sums, status, reason)

    # -- the loop

    def _train(self) -> Verdict:
        """Step until a verdict; on leaving, the verdict's status is "left"."""
        n_minibatches, n_workers = self._manifest.n_minibatches, self._job.n_workers
        sums = (0.0, 0.0)
        while True:
            began = time.monotonic()
            self._step += 1
            active = self._plan.active(self._step, n_workers)
            rank = active.index(self._slot)
            self._prepaid.puts_ahead = 2 if rank == 0 else 0
            self._prepaid.gets_ahead = 2 + self._n_unread(rank, len(active))
            self._prepaid.keep_for_exit(self._exit_s(rank, len(active)))
            minibatch = self._feed.get((self._position + rank) % n_minibatches)
            scale = 1.0 / len(active) if self._job.aggregate == "mean" else 1.0
            frame, n_sent = self._compute(minibatch, scale, sums)
            computed = time.monotonic()

            self._position += len(active)
            self._feed.prefetch((self._position + rank) % n_minibatches)
            part = self._round(str(self._step), active, active, frame, self._report(n_sent, len(frame)), self._step_s)
            done = self._log.exchange(part, self._pay_for_waiting)
            arrival = done.arrival
            self._prepaid.add(arrival.granted_nusd)
            self._plan = arrival.plan or self._plan
            loss, validation_loss = self._apply(active, done.frames, frame)
            applied = time.monotonic()
            self._tally = _Tally(
                computed - began,
                done.published_at - computed + applied - done.complete_at,
                done.complete_at - done.published_at,
            )
            self._step_s = max(applied - began, _STEP_MEMORY * self._step_s)

            verdict = self._judge(loss, validation_loss)
            self._miss_supervisor(arrival.has_supervisor)
            leaving = [slot for slot in active if self._plan.leaves.get(slot) == self._step + 1]
            if verdict is not None:
                self._hand_over(active, is_last=True)
                return verdict
            if leaving:
                self._hand_over(leaving, is_last=False)
                if self._slot in leaving:
                    return Verdict("left", f"left after step {self._step}")
            staying = self._plan.active(self._step + 1, n_workers)
            sums = self._evaluate(staying) if self._step % self._job.eval_every == 0 else (0.0, 0.0)
            self._checkpoint(staying[0])
            self._step_s = max(time.monotonic() - began, self._step_s)

    def _miss_supervisor(self, is_there: bool) -> None:
        """End the run when the supervisor is gone for a lease, or has not come long after the start."""
        now = time.monotonic()
        if is_there:
            self._missed_from = math.inf
        elif self._missed_from == math.inf:
            self._missed_from = now
        if now - self._missed_from > self._job.lease_s:
            self._log.announce_stop("failed", f"the supervisor was lost by step {self._step}")

    def _compute(self, minibatch: Any, scale: float, sums: tuple[float, float]) -> tuple[bytes, int]:
        """Gradient, optimiser, filter and encoding of one minibatch: the frame, and how many values it carries."""
        n_touched = len(minibatch.rows)
        if n_touched > len(self._grad):
            self._grow(n_touched + n_touched // 8)
        grad = self._grad[:n_touched]
        update = self._update if self._is_dense else self._update[:n_touched]
        rows = None if self._is_dense else minibatch.rows
        loss = self._model.gradient(self._params, minibatch, self._manifest.mean, self._manifest.size, grad)
        if self._split is not None:
            self._split.threshold = self._sync.threshold_at(self._step)
        self._optimizer.update(
            self._params,
            minibatch.rows,
            grad,
            self._state,
            self._step,
            scale,
            self._l2,
            self._l2_rows,
            update,
            self._split,
        )
        self._rows, self._own = rows, update
        self._stats = stats = (loss, float(minibatch.n), *sums)
        if self._split is None:
            return encode_update(rows, update, self._step, self._slot, self._n_rows, stats), update.size
        positions, values = self._split.sent_positions, self._split.sent_values
        frame = encode_sparse(positions, values, self._step, self._slot, self._n_rows, self._width, stats)
        return frame, self._split.count

    def _apply(self, active: list[int], frames: list[bytes], own_frame: bytes) -> tuple[float, float | None]:
        """Apply own and peers' updates in slot order; the step's training and validation loss."""
        loss_sum = loss_count = val_sum = val_count = 0.0
        rest = iter(frames)
        for slot in active:
            if slot == self._slot:
                apply_rows(self._params, self._rows, self._own)
                header = read_header(own_frame)
            else:
                frame = next(rest)
                apply_frame(frame, self._params)
                header = read_header(frame)
            loss_sum += header.loss_sum
            loss_count += header.loss_count
            val_sum += header.val_sum
            val_count += header.val_count
        loss = self._model.metric_value(loss_sum, loss_count)
        return loss, self._model.metric_value(val_sum, val_count) if val_count else None

    def _judge(self, loss: float, validation_loss: float | None) -> Verdict | None:
        """Whether training ends after this step; the same answer on every worker."""
        epoch = self._position / self._manifest.n_minibatches
        verdict = self._rules.observe(self._step, epoch, loss, validation_loss, self._validation is not None)
        if verdict is None and self._plan.stop_after is not None and self._step >= self._plan.stop_after:
            return Verdict(self._plan.stop_status, self._plan.stop_reason)
        return verdict

    def _hand_over(self, givers: list[int], *, is_last: bool) -> None:
        """Exchange the residuals of ``givers`` so that nothing produced is lost.

        At the end all give and all take; before that the leaving give and the staying take. Where nothing is held back
        the leaving give nothing, but are waited for all the same: until then they read the step's frames, which their
        owners remove two steps later.
        """
        residual = self._residual if self._sync.threshold_at(1) > 0 else None
        if residual is None and is_last:
            return
        round_id = f"{self._step}r"
        takers = givers if is_last else self._plan.active(self._step + 1, self._job.n_workers)
        if self._slot in givers:
            n_held = residual.size if residual is not None else 0
            positions, values = np.empty(n_held, np.uint32), np.empty(n_held, np.float32)
            n_sent = flush_residual(residual, positions, values) if residual is not None else 0
            stats = (0.0, 0.0, 0.0, 0.0)
            frame = encode_sparse(
                positions[:n_sent], values[:n_sent], self._step, self._slot, self._n_rows, self._width, stats
            )
            part = self._round(round_id, givers, takers, frame, None, 0.0)
            arrival = self._log.publish(part)
            self._prepaid.add(arrival.granted_nusd)
            is_complete = arrival.is_complete
        else:
            part = self._round(round_id, givers, takers, b"", None, 0.0)
            is_complete = False
        if self._slot not in takers or not part.peers:
            return
        if not is_complete:
            self._log.wait(part, self._pay_for_waiting)
        for frame in self._log.frames(part):
            apply_frame(frame, self._params)

    def _round(
        self,
        round_id: str,
        publishers: list[int],
        waiters: list[int],
        frame: bytes,
        report: dict[str, Any] | None,
        step_s: float,
    ) -> Round:
        return Round(
            round_id,
            self._step,
            self._slot,
            publishers,
            waiters,
            frame,
            report,
            self._prepaid.wanted(step_s),
            self._plan.version,
            self._job.lease_s,
            self._job.round_timeout_s,
        )

    def _pay_for_waiting(self) -> None:
        if not self._prepaid.buy(LOOK_S, self._log.reserve):
            self._log.announce_stop("capped", "the budget does not pay for another step")

    # -- evaluation, checkpoints, the end

    def _share(self, rank: int, n_active: int) -> range:
        """Which minibatches of held-out rows the worker of ``rank`` evaluates."""
        return range(rank, self._validation.n_minibatches if self._validation is not None else 0, n_active)

    def _n_unread(self, rank: int, n_active: int) -> int:
        feed = self._validation_feed
        return sum(not feed.has(index) for index in self._share(rank, n_active)) if feed is not None else 0

    def _evaluate(self, active: list[int]) -> tuple[float, float]:
        """Loss sum and count of this worker's share of the held-out rows."""
        if self._validation is None or self._validation_feed is None or self._slot not in active:
            return 0.0, 0.0
        began = time.monotonic()
        total, count = 0.0, 0.0
        for index in self._share(active.index(self._slot), len(active)):
            minibatch = self._validation_feed.get(index)
            total += self._model.evaluate(self._params, minibatch, self._manifest.mean)
            count += minibatch.n
        self._eval_s = max(time.monotonic() - began, self._eval_s or 0.0)
        return total, count

    def _exit_s(self, rank: int, n_active: int) -> float:
        """Seconds that a good end takes beside saying goodbye: evaluating, and storing the model where that is done."""
        # Before the first evaluation: a minibatch takes no longer than a training step's.
        guess_s = len(self._share(rank, n_active)) * self._tally.compute_s
        return (guess_s if self._eval_s is None else self._eval_s) + (self._put_s if rank == 0 else 0.0)

    def _checkpoint(self, keeper: int) -> None:
        every = self._job.checkpoint_every
        if self._slot == keeper and self._step % every == 0 and np.isfinite(self._params).all():
            began = time.monotonic()
            checkpoint.save(self._objects, self._job.job_id, self._params, self._step, every)
            self._put_s = max(time.monotonic() - began, self._put_s)

    def _report(self, n_sent: int, frame_bytes: int) -> dict[str, Any]:
        """What the supervisor is told of this step; the times are those of the step before."""
        return {
            "stats": self._stats,
            "position": self._position,
            "storage": self._prepaid.storage_nusd,
            "exit_s": round(self._prepaid.exit_s, 3),
            "n_sent": n_sent,
            "n_made": int(self._own.size),
            "bytes": frame_bytes,
            "times": [round(s, 6) for s in (self._tally.compute_s, self._tally.exchange_s, self._tally.wait_s)],
        }

    def _finish(self, verdict: Verdict) -> Left:
        """Store the model if this worker is the one to, evaluate for the last time, and say goodbye."""
        active = self._plan.active(self._step, self._job.n_workers)
        if verdict.status == "left":
            return self._left(verdict.status, verdict.reason)
        is_finite = bool(np.isfinite(self._params).all())
        if self._slot == active[0] and verdict.status != "failed" and is_finite:
            self._objects.put(checkpoint.model_key(self._job.job_id), checkpoint.encode(self._params, self._step))
        return self._left(verdict.status, verdict.reason, self._evaluate(active))
