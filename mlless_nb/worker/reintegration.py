"""Handing over what workers hold back, so that nothing produced is lost: at the end, and when workers leave.

Who leaves publishes what it holds back, and all who stay read it: few leave at a time. At the end everybody holds back
nearly a whole model, and for everybody to read that of everybody takes ``P (P - 1)`` of them. So each worker then
addresses to each other what it holds back of that one's range of rows, as in a scatter-reduce; adds what it is sent to
its own parameters there, in slot order; and publishes these, which all take over. A worker then reads about two models,
whatever P, and the replicas end bit-identical. (Of two workers each reads as much either way.)

The same is done for the best replicas, as they were at their best evaluation: a second time, from their snapshots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..exchange import Coordinator, RoundRequest
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
    log : StepLog
    replica : Replica
    prepaid : Prepaid
    pay : callable
        Called while it waits.
    make_round : callable
        Takes the round's id, publishers, waiters and frame, and ``parts``.
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
        self._holds_back = False

    def leave(self, step: int, leaving: list[int], staying: list[int], best: BestReplica) -> None:
        """Hand over what ``leaving`` hold back after ``step`` to those that stay, and what their best replicas do.

        Where nothing is held back the leaving give nothing, but are waited for all the same: until then they read the
        step's frames, which their owners remove two steps later.
        """
        replica = self._replica
        self._give(f"{step}r", step, leaving, staying)
        if self._slot in staying:
            for _ in leaving:
                replica.average()
        has_judged_the_same = not replica.staleness
        if best.exists and replica.divergence.is_unpublished and has_judged_the_same:
            best.swap()
            self._give(f"{step}b", step, leaving, staying)
            best.swap()

    def end(self, step: int, active: list[int]) -> None:
        """Hand over all that ``active`` hold back after ``step``, the last one."""
        replica = self._replica
        self._holds_back = replica.divergence.is_unpublished
        self._give_all(step, active, "r", "p")
        replica.ownership.end()

    def end_best(self, step: int, active: list[int]) -> None:
        """The same for the best replicas, which are the replicas by now. After `end`."""
        if self._replica.staleness and not self._replica.divergence.residual:
            # Each one's best is of a moment of its own: the first one's is everybody's.
            replica, first = self._replica, active[0]
            frame = encode_update(None, np.ascontiguousarray(replica.params), step, first, replica.n_rows, NO_STATS)
            for told in self._passed_on(f"{step}q", [first], active[1:], frame if self._slot == first else b""):
                apply_frame(told, replica.params, add=False)
        else:
            self._give_all(step, active, "b", "q")

    def _give_all(self, step: int, active: list[int], residuals: str, ranges: str) -> None:
        if self._replica.divergence.residual and len(active) > 1:
            self._give_by_range(step, active, residuals, ranges)
        elif self._holds_back:
            self._give(f"{step}{residuals}", step, active, active)

    def _give(self, round_id: str, step: int, givers: list[int], takers: list[int]) -> None:
        """Every giver publishes what it holds back, every taker adds it."""
        frame = self._replica.flush(step) if self._slot in givers else b""
        self._replica.apply_all(self._passed_on(round_id, givers, takers, frame))

    def whole(self, step: int, active: list[int], taker: int) -> Float32:
        """The parameters as all know them together, on ``taker``: others own rows of them, and tell it only."""
        replica, slot = self._replica, self._slot
        if not replica.divergence.owned_rows:
            return replica.params
        frame = b""
        if slot != taker:
            rows = replica.ownership.own_rows()
            frame = encode_update(rows, replica.params[rows], step, slot, replica.n_rows, NO_STATS)
        givers = [giver for giver in active if giver != taker]
        params = np.array(replica.params, order="C") if slot == taker else replica.params
        for told in self._passed_on(f"{step}c", givers, [taker], frame):
            apply_frame(told, params, add=False)
        return params

    def _passed_on(self, round_id: str, givers: list[int], takers: list[int], frame: bytes) -> Sequence[Any]:
        """The frames that ``givers`` publish, on ``takers``."""
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
        replica.ownership.end()  # the ranges are of all rows
        parts = replica.flush_parts(step, active)
        given = self._exchange(self._make_round(f"{step}{residuals}", active, active, b"", parts=parts))
        own = replica.take_in(active, given, step)
        replica.take_over(active, own, self._exchange(self._make_round(f"{step}{ranges}", active, active, own)))

    def state(self, step: int, active: list[int], weight: float) -> list[Float32]:
        """The optimiser's state after ``step``, the last one: all workers' together, on the first of ``active``.

        Each counts by ``weight``, the shards that it holds of all. Momenta are linear in the gradients, so that of the
        mean has all momentum that there is. A worker adds up one range of rows, as at the end, and tells the first.
        """
        tables, slot, rank = self._replica.state, self._slot, active.index(self._slot)
        if not tables or len(active) == 1:
            return tables
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
        told = self._passed_on(f"{step}u", active[1:], active[:1], self._frame(step, own) if rank else b"")
        if rank:
            return []
        whole = [np.empty(table.shape, np.float32) for table in tables]
        for (first, end), merged in zip(ranges, (None, *told), strict=True):
            block = own if merged is None else np.zeros((len(tables) * (end - first), own.shape[1]), np.float32)
            if merged is not None:
                apply_frame(merged, block, add=False)
            for table, piece in zip(whole, np.split(block, len(tables)), strict=True):
                table[first:end] = piece
        return whole

    def _frame(self, step: int, block: Float32) -> bytes:
        return encode_update(None, block, step, self._slot, len(block), NO_STATS)

    def loss(self, kind: str, step: int, active: list[int], sums: tuple[float, float]) -> float:
        """The validation loss whose ``sums`` all of ``active`` tell after ``step``, the last one; NaN of no rows.

        ``kind`` is that of the round, "e" or "f".
        """
        stats = (0.0, 0.0, *sums)
        frame = self._replica.encode_stats(step, stats)
        frames = self._exchange(self._make_round(f"{step}{kind}", active, active, frame))
        told = self._replica.sum_stats(active, frames, stats)
        return self._replica.model.metric_value(*told[2:]) if told[3] else math.nan

    def _exchange(self, part: RoundRequest) -> list[Any]:
        done = self._log.exchange(part, self._pay)
        self._prepaid.add(done.arrival.granted_nusd)
        return done.frames
