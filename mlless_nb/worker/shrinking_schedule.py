"""Which worker takes which minibatches, and in what order: a pure function of which slots were active at which step.

Each worker has a share of the minibatches and repeats it, so that it fetches each of them only once. When workers
leave, the others keep their shares and receive parts of the leaving workers' shares. With M minibatches and P workers,
each owns ``M // P``; the remainder is common, and in every P passes each worker takes each common one once. So in the
long run all minibatches are taken equally often, and with all workers an epoch takes every minibatch once.

If users are sharded across workers, a staying worker keeps its shard to itself, because no other worker has its users.
Shards whose owner left are common at first. They are assigned whole once there is one for each active worker.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from ..data.prepare import Manifest


class Shares:
    """How the workers divide the minibatches of one packed dataset, as one worker sees it.

    All workers must call `reassign` with the same active slots after the same number of minibatches.

    Parameters
    ----------
    manifest : Manifest
    slot : int
        The worker's slot.
    n_workers : int
        P; all are active at the start.
    by_shard : bool
        Whether each slot begins with its own shard of ``manifest``.

    Attributes
    ----------
    part : list of int
        The minibatches of this slot when all are divided among the workers: its own, and at most one common one.
    owners : list of int or None
        The owner of each shard with all its minibatches; None if several slots share it. Empty unless ``by_shard``.
    """

    def __init__(self, manifest: Manifest, slot: int, n_workers: int, *, by_shard: bool = False) -> None:
        self._manifest, self._slot, self._by_shard = manifest, slot, by_shard
        n_own = manifest.n_minibatches // n_workers
        self._active: Sequence[int] = range(n_workers)
        self._common: list[int] = [] if by_shard else list(range(n_own * n_workers, manifest.n_minibatches))
        self.owners: list[int | None] = list(range(n_workers)) if by_shard else []
        self._owned: dict[int, list[int]] = {}  # after the first `reassign`; before, see `_first`
        self._begin()

    def _begin(self) -> None:
        self._n_taken = 0  # by each worker since the last `reassign`
        self._order = itertools.chain.from_iterable(self._passes(self._slot))
        self._ahead: list[int] = []
        rank = self._active.index(self._slot)
        self.part = [*self._own(self._slot), *self._common[rank : rank + 1]]

    def _first(self, slot: int) -> Sequence[int]:
        """The minibatches that ``slot`` owns at the start."""
        if self._by_shard:
            return self._manifest.shard(slot)
        n_own = self._manifest.n_minibatches // len(self._active)
        return range(slot * n_own, (slot + 1) * n_own)  # contiguous, so that few requests read them

    def _own(self, slot: int) -> Sequence[int]:
        return self._owned[slot] if self._owned else self._first(slot)

    def _passes(self, slot: int) -> Iterator[Sequence[int]]:
        """The minibatches of each pass of ``slot`` through its share, pass by pass."""
        own, common, n_active, rank = self._own(slot), self._common, len(self._active), self._active.index(slot)
        if not own:  # fewer minibatches than workers: each worker begins at another one
            begin = rank % len(common)
            yield from itertools.repeat(common[begin:] + common[:begin])
        for number in itertools.count(rank):
            first = number % n_active
            yield [*own, *common[first : first + 1]]

    def reassign(self, active: Sequence[int]) -> bool:
        """From now on only ``active`` slots (ascending) take minibatches: their own, and those of the slots that left.

        Returns False if that is no change.
        """
        if len(active) == len(self._active):
            return False
        rest = {slot: self._rest(slot) for slot in self._active}
        departed = [slot for slot in self._active if slot not in active]
        self._adopt(active)
        owned: dict[int, list[int]] = {slot: [] for slot in active}
        for index in itertools.chain(*rest.values(), self._common) if self._by_shard else ():
            if (owner := self._owner(index)) is not None:
                owned[owner].append(index)
        loose = {slot: [index for index in rest[slot] if self._owner(index) is None] for slot in rest}
        left = [index for index in self._common if self._owner(index) is None]
        left += [index for slot in departed for index in loose[slot]]
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
        """Assign whole shards whose owner has left to active slots, as long as all slots get the same number."""
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
        """Interleave the shards evenly: a long run of minibatches with the same few users would overfit these."""
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
        """The minibatches that ``slot`` owns, beginning with the next one to be taken."""
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
        """Take and return the next ``n`` minibatches."""
        taken = self.next(n)
        del self._ahead[:n]
        self._n_taken += n
        return taken

    def skip(self, n: int) -> None:
        """Before the first `take`: begin where this slot is after it has taken ``n`` minibatches."""
        # In P passes each worker takes each common minibatch once, so the order repeats itself after all of them.
        # Shards of several sizes must be back at their begins together: a slot may adopt a part of any of them.
        sizes = {self._manifest.n_minibatches}
        if self._by_shard:
            sizes = {len(self._first(slot)) for slot in self._active} - {0}
        self.take(n % math.lcm(*sizes))
