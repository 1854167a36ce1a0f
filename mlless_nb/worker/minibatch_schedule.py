"""The schedule of minibatches in P shards, which keeps the global minibatch constant when workers leave.

Every step takes one minibatch of each shard (or ``local_steps`` of each), so a step covers the same rows whether
workers have left or not: the staying workers take over whole shards of the leaving ones. That keeps the statistical
efficiency of a step: a smaller global minibatch at the same learning rate is noisier, and its loss converges to a
higher value.

References
----------
MLLess (journal), Table 3, and LambdaML, section 4, on a constant global minibatch.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence

from ..data.prepare import Manifest
from .shrinking_schedule import Shares


class Shards:
    """The shards of one packed dataset, as one worker sees them.

    All workers must call `reassign` with the same active slots after the same number of minibatches.

    Parameters
    ----------
    manifest : Manifest
    slot : int
        The worker's slot.
    n_workers : int
        P, the number of shards; shard k begins with slot k.
    by_shard : bool
        Whether to use the shards of ``manifest``; else the minibatches are cut into P equal contiguous shards.

    Attributes
    ----------
    owners : list of int
        The slot that holds each shard.
    held : list of int
        The shards that this slot holds, ascending.
    """

    def __init__(self, manifest: Manifest, slot: int, n_workers: int, *, by_shard: bool = False) -> None:
        self._manifest, self._slot, self._n_workers, self._by_shard = manifest, slot, n_workers, by_shard
        self._n_active = n_workers
        self.owners: list[int] = list(range(n_workers))
        self.held: list[int] = []
        self._sequences: dict[int, Shares] = {}
        self._n_taken = 0  # minibatches taken of each shard
        self._hold()

    def _hold(self) -> None:
        self.held = [shard for shard, owner in enumerate(self.owners) if owner == self._slot]
        for shard in self.held:
            if shard not in self._sequences:
                self._sequences[shard] = Shares(self._manifest, shard, self._n_workers, by_shard=self._by_shard)
                self._sequences[shard].skip(self._n_taken)

    @property
    def n_all(self) -> int:
        """Number of shards of all workers, which is the number of minibatches in a step."""
        return self._n_workers

    @property
    def part(self) -> list[int]:
        """The minibatches of this slot, when all minibatches are divided among the workers."""
        return [index for shard in self.held for index in self._sequences[shard].part]

    def reassign(self, active: Sequence[int]) -> bool:
        """From now on only ``active`` slots hold shards; returns False if that is no change.

        A shard whose owner has left goes to the slot that holds the fewest shards, the lowest slot in a tie.
        """
        if len(active) == self._n_active:
            return False
        self._n_active = len(active)
        n_held = Counter(owner for owner in self.owners if owner in active)
        for shard, owner in enumerate(self.owners):
            if owner not in active:
                self.owners[shard] = heir = min(active, key=lambda slot: (n_held[slot], slot))
                n_held[heir] += 1
        self._hold()
        return True

    def shard_of(self, index: int) -> int:
        """The shard of a minibatch, for data that is packed in shards."""
        return bisect.bisect(self._manifest.shards, index) - 1

    def next(self, n: int) -> list[list[int]]:
        """The ``n`` groups of minibatches that this slot takes next; a group has one of each held shard."""
        columns = [self._sequences[shard].next(n) for shard in self.held]
        return [list(group) for group in zip(*columns, strict=True)]

    def count(self, n: int) -> int:
        """Number of minibatches that all workers take when each takes ``n`` groups."""
        return self.n_all * n

    def take(self, n: int) -> list[list[int]]:
        """Take and return the next ``n`` groups."""
        self._n_taken += n
        columns = [self._sequences[shard].take(n) for shard in self.held]
        return [list(group) for group in zip(*columns, strict=True)]

    def skip(self, n: int) -> None:
        """Before the first `take`: begin where an earlier run was after ``n`` groups."""
        self._n_taken = n
        for sequence in self._sequences.values():
            sequence.skip(n)


class WholeShards(Shards):
    """`Shards` of which every step takes all minibatches, always the same ones in the same order.

    If P does not divide the number of minibatches, the first shards have one more.
    """

    def count(self, n: int) -> int:
        """All minibatches."""
        return self._manifest.n_minibatches

    def next(self, n: int) -> list[list[int]]:
        """The minibatches of this slot, in groups of one."""
        return [[index] for index in self.part]

    def take(self, n: int) -> list[list[int]]:
        """As `next`."""
        return self.next(n)


class ShrinkingShares:
    """`Shares` in groups of one minibatch: a step takes one from each active worker, as in the MLLess paper.

    Parameters and attributes are those of `Shards`; ``owners`` has None for shards that several slots share.
    """

    def __init__(self, manifest: Manifest, slot: int, n_workers: int, *, by_shard: bool = False) -> None:
        self._shares = Shares(manifest, slot, n_workers, by_shard=by_shard)
        self._n_active = n_workers
        self.held = [slot]
        self.shard_of = self._shares.shard_of

    @property
    def n_all(self) -> int:
        """Minibatches of a step: one for each active worker."""
        return self._n_active

    @property
    def owners(self) -> list[int | None]:
        """See `Shares`."""
        return self._shares.owners

    @property
    def part(self) -> list[int]:
        """See `Shares`."""
        return self._shares.part

    def reassign(self, active: Sequence[int]) -> bool:
        """See `Shares`."""
        self._n_active = len(active)
        return self._shares.reassign(active)

    def count(self, n: int) -> int:
        """See `Shards`."""
        return self.n_all * n

    def next(self, n: int) -> list[list[int]]:
        """See `Shares`."""
        return [[index] for index in self._shares.next(n)]

    def take(self, n: int) -> list[list[int]]:
        """See `Shares`."""
        return [[index] for index in self._shares.take(n)]

    def skip(self, n: int) -> None:
        """See `Shares`."""
        self._shares.skip(n)


#: Schedules by what happens to the global minibatch at a scale-in, see `mlless_nb.ScaleIn`.
SCHEDULES: dict[str, type[Shards] | type[ShrinkingShares]] = {"keep": Shards, "shrink": ShrinkingShares}
