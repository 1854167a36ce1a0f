"""Handing over what workers hold back, so that nothing produced is lost: at the end, and when workers leave.

Who leaves publishes what it holds back, and all who stay read it: few leave at a time. At the end everybody holds back
nearly a whole model, and for everybody to read that of everybody takes ``P (P - 1)`` of them. So each worker then
addresses to each other what it holds back of that one's range of rows, as in a scatter-reduce; adds what it is sent to
its own parameters there, in slot order; and publishes these, which all take over. A worker then reads about two models,
whatever P, and the replicas end bit-identical. (Of two workers each reads as much either way.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .exchange import Round, StepLog
from .kernels import apply_frame, encode_update
from .money.budget import Prepaid
from .replica import NO_STATS, Float32, Replica


class HandOver:
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
        log: StepLog,
        replica: Replica,
        prepaid: Prepaid,
        pay: Callable[[], None],
        make_round: Callable[..., Round],
    ) -> None:
        self._slot, self._log, self._replica, self._prepaid = slot, log, replica, prepaid
        self._pay, self._make_round = pay, make_round

    def run(self, step: int, givers: list[int], takers: list[int]) -> None:
        """Hand over what ``givers`` hold back after ``step``; who gives and does not take leaves.

        Where nothing is held back the leaving give nothing, but are waited for all the same: until then they read the
        step's frames, which their owners remove two steps later.
        """
        if givers == takers and self._replica.withholds and len(givers) > 1:
            self._give_by_range(step, givers)
        elif self._replica.holds_back or givers != takers:
            self._give(f"{step}r", step, givers, takers)
        if givers == takers:
            self._replica.ownership.end()
        elif self._slot in takers:
            for _ in givers:
                self._replica.average()

    def _give(self, round_id: str, step: int, givers: list[int], takers: list[int]) -> None:
        """Every giver publishes what it holds back, every taker adds it."""
        frame = self._replica.flush(step) if self._slot in givers else b""
        self._replica.apply_all(self._passed_on(round_id, givers, takers, frame))

    def whole(self, step: int, active: list[int], taker: int) -> Float32:
        """The parameters as all know them together, on ``taker``: others own rows of them, and tell it only."""
        replica, slot = self._replica, self._slot
        if not replica.holds_owned:
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

    def _give_by_range(self, step: int, active: list[int]) -> None:
        replica = self._replica
        replica.ownership.end()  # the ranges are of all rows
        parts = replica.flush_parts(step, active)
        given = self._exchange(self._make_round(f"{step}r", active, active, b"", parts=parts))
        own = replica.take_in(active, given, step)
        replica.take_over(active, own, self._exchange(self._make_round(f"{step}p", active, active, own)))

    def _exchange(self, part: Round) -> list[Any]:
        done = self._log.exchange(part, self._pay)
        self._prepaid.add(done.arrival.granted_nusd)
        return done.frames
