"""Which rows of a table are one worker's own while users are dealt out: nobody else needs them until it leaves."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]


class Ownership:
    """One worker's rows: the first ``n_users`` of a table have owners, the others are everybody's.

    Once an owner has left, its users are everybody's too: a worker knows those that it has come across.

    Parameters
    ----------
    n_users : int
        0 where every row is everybody's.
    n_owners : int
        Workers at the start, with about as many of these rows each.
    """

    def __init__(self, n_users: int, n_owners: int) -> None:
        self.n_users = n_users
        self._is_common = np.zeros(n_users, bool)
        self._n_owners, self._n_gone = n_owners, 0

    def count_users(self, rows: Int32) -> int:
        """How many of ``rows``, ascending, have owners or had them."""
        return int(np.searchsorted(rows, np.int32(self.n_users)))

    def count_own(self, rows: Int32) -> int:
        """How many of one minibatch's rows, the first ones, are this worker's own: its users have one owner."""
        n_users = self.count_users(rows)
        return 0 if n_users and self._is_common[rows[0]] else n_users

    def own_first(self, rows: Int32) -> tuple[NDArray[np.int64] | None, int]:
        """An order of ``rows`` with this worker's own first (None: as they are), and how many these are."""
        n_users = self.count_users(rows)
        if not self._n_gone:
            return None, n_users
        is_common = self._is_common[rows[:n_users]]
        order = np.concatenate([np.argsort(is_common, kind="stable"), np.arange(n_users, len(rows))])
        return order, n_users - int(np.count_nonzero(is_common))

    def everybodys(self) -> tuple[NDArray[np.int64], slice]:
        """All rows but those that are or may be somebody's own: users, and the rest."""
        return np.flatnonzero(self._is_common[: self.n_users]), slice(self.n_users, None)

    def ranges(self, n_rows: int, n_active: int) -> list[tuple[int, int]]:
        """The rows [first, end) that each of ``n_active`` workers merges, with about as many exchanged ones in each.

        Every worker finds the same ones: of users about as many are exchanged as owners have left.
        """
        n_users, n_common = self.n_users, self.n_users * self._n_gone // self._n_owners
        places = [(n_common + n_rows - n_users) * rank // n_active for rank in range(n_active + 1)]
        bounds = [at * n_users // n_common if at < n_common else at - n_common + n_users for at in places]
        return list(itertools.pairwise(bounds))

    def share(self, rows: Int32) -> None:
        """The users among ``rows``, of a minibatch whose owner has left, are everybody's."""
        self._is_common[rows[: self.count_users(rows)]] = True

    def release(self, n_gone: int) -> None:
        """So many owners more have left."""
        self._n_gone += n_gone

    def end(self) -> None:
        """From now on every row is everybody's."""
        self.n_users = 0
