"""Which rows of the table one worker owns when users are sharded: no other worker touches them until it leaves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]


class Ownership:
    """The owned rows of one worker: the first ``n_users`` rows of a table have owners, the others are common.

    Users are sharded across workers. When an owner leaves, its shards are common until another worker takes them over.
    A worker learns the shard of a user from the minibatches that it takes.

    Parameters
    ----------
    slot : int
    n_users : int
        0 if all rows are common.
    n_shards : int
        One for each worker at the start, with about the same number of users.
    """

    def __init__(self, slot: int, n_users: int, n_shards: int) -> None:
        self._slot, self.n_users = slot, n_users
        self._shards = np.full(n_users, n_shards, np.int32)  # shard n_shards: not known
        self.reassign(range(n_shards))

    def reassign(self, owners: Sequence[int | None]) -> None:
        """From now on shards belong to ``owners``; None stands for a common shard."""
        self._owners = owners
        self._n_common = sum(owner is None for owner in owners)
        self._is_common = np.array([*(owner is None for owner in owners), False])
        self._is_own = np.array([*(owner == self._slot for owner in owners), True])  # unknown shards count as own

    def meet(self, rows: Int32, shard: int) -> None:
        """Record that the users among ``rows`` are in ``shard``."""
        self._shards[rows[: self._count_users(rows)]] = shard

    @property
    def shards(self) -> Int32:
        """The shard of each user, int32 (n_users,), as far as it is known."""
        return self._shards

    def know(self, shards: Int32) -> None:
        """Set the shard of each user, int32 (n_users,)."""
        self._shards[:] = shards

    def _count_users(self, rows: Int32) -> int:
        return int(rows.searchsorted(np.int32(self.n_users)))  # a method: np.searchsorted takes twice the time

    def count_own(self, rows: Int32) -> int:
        """How many rows of one minibatch this worker owns; they come first. Its users are all in one shard."""
        n_users = self._count_users(rows)
        return n_users if n_users and self._is_own[self._shards[rows[0]]] else 0

    def own_rows(self) -> Int32:
        """The users that this worker owns, among those whose shard it knows."""
        return np.flatnonzero(np.append(self._is_own[:-1], False)[self._shards]).astype(np.int32)

    def others(self) -> NDArray[np.int64]:
        """The users that another worker owns, among those whose shard this worker knows."""
        return np.flatnonzero(~(self._is_own | self._is_common)[self._shards])

    def own_first(self, rows: Int32) -> tuple[NDArray[np.int64] | None, int]:
        """An order of ``rows`` with the rows that no other worker touches first (None: as they are), and their number.

        Users whose shard is not known count among these rows, because this worker does not touch them either.
        """
        n_users = self._count_users(rows)
        if not self._n_common:
            return None, n_users
        is_common = self._is_common[self._shards[rows[:n_users]]]
        order = np.concatenate([np.argsort(is_common, kind="stable"), np.arange(n_users, len(rows))])
        return order, n_users - int(np.count_nonzero(is_common))

    def everybodys(self) -> tuple[NDArray[np.int64], slice]:
        """The common rows: users in common shards, among those whose shard is known, and all rows after the users."""
        return np.flatnonzero(self._is_common[self._shards[: self.n_users]]), slice(self.n_users, None)

    def ranges(self, n_rows: int, n_active: int) -> list[tuple[int, int]]:
        """The rows [first, end) that each of ``n_active`` workers merges, with about equally many exchanged rows.

        Every worker computes the same ranges: the number of exchanged users is estimated from that of common shards.
        """
        n_users, n_common = self.n_users, self.n_users * self._n_common // len(self._owners)
        places = [(n_common + n_rows - n_users) * rank // n_active for rank in range(n_active + 1)]
        bounds = [at * n_users // n_common if at < n_common else at - n_common + n_users for at in places]
        return list(itertools.pairwise(bounds))

    def end(self) -> None:
        """From now on all rows are common."""
        self.n_users = 0
