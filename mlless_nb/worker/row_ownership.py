"""Which rows of a table are one worker's own while users are dealt out: nobody else needs them until it leaves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]


class Ownership:
    """One worker's rows: the first ``n_users`` of a table have owners, the others are everybody's.

    Users come in shards. Once an owner has left, its shards are everybody's, until another one adopts them. Which shard
    a user is of a worker learns from the minibatches that it takes.

    Parameters
    ----------
    slot : int
    n_users : int
        0 where every row is everybody's.
    n_shards : int
        As many as workers at the start; about as many users in each.
    """

    def __init__(self, slot: int, n_users: int, n_shards: int) -> None:
        self._slot, self.n_users = slot, n_users
        self._shards = np.full(n_users, n_shards, np.int32)  # of no shard that it knows
        self.reassign(range(n_shards))

    def reassign(self, owners: Sequence[int | None]) -> None:
        """From now on shards belong to ``owners``, None: to everybody."""
        self._owners = owners
        self._n_common = sum(owner is None for owner in owners)
        self._is_common = np.array([*(owner is None for owner in owners), False])
        self._is_own = np.array([*(owner == self._slot for owner in owners), True])  # nobody else says so either

    def meet(self, rows: Int32, shard: int) -> None:
        """The users among ``rows`` are of ``shard``."""
        self._shards[rows[: self._count_users(rows)]] = shard

    def know(self, shards: Int32) -> None:
        """The shard of each user, int32 (n_users,)."""
        self._shards[:] = shards

    def _count_users(self, rows: Int32) -> int:
        return int(np.searchsorted(rows, np.int32(self.n_users)))

    def count_own(self, rows: Int32) -> int:
        """How many rows of one minibatch, the first ones, are this worker's own: its users are of one shard."""
        n_users = self._count_users(rows)
        return n_users if n_users and self._is_own[self._shards[rows[0]]] else 0

    def own_rows(self) -> Int32:
        """The users that are this worker's own, of those that it has met."""
        return np.flatnonzero(np.append(self._is_own[:-1], False)[self._shards]).astype(np.int32)

    def others(self) -> NDArray[np.int64]:
        """The users that have become another one's own, of those that this worker has met."""
        return np.flatnonzero(~(self._is_own | self._is_common)[self._shards])

    def own_first(self, rows: Int32) -> tuple[NDArray[np.int64] | None, int]:
        """An order of ``rows`` that has those which nobody else touches first (None: as they are), and their number.

        Rows that this worker has not met count among them: it does not touch these either.
        """
        n_users = self._count_users(rows)
        if not self._n_common:
            return None, n_users
        is_common = self._is_common[self._shards[rows[:n_users]]]
        order = np.concatenate([np.argsort(is_common, kind="stable"), np.arange(n_users, len(rows))])
        return order, n_users - int(np.count_nonzero(is_common))

    def everybodys(self) -> tuple[NDArray[np.int64], slice]:
        """The rows that are everybody's: users, of those that this worker has met, and the rest."""
        return np.flatnonzero(self._is_common[self._shards[: self.n_users]]), slice(self.n_users, None)

    def ranges(self, n_rows: int, n_active: int) -> list[tuple[int, int]]:
        """The rows [first, end) that each of ``n_active`` workers merges, with about as many exchanged ones in each.

        Every worker finds the same ones: of users about as many are exchanged as shards are everybody's.
        """
        n_users, n_common = self.n_users, self.n_users * self._n_common // len(self._owners)
        places = [(n_common + n_rows - n_users) * rank // n_active for rank in range(n_active + 1)]
        bounds = [at * n_users // n_common if at < n_common else at - n_common + n_users for at in places]
        return list(itertools.pairwise(bounds))

    def end(self) -> None:
        """From now on every row is everybody's."""
        self.n_users = 0
