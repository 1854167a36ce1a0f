"""The minibatches of a packed dataset in P shards, whoever holds them: what keeps the global minibatch when some leave.

Every step takes one minibatch of each shard (or ``local_steps``, each in a group with those of the other shards), so a
run's steps are over the same rows whether workers have left or not. Who stays takes over the shards of who leaves,
whole. That keeps the statistical efficiency of a step: a global minibatch that shrinks at the same learning rate is
noisier, and its loss settles higher.

References
----------
MLLess (journal), Table 3 and LambdaML, section 4, for what a constant global minibatch keeps.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence

from ..data.prepare import Manifest
from .shrinking_schedule import Shares


class Shards:
    """The shards of one packed dataset, seen by one worker.

    All workers must `reassign` to the same sequence of active slots, after as many minibatches taken.

    Parameters
    ----------
    manifest : Manifest
    slot : int
        Whose minibatches are asked for.
    n_workers : int
        P, the number of shards; shard k begins with slot k.
    by_shard : bool
        Whether the shards are those of ``manifest``; else each has as many minibatches, side by side.

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
        self._n_taken = 0  # of each shard
        self._hold()

    def _hold(self) -> None:
        self.held = [shard for shard, owner in enumerate(self.owners) if owner == self._slot]
        for shard in self.held:
            if shard not in self._sequences:
                self._sequences[shard] = Shares(self._manifest, shard, self._n_workers, by_shard=self._by_shard)
                self._sequences[shard].take(self._n_taken)

    @property
    def n_all(self) -> int:
        """Shards of all workers: minibatches of a step."""
        return self._n_workers

    @property
    def part(self) -> list[int]:
        """The minibatches of this slot where each is to be one worker's."""
        return [index for shard in self.held for index in self._sequences[shard].part]

    def reassign(self, active: Sequence[int]) -> bool:
        """From now on only ``active`` slots hold shards; False where they did before.

        A shard whose owner has left goes to the one that holds the fewest, of several the first.
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
        """The shard of a minibatch, of data that is packed in shards."""
        return bisect.bisect(self._manifest.shards, index) - 1

    def next(self, n: int) -> list[list[int]]:
        """The ``n`` groups of minibatches, one of each shard that is held, that this slot takes next."""
        columns = [self._sequences[shard].next(n) for shard in self.held]
        return [list(group) for group in zip(*columns, strict=True)]

    def take(self, n: int) -> list[list[int]]:
        """The next ``n`` groups, which are taken then."""
        self._n_taken += n
        columns = [self._sequences[shard].take(n) for shard in self.held]
        return [list(group) for group in zip(*columns, strict=True)]


class ShrinkingShares:
    """`Shares` as groups of one minibatch each: a step takes one of every worker that is left, as the paper has it.

    Parameters and attributes are those of `Shards`; ``owners`` has None for shards that several slots have.
    """

    def __init__(self, manifest: Manifest, slot: int, n_workers: int, *, by_shard: bool = False) -> None:
        self._shares = Shares(manifest, slot, n_workers, by_shard=by_shard)
        self._n_active = n_workers
        self.held = [slot]
        self.shard_of = self._shares.shard_of

    @property
    def n_all(self) -> int:
        """Minibatches of a step: as many as workers."""
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

    def next(self, n: int) -> list[list[int]]:
        """See `Shares`."""
        return [[index] for index in self._shares.next(n)]

    def take(self, n: int) -> list[list[int]]:
        """See `Shares`."""
        return [[index] for index in self._shares.take(n)]


#: By the name of what becomes of the global minibatch when workers leave, see `mlless_nb.ScaleIn`.
DEALERS: dict[str, type[Shards] | type[ShrinkingShares]] = {"keep": Shards, "shrink": ShrinkingShares}
