"""Handing over residuals and owned rows, so that no update is lost: when workers leave, and at the end.

A leaving worker publishes its residual, and all staying workers read it; few workers leave at a time. At the end, every
residual has nearly the size of the model, so a broadcast would move ``P (P - 1)`` models. Instead, each worker sends to
each peer its residual of the peer's range of rows, as in a scatter-reduce. The peer adds the residuals to its own
parameters in that range, in slot order, and publishes the result, which all workers copy. Each worker then reads about
two models for any P, and the replicas end bit-identical. (With two workers, both ways move the same number of bytes.)

The same is then done for the best replicas, from the snapshots of their best evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..exchange import Coordinator, RoundEnded, RoundRequest
from ..exchange.stats import NO_STATS
from ..kernels import apply_frame, encode_update
from ..money.budget import Prepaid
from .best_replica import BestReplica
from .replica import Float32, Replica


class Reintegration:
    """One worker's part in handing over.

    Parameters
    ----------
    slot : int
    log : Coordinator
    replica : Replica
    prepaid : Prepaid
    pay : callable
        Called while waiting, to pay for it.
    make_round : callable
        Makes a `RoundRequest` from the round's id, publishers, waiters and frame, and ``parts``.
    """

    def __init__(
        self,
        slot: int,
        log: Coordinator,
        replica: Replica,
        prepaid: Prepaid,
        pay: Callable[[], None],
        make_round: Callable[..., RoundRequest],
    ) -> None:
        self._slot, self._log, self._replica, self._prepaid = slot, log, replica, prepaid
        self._pay, self._make_round = pay, make_round
        self._is_unpublished = False

    def leave(self, step: int, leaving: list[int], staying: list[int], best: BestReplica) -> None:
        """Hand the residuals of ``leaving`` after ``step``, and those of their best replicas, to ``staying``.

        If there are no residuals, the leaving workers send empty frames. The others wait for these all the same,
        because until then the leaving workers may still read the step's frames, which are deleted two steps later.
        """
        replica = self._replica
        hand_over = self._average_whole if replica.averages_whole else self._give
        hand_over(f"{step}r", step, leaving, staying)
        if self._slot in staying and not replica.averages_whole:
            for _ in leaving:
                replica.average()
        has_judged_the_same = not replica.staleness
        if best.exists and replica.divergence.is_unpublished and has_judged_the_same:
            best.swap()
            hand_over(f"{step}b", step, leaving, staying)
            best.swap()

    def end(self, step: int, active: list[int]) -> None:
        """Exchange all residuals and owned rows of ``active`` after ``step``, the last one."""
        replica = self._replica
        self._is_unpublished = replica.divergence.is_unpublished
        self._give_all(step, active, "r", "p")
        replica.ownership.end()

    def end_best(self, step: int, active: list[int]) -> None:
        """The same for the best replicas, which were swapped in as the replicas. To be called after `end`."""
        if self._replica.staleness and not self._replica.divergence.residual:
            # The workers' snapshots were taken at different times: all take over that of the first worker.
            replica, first = self._replica, active[0]
            frame = encode_update(None, np.ascontiguousarray(replica.params), step, first, replica.n_rows, NO_STATS)
            for best in self._passed_on(f"{step}q", [first], active[1:], frame if self._slot == first else b""):
                apply_frame(best, replica.params, add=False)
        else:
            self._give_all(step, active, "b", "q")

    def _give_all(self, step: int, active: list[int], residuals: str, ranges: str) -> None:
        if self._replica.divergence.residual and len(active) > 1:
            self._give_by_range(step, active, residuals, ranges)
        elif self._is_unpublished:
            self._give(f"{step}{residuals}", step, active, active)

    def _give(self, round_id: str, step: int, givers: list[int], takers: list[int]) -> None:
        """Every giver publishes its residual, every taker adds it."""
        frame = self._replica.flush(step) if self._slot in givers else b""
        self._replica.apply_all(self._passed_on(round_id, givers, takers, frame))

    def _average_whole(self, round_id: str, step: int, givers: list[int], takers: list[int]) -> None:
        """Every giver publishes its parameters instead, residual included, and every taker averages them in.

        That is the paper's formula, ``params <- (params + theirs) / 2``. Residuals stay as they are.
        """
        params = self._replica.params
        frame = self._frame(step, np.ascontiguousarray(params)) if self._slot in givers else b""
        theirs = np.empty(params.shape, np.float32)
        for whole in self._passed_on(round_id, givers, takers, frame):
            apply_frame(whole, theirs, add=False)
            params += theirs
            params *= np.float32(0.5)

    def _passed_on(self, round_id: str, givers: list[int], takers: list[int], frame: bytes) -> Sequence[Any]:
        """Publish ``frame`` if this slot is in ``givers``; returns the givers' frames if it is in ``takers``."""
        is_giver = self._slot in givers
        part = self._make_round(round_id, givers, takers, frame)
        is_complete = False
        if is_giver:
            arrival = self._log.publish(part)
            self._prepaid.add(arrival.granted_nusd)
            is_complete = arrival.is_complete
        if self._slot not in takers or not part.peers:
            return ()
        if not is_complete:
            self._log.wait(part, self._pay)
        return self._log.frames(part)

    def _give_by_range(self, step: int, active: list[int], residuals: str, ranges: str) -> None:
        replica = self._replica
        replica.ownership.end()  # from here on the ranges cover all rows
        parts = replica.flush_parts(step, active)
        given = self._exchange(self._make_round(f"{step}{residuals}", active, active, b"", parts=parts))
        own = replica.take_in(active, given, step)
        replica.take_over(active, own, self._exchange(self._make_round(f"{step}{ranges}", active, active, own)))

    def state(self, step: int, active: list[int], weight: float) -> list[Float32]:
        """On the first of ``active``, the workers' state after ``step``, the last one: the mean over the workers.

        If each worker's state is its own, it is the tables of all ``active``, in their order.

        ``weight`` is this worker's share of all shards. Momentum is linear in the gradients, so the weighted mean is
        the momentum of the mean gradient. Each worker sums one range of rows and sends it to the first worker.
        """
        tables, slot, rank = self._replica.state, self._slot, active.index(self._slot)
        if not tables or len(active) == 1:
            return tables
        if self._replica.is_state_local:
            frame = self._frame(step, np.concatenate(tables)) if rank else b""
            frames = self._passed_on(f"{step}u", active[1:], active[:1], frame)
            return [] if rank else [*tables, *(table for each in frames for table in self._tables_in(each, tables))]
        ranges = self._replica.ranges(len(active))
        blocks = (np.concatenate([table[first:end] for table in tables]) * np.float32(weight) for first, end in ranges)
        parts, own = {}, np.empty((0, self._replica.width), np.float32)
        for to, block in zip(active, blocks, strict=True):
            if to == slot:
                own = block
            else:
                parts[to] = self._frame(step, block)
        for frame in self._exchange(self._make_round(f"{step}s", active, active, b"", parts=parts)):
            apply_frame(frame, own)
        merged_ranges = self._passed_on(f"{step}u", active[1:], active[:1], self._frame(step, own) if rank else b"")
        if rank:
            return []
        whole = [np.empty(table.shape, np.float32) for table in tables]
        for (first, end), merged in zip(ranges, (None, *merged_ranges), strict=True):
            block = own if merged is None else np.zeros((len(tables) * (end - first), own.shape[1]), np.float32)
            if merged is not None:
                apply_frame(merged, block, add=False)
            for table, piece in zip(whole, np.split(block, len(tables)), strict=True):
                table[first:end] = piece
        return whole

    def _tables_in(self, frame: Any, tables: list[Float32]) -> list[Float32]:
        """The tables that a frame carries, as many and as large as ``tables``."""
        block = np.zeros((sum(map(len, tables)), self._replica.width), np.float32)
        apply_frame(frame, block, add=False)
        return np.split(block, len(tables))

    def _frame(self, step: int, block: Float32) -> bytes:
        return encode_update(None, block, step, self._slot, len(block), NO_STATS)

    def loss(self, kind: str, step: int, active: list[int], sums: tuple[float, float]) -> float:
        """The validation loss after ``step``, the last one, from the ``sums`` of all ``active``; NaN without rows.

        ``kind`` is the round's kind, "e" or "f".
        """
        stats = (0.0, 0.0, *sums)
        frame = self._replica.encode_stats(step, stats)
        frames = self._exchange(self._make_round(f"{step}{kind}", active, active, frame))
        total = self._replica.sum_stats(active, frames, stats)
        return self._replica.model.metric_value(*total[2:]) if total[3] else math.nan

    def _exchange(self, part: RoundRequest) -> list[Any]:
        try:
            done = self._log.exchange(part, self._pay)
        except RoundEnded as error:
            self._prepaid.add(error.granted_nusd)
            raise
        self._prepaid.add(done.arrival.granted_nusd)
        return done.frames
