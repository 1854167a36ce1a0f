"""The replicas of simulated workers: a loss curve with sizes of frames, or the real replica; and their costs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..bus.messages import Invocation
from ..data.minibatches import CsrMinibatch
from ..data.prepare import Manifest
from ..exchange.stats import NO_STATS, Stats
from ..job.algorithm import algorithm_from_json
from ..job.sync import sync_from_json
from ..models import model_from_json
from ..storage.checkpoint import Progress
from ..worker.algorithms.base import NO_RESIDUALS
from ..worker.outgoing_update import Divergence
from ..worker.replica import Replica
from ..worker.row_ownership import Ownership
from .events import Process
from .machine import Machine
from .stand_ins import Rows, Sized
from .workload import HEADER_BYTES, SPARSE_VALUE_BYTES, Workload


class CurveReplica:
    """A replica whose loss follows a curve; see `Replica` for the meaning of its methods.

    All peers' frames are one `Sized` with the sums of the round's stats, so that simulating a step costs the same for
    any number of workers. With bounded staleness the frames are separate, and each adds its share of a step to the
    replica's progress, so that a replica that lags behind has a higher loss.
    """

    is_finite = has_emerged = merges = True
    can_resume = False
    rate_factor = 1.0
    ownership = Ownership(0, 0, 1)
    state: Sequence[Any] = ()
    n_state_tables, is_state_local = 0, False
    residuals = NO_RESIDUALS

    def __init__(self, invocation: Invocation, manifest: Manifest, workload: Workload) -> None:
        self.model = model_from_json(invocation.model)
        self.n_rows, self.width = self.model.table_shape(manifest.shape)
        #: Has the right shape, but takes almost no memory.
        self.params = np.broadcast_to(np.float32(0), (self.n_rows, self.width))
        self._workload, self._curve = workload, workload.curve
        self._draws = random.Random(f"noise {invocation.seed} {invocation.slot}")
        self._slot = invocation.slot
        self._is_squared = self.model.metric == "RMSE"
        self._progress = 0.0
        self.n_made = self.n_sent = workload.n_values
        self._share = 1.0
        self._worth = 0.0  # of the own update
        threshold, self.staleness = workload.sync.threshold_at(1), workload.sync.staleness
        self.divergence = Divergence(owned_rows=False, residual=threshold > 0, staleness=self.staleness)
        self.averages, self.averages_whole = workload.sync.averages is True and threshold > 0, False

    def _sum(self, loss: float, n: float) -> float:
        """The loss sum of ``n`` rows whose metric is ``loss``."""
        return n * loss * loss if self._is_squared else n * loss

    def make(
        self, minibatches: Sequence[Any], step: int, n_active: int, n_shards: int = 1, n_all: int | None = None
    ) -> float:
        """The loss before the step: the curve's, with the noise of a minibatch."""
        curve, n_all = self._curve, n_all or n_active
        loss = curve.loss(self._progress)
        if curve.noise:
            loss *= 1.0 + curve.noise / n_shards**0.5 * self._draws.gauss(0.0, 1.0)
        if self.staleness:
            self._worth = curve.gain(n_all) * n_shards / n_all
        elif self._workload.sync.counts_all:
            self._progress += curve.gain(n_all)
        if self.divergence.residual:
            self._share = self._workload.sent.at(step, n_active)
            self.n_sent = int(self._share * self.n_made)
        return self._sum(loss, sum(minibatch.n for minibatch in minibatches))

    def finish(self, step: int, n_active: int) -> None:
        """Nothing: the curve knows."""

    def learning_rate(self, step: int) -> float:
        """A curve has none."""
        return 0.0

    def encode(self, step: int, stats: Stats) -> Sized:
        """The frame that all peers read."""
        return Sized(self._workload.update_bytes(self._share), stats, worth=self._worth)

    def apply(self, active: list[int], frames: Sequence[Sized], stats: Stats) -> Stats:
        """The sums of all stats."""
        if not self._workload.sync.counts_all:  # then this step may have been skipped
            self._progress += self._curve.gain(len(active))
        return frames[0].stats if frames else stats

    def apply_own(self) -> None:
        """Add the own update's share of a step to the progress."""
        self._progress += self._worth

    def apply_late(self, frame: Sized) -> Stats:
        """Add a peer's share of a step to the progress; returns its stats."""
        self._progress += frame.worth
        return frame.stats

    def apply_all(self, frames: Sequence[Sized]) -> None:
        """Nothing: the curve knows."""

    def encode_parts(self, step: int, stats: Stats, active: list[int]) -> dict[int, Sized]:
        """This slot's own part, and the parts for all peers as one."""
        return self._parts(self._workload.update_bytes(self._share), stats, len(active))

    def _parts(self, n_bytes: int, stats: Stats, n_active: int) -> dict[int, Sized]:
        own, others = n_bytes // n_active, n_active - 1
        return {self._slot: Sized(own, stats), -1: Sized(n_bytes - own + HEADER_BYTES * others, stats, others)}

    def merge(self, active: list[int], own: Sized, frames: Sequence[Sized], step: int) -> tuple[Sized, Stats]:
        """The merged range, and the sums of all stats."""
        n_bytes = self._workload.sum_bytes(len(active), self._share) // len(active) + HEADER_BYTES
        return Sized(n_bytes), frames[0].stats if frames else own.stats

    def apply_merged(self, active: list[int], own: Sized, frames: Sequence[Sized]) -> None:
        """Nothing: the curve knows."""

    @property
    def _table_bytes(self) -> int:
        return 4 * self.n_rows * self.width

    def _held_bytes(self) -> int:
        """Size of the residual, as a share of the whole table, bytes."""
        return min(int(SPARSE_VALUE_BYTES / 4 * (1.0 - self._share) * self._table_bytes), self._table_bytes)

    def flush(self, step: int) -> Sized:
        """A frame of the whole residual."""
        return Sized(HEADER_BYTES + self._held_bytes())

    def flush_parts(self, step: int, active: list[int]) -> dict[int, Sized]:
        """As of `encode_parts`."""
        return self._parts(self._held_bytes(), NO_STATS, len(active))

    def take_in(self, active: list[int], frames: Sequence[Sized], step: int) -> Sized:
        """A range of the parameters."""
        return Sized(HEADER_BYTES + self._table_bytes // len(active))

    def take_over(self, active: list[int], own: Sized, frames: Sequence[Sized]) -> None:
        """Nothing: the curve knows."""

    def average(self) -> None:
        """Nothing: the curve knows."""

    def hold(self, n_shards: int) -> None:
        """Nothing: the curve knows."""

    def snapshot(self, into: float | None = None) -> float:
        """The progress on the curve."""
        return self._progress

    def restore(self, snapshot: float) -> None:
        """Set the progress on the curve."""
        self._progress = snapshot

    def encode_stats(self, step: int, stats: Stats) -> Sized:
        """A frame without values, only with ``stats``."""
        return Sized(HEADER_BYTES, stats)

    def sum_stats(self, active: list[int], frames: Sequence[Sized], stats: Stats) -> Stats:
        """The sums of all stats."""
        if not self._workload.sync.counts_all:  # then this step may have been skipped
            self._progress += self._curve.gain(len(active))
        return frames[0].stats if frames else stats

    def progress(self, step: int, state: Sequence[Any]) -> Progress:
        """A table of the right size."""
        return Progress(self.params, step)

    def evaluate(self, minibatch: Rows) -> float:
        """Sum of losses of held-out rows: the curve's, without noise."""
        return self._sum(self._curve.loss(self._progress), minibatch.n)

    def compare(self, minibatch: Rows) -> tuple[float, float]:
        """That sum, and the number of rows."""
        return self.evaluate(minibatch), float(minibatch.n)

    def interaction(self, minibatch: Rows) -> float:
        """0.0: a curve has no factors."""
        return 0.0


class CostedReplica:
    """A replica whose arithmetic is charged to its process, at the machine's costs."""

    def __init__(
        self,
        inner: Replica | CurveReplica,
        invocation: Invocation,
        process: Process,
        machine: Machine,
        kernel_s: float | None,
    ) -> None:
        self._inner, self._process, self._costs = inner, process, machine.costs
        self._slot, self._stragglers, self._kernel_s = invocation.slot, machine.stragglers, kernel_s
        self._filters = sync_from_json(invocation.sync).filters
        self._passes = algorithm_from_json(invocation.algorithm).passes
        self._draws = random.Random(f"compute {invocation.seed} {invocation.slot}")
        self._factor = 1.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def rate_factor(self) -> float:
        """See `Replica`."""
        return self._inner.rate_factor

    @rate_factor.setter
    def rate_factor(self, factor: float) -> None:
        self._inner.rate_factor = factor

    def _spend(self, cpu_s: float) -> None:
        self._process.spend(cpu_s * self._factor)

    def make(
        self, minibatches: Sequence[Any], step: int, n_active: int, n_shards: int = 1, n_all: int | None = None
    ) -> float:
        """See `Replica`; draws the worker's straggler factor for this step."""
        loss = self._inner.make(minibatches, step, n_active, n_shards, n_all)
        costs = self._costs
        self._factor = self._stragglers.factor(self._draws, self._slot, step, self._process.clock())
        cpu_s = costs.step_s
        for minibatch in minibatches:
            one_s = self._kernel_s * n_shards if self._kernel_s is not None else costs.row_s * _size(minibatch)
            cpu_s += self._passes * one_s
        if self._filters:
            cpu_s += costs.filter_value_s * self._inner.n_made
        self._spend(cpu_s)
        return loss

    def encode(self, step: int, stats: Stats) -> Any:
        """See `Replica`."""
        frame = self._inner.encode(step, stats)
        self._spend(self._costs.encode_byte_s * len(frame))
        return frame

    def apply(self, active: list[int], frames: Sequence[Any], stats: Stats) -> Stats:
        """See `Replica`."""
        self._apply(len(frames), frames)
        self._spend(self._costs.apply_byte_s * 4 * self._inner.n_made)
        return self._inner.apply(active, frames, stats)

    def apply_own(self) -> None:
        """See `Replica`."""
        self._spend(self._costs.apply_byte_s * 4 * self._inner.n_made)
        self._inner.apply_own()

    def apply_late(self, frame: Any) -> Stats:
        """See `Replica`."""
        self._apply(1, [frame])
        return self._inner.apply_late(frame)

    def average(self) -> None:
        """See `Replica`: a pass over the whole table."""
        if self._inner.averages:
            self._spend(self._costs.apply_byte_s * 4 * self._inner.n_rows * self._inner.width)
        self._inner.average()

    def snapshot(self, into: Any = None) -> Any:
        """See `Replica`: a pass over the whole table."""
        self._spend(self._costs.apply_byte_s * 4 * self._inner.n_rows * self._inner.width)
        return self._inner.snapshot(into)

    def _apply(self, n_frames: int, frames: Sequence[Any]) -> None:
        n_bytes = sum(map(len, frames))
        if n_frames and isinstance(frames[0], Sized):
            n_frames = sum(frame.count for frame in frames)
        self._spend(self._costs.apply_byte_s * n_bytes + self._costs.frame_s * n_frames)

    def apply_all(self, frames: Sequence[Any]) -> None:
        """See `Replica`."""
        self._apply(len(frames), frames)
        self._inner.apply_all(frames)

    def encode_parts(self, step: int, stats: Stats, active: list[int]) -> dict[int, Any]:
        """See `Replica`."""
        return self._encoded(self._inner.encode_parts(step, stats, active), len(active))

    def _encoded(self, parts: dict[int, Any], n_active: int) -> dict[int, Any]:
        n_bytes = sum(map(len, parts.values()))
        self._spend(self._costs.encode_byte_s * n_bytes + self._costs.part_s * n_active)
        return parts

    def merge(self, active: list[int], own: Any, frames: Sequence[Any], step: int) -> tuple[Any, Stats]:
        """See `Replica`."""
        n_bytes = len(own) + sum(map(len, frames))
        self._spend(self._costs.merge_byte_s * n_bytes + self._costs.frame_s * len(active))
        return self._inner.merge(active, own, frames, step)

    def apply_merged(self, active: list[int], own: Any, frames: Sequence[Any]) -> None:
        """See `Replica`."""
        self._apply(len(frames), frames)
        self._spend(self._costs.apply_byte_s * len(own))
        self._inner.apply_merged(active, own, frames)

    def flush(self, step: int) -> Any:
        """See `Replica`."""
        frame = self._inner.flush(step)
        self._spend(self._costs.encode_byte_s * len(frame))
        return frame

    def flush_parts(self, step: int, active: list[int]) -> dict[int, Any]:
        """See `Replica`."""
        return self._encoded(self._inner.flush_parts(step, active), len(active))

    def take_in(self, active: list[int], frames: Sequence[Any], step: int) -> Any:
        """See `Replica`."""
        self._apply(len(frames), frames)
        frame = self._inner.take_in(active, frames, step)
        self._spend(self._costs.encode_byte_s * len(frame))
        return frame

    def take_over(self, active: list[int], own: Any, frames: Sequence[Any]) -> None:
        """See `Replica`."""
        self._apply(len(frames), frames)
        self._inner.take_over(active, own, frames)

    def evaluate(self, minibatch: Any) -> float:
        """See `Replica`."""
        self._spend(self._costs.evaluate_row_s * _size(minibatch))
        return self._inner.evaluate(minibatch)

    def compare(self, minibatch: Any) -> tuple[float, float]:
        """See `Replica`."""
        self._spend(self._costs.evaluate_row_s * _size(minibatch))
        total, count = self._inner.compare(minibatch)
        return total, count

    def interaction(self, minibatch: Any) -> float:
        """See `Replica`; costs almost nothing compared with the evaluation."""
        return self._inner.interaction(minibatch)


def _size(minibatch: Any) -> int:
    """The number that a kernel's time is proportional to: ratings, or products of features and weights."""
    return minibatch.n_terms if isinstance(minibatch, CsrMinibatch) else int(minibatch.n)
