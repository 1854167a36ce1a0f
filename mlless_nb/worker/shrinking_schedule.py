"""Which worker takes which minibatches, and in what order: a pure function of who was active when.

Each worker has a share of the minibatches and goes through it over and over, so that it fetches only those, once. When
workers leave, the rest keep theirs and are dealt what the leaving had. What M minibatches leave over when P workers
have ``M // P`` each is common: in every P passes each worker takes each of it once. So no minibatch is taken more often
than another in the long run, whatever P is, and with all workers an epoch takes every one of them once.

Of data in shards, one a worker, who stays keeps its own to itself: nobody else knows its users. Shards whose owner left
are adopted whole as soon as there is one for everybody, and are common until then.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from ..data.prepare import Manifest


class Shares:
    """The minibatches of one packed dataset as the workers share them, seen by one of them.

    All workers must `reassign` to the same sequence of active slots, after as many minibatches taken.

    Parameters
    ----------
    manifest : Manifest
    slot : int
        Whose minibatches are asked for.
    n_workers : int
        P; all are active at the start.
    by_shard : bool
        Whether each slot begins with its own shard of ``manifest``.

    Attributes
    ----------
    part : list of int
        The minibatches of this slot where each is to be somebody's: its own, and one of those that are common.
    owners : list of int or None
        Whose each shard is, with all of its minibatches; None where several slots have them. Empty unless ``by_shard``.
    """

    def __init__(self, manifest: Manifest, slot: int, n_workers: int, *, by_shard: bool = False) -> None:
        self._manifest, self._slot, self._by_shard = manifest, slot, by_shard
        n_own = manifest.n_minibatches // n_workers
        self._active: Sequence[int] = range(n_workers)
        self._common: list[int] = [] if by_shard else list(range(n_own * n_workers, manifest.n_minibatches))
        self.owners: list[int | None] = list(range(n_workers)) if by_shard else []
        self._owned: dict[int, list[int]] = {}  # once it was dealt anew; before, see `_first`
        self._begin()

    def _begin(self) -> None:
        self._n_taken = 0  # by each worker since the minibatches were dealt
        self._order = itertools.chain.from_iterable(self._passes(self._slot))
        self._ahead: list[int] = []
        rank = self._active.index(self._slot)
        self.part = [*self._own(self._slot), *self._common[rank : rank + 1]]

    def _first(self, slot: int) -> Sequence[int]:
        """What ``slot`` has of its own at the start."""
        if self._by_shard:
            return self._manifest.shard(slot)
        n_own = self._manifest.n_minibatches // len(self._active)
        return range(slot * n_own, (slot + 1) * n_own)  # side by side: they are read in few requests

    def _own(self, slot: int) -> Sequence[int]:
        return self._owned[slot] if self._owned else self._first(slot)

    def _passes(self, slot: int) -> Iterator[Sequence[int]]:
        """One after another what ``slot`` takes in its passes through its share."""
        own, common, n_active, rank = self._own(slot), self._common, len(self._active), self._active.index(slot)
        if not own:  # fewer minibatches than workers: each begins with another one
            begin = rank % len(common)
            yield from itertools.repeat(common[begin:] + common[:begin])
        for number in itertools.count(rank):
            first = number % n_active
            yield [*own, *common[first : first + 1]]

    def reassign(self, active: Sequence[int]) -> bool:
        """From now on only ``active`` slots, ascending, take minibatches: those they had, and what the others had.

        False where they are those they were.
        """
        if len(active) == len(self._active):
            return False
        rest = {slot: self._rest(slot) for slot in self._active}
        gone = [slot for slot in self._active if slot not in active]
        self._adopt(active)
        owned: dict[int, list[int]] = {slot: [] for slot in active}
        for index in itertools.chain(*rest.values(), self._common) if self._by_shard else ():
            if (owner := self._owner(index)) is not None:
                owned[owner].append(index)
        loose = {slot: [index for index in rest[slot] if self._owner(index) is None] for slot in rest}
        left = [index for index in self._common if self._owner(index) is None]
        left += [index for slot in gone for index in loose[slot]]
        n_own = self._manifest.n_minibatches // len(active)
        room = {slot: max(n_own - len(owned[slot]), 0) for slot in active}
        left += [index for slot in active for index in loose[slot][room[slot] :]]
        for slot in active:
            share = owned[slot] + loose[slot][: room[slot]]
            n_more = max(n_own - len(share), 0)
            owned[slot] = self._mixed(share + left[:n_more])
            del left[:n_more]
        self._active, self._owned, self._common = list(active), owned, left
        self._begin()
        return True

    def _adopt(self, active: Sequence[int]) -> None:
        """Give shards whose owner has left to another one, whole, as far as all then have as many."""
        if not self._by_shard:
            return
        owners = [owner if owner in active else None for owner in self.owners]
        free = [shard for shard, owner in enumerate(owners) if owner is None]
        for slot in active:
            n_more = len(owners) // len(active) - owners.count(slot)
            for shard in free[: max(n_more, 0)]:
                owners[shard] = slot
            del free[: max(n_more, 0)]
        self.owners = owners

    def shard_of(self, index: int) -> int:
        """The shard of a minibatch."""
        return bisect.bisect(self._manifest.shards, index) - 1

    def _owner(self, index: int) -> int | None:
        return self.owners[self.shard_of(index)] if self._by_shard else None

    def _mixed(self, indices: list[int]) -> list[int]:
        """Those of each shard spread evenly over all: many in a row of the same few users would lead these astray."""
        if not self._by_shard:
            return indices
        shards = [self.shard_of(index) for index in indices]
        sizes, seen = Counter(shards), Counter[int]()
        places = []
        for shard in shards:
            places.append((seen[shard] + 0.5) / sizes[shard])
            seen[shard] += 1
        return [indices[k] for k in np.argsort(places, kind="stable")]

    def _rest(self, slot: int) -> list[int]:
        """What ``slot`` has of its own, the one whose turn it is first."""
        own, n_own, left = list(self._own(slot)), 0, self._n_taken
        for turns in self._passes(slot) if own else ():
            n_own += min(len(own), left)
            left -= len(turns)
            if left <= 0:
                break
        begin = n_own % max(len(own), 1)
        return own[begin:] + own[:begin]

    def next(self, n: int) -> list[int]:
        """The ``n`` minibatches, by number, that this slot takes next."""
        if len(self._ahead) < n:
            self._ahead += itertools.islice(self._order, n - len(self._ahead))
        return self._ahead[:n]

    def take(self, n: int) -> list[int]:
        """The next ``n``, which are taken then."""
        taken = self.next(n)
        del self._ahead[:n]
        self._n_taken += n
        return taken
