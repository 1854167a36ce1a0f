"""A worker's evaluation of its replica: on its share of the held-out rows, and on one minibatch common to all."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ..bus.messages import Invocation
from ..data.prepare import Manifest
from ..storage.objects import ObjectStore
from .minibatch_loader import MinibatchFeed
from .minibatch_schedule import SCHEDULES
from .replica import Replica

#: Fewest minibatches of a worker between two evaluations, unless the job sets a number of steps.
LEAST_STEPS = 10
#: Largest share of the run's time for evaluations, and the time to evaluate a row relative to training on one.
MOST_SHARE, ROW_SHARE = 0.05, 1 / 3


def eval_every(n_held_out: int, step_rows: int, step_minibatches: int = 1) -> int:
    """Steps between two evaluations of ``n_held_out`` rows, if a step trains on ``step_rows`` rows.

    ``step_minibatches`` is the number of minibatches that a worker takes in a step.

    It depends on these numbers and not on measured times, so every run of a job evaluates after the same steps.
    """
    return max(math.ceil(LEAST_STEPS / step_minibatches), math.ceil(ROW_SHARE * n_held_out / (MOST_SHARE * step_rows)))


class HeldOut:
    """One worker's part of a job's held-out rows, if the job has any.

    Parameters
    ----------
    invocation : Invocation
    objects : ObjectStore
    replica : Replica
    clock, make_feed : callable
        Wall time in seconds, and the source of minibatches.
    """

    def __init__(
        self,
        invocation: Invocation,
        objects: ObjectStore,
        replica: Replica,
        clock: Callable[[], float] = time.monotonic,
        make_feed: Callable[[ObjectStore, Manifest], MinibatchFeed] = MinibatchFeed,
    ) -> None:
        self._clock = clock
        self._slot, self._every, self._replica = invocation.slot, invocation.eval_every, replica
        spec = invocation.validation
        self._manifest = Manifest.from_json(spec) if spec is not None else None
        self._feed = make_feed(objects, self._manifest) if self._manifest is not None else None
        self._shares = (
            SCHEDULES[invocation.scale_in["global_minibatch"]](
                self._manifest, invocation.slot, invocation.n_workers, by_shard=replica.divergence.owned_rows
            )
            if self._manifest is not None
            else None
        )
        if self._feed is not None and self._shares is not None:
            self._feed.expect([*self._shares.part, *self._common])
        # Requests of the next evaluation, and the number of workers they were counted for (0: to be counted again).
        self._n_unread = self._counted = 0
        #: `Replica.interaction` at the newest evaluation.
        self.interaction = 0.0
        #: Duration of the longest evaluation so far, seconds; None before the first.
        self.seconds: float | None = None

    @property
    def has_rows(self) -> bool:
        """Whether the job has held-out rows."""
        return self._manifest is not None

    def close(self) -> None:
        """Stop fetching."""
        if self._feed is not None:
            self._feed.close()

    def share(self, active: list[int]) -> list[int]:
        """The minibatches that this worker evaluates when the slots ``active`` share the evaluation."""
        if self._shares is None:
            return []
        if self._shares.reassign(active) and self._feed is not None:
            self._feed.expect([*self._shares.part, *self._common])
        return self._shares.part

    @property
    def _common(self) -> list[int]:
        """The minibatch, if any, on which replicas are compared; one and the same, because every worker fetches it."""
        return [0] if self._feed is not None and self._replica.divergence.is_comparable else []

    def n_unread(self, active: list[int]) -> int:
        """Upper bound of the storage requests of the next evaluation."""
        feed = self._feed
        if feed is not None and self._counted != len(active):
            indices = {*self.share(active), *self._common}
            self._counted, self._n_unread = len(active), feed.n_gets(indices)
        return self._n_unread

    def evaluate(self, active: list[int]) -> tuple[float, float]:
        """Loss sum and count of this worker's share."""
        if self._feed is None or self._slot not in active:
            return 0.0, 0.0
        began = self._clock()
        share = self.share(active)
        sums = self._sums(self._feed, share)
        if share:
            # On a minibatch in memory, as the last one is: another read would not be prepaid.
            sampled = share[0] if self._feed.has(share[0]) else share[-1]
            self.interaction = self._replica.interaction(self._feed.get(sampled))
        self.seconds = max(self._clock() - began, self.seconds or 0.0)
        return sums

    def compare(self) -> tuple[float, float]:
        """Loss sum and count of this replica on the rows common to all workers; zeros if replicas cannot differ.

        Where users are sharded, their parameters do not enter, see `mlless_nb.models.leave_one_out`.
        """
        if self._feed is None or not self._common:
            return 0.0, 0.0
        self._counted = 0  # minibatches in memory may have changed
        return self._replica.compare(self._feed.get(self._common[0]))

    def _sums(self, feed: MinibatchFeed, indices: list[int]) -> tuple[float, float]:
        total, count, self._counted = 0.0, 0.0, 0
        for index in indices:
            minibatch = feed.get(index)
            total += self._replica.evaluate(minibatch)
            count += minibatch.n
        return total, count
