"""Which minibatches one request reads: runs of consecutive minibatches that one worker needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .prepare import BUNDLE_BYTES, Manifest

#: Size of the first run, which is small so that training starts early, and of the others, bytes.
FIRST_BYTES, RUN_BYTES = 4 << 20, 16 << 20


def most_gets(n_minibatches: int, n_bytes: int, n_workers: int) -> int:
    """Upper bound of the requests with which a worker reads an even share of the minibatches, and two others."""
    share, share_bytes = -(-n_minibatches // n_workers), -(-n_bytes // n_workers)
    n_bundles = 2 + share_bytes // BUNDLE_BYTES  # each has an index, and its end may cut a run
    n_runs = 2 + 2 * share_bytes // RUN_BYTES  # a run may hold only one minibatch larger than half a run
    return min(n_bundles + n_runs, 2 * share) + 4


class Run(NamedTuple):
    """The minibatches numbered [first, end) of one bundle, which one request reads."""

    bundle: int
    first: int
    end: int


class Runs:
    """The runs of one packed dataset for one worker.

    Parameters
    ----------
    manifest : Manifest
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._of: dict[int, Run] = {}
        self._following: dict[Run, Run] = {}
        self._n_bytes = FIRST_BYTES

    def expect(self, indices: Iterable[int], at_hand: Iterable[Run] = ()) -> None:
        """Announce the minibatches needed from now on, in about this order; the runs ``at_hand`` are kept."""
        order = dict.fromkeys(indices)
        self._of = {index: run for run in at_hand for index in range(run.first, run.end)}
        runs = []
        for index in order:
            if index in self._of:
                continue
            bundle = self._manifest.bundle_of(index)
            most = max(self._n_bytes // self._manifest.minibatch_bytes, 1)
            last = min(index + most, self._manifest.bundles[bundle + 1])
            end = index + 1
            while end < last and end in order and end not in self._of:
                end += 1
            run = Run(bundle, index, end)
            runs.append(run)
            self._of |= dict.fromkeys(range(index, end), run)
            self._n_bytes = RUN_BYTES
        self._following = dict(zip(runs, [*runs[1:], *runs[:1]], strict=True))

    @property
    def n_minibatches(self) -> int:
        """Number of minibatches in all runs."""
        return len(self._of)

    def of(self, index: int) -> Run:
        """The run of minibatch ``index``; if it was not expected, a run of this one."""
        return self._of.get(index) or Run(self._manifest.bundle_of(index), index, index + 1)

    def after(self, run: Run) -> Run | None:
        """The run that is likely to be needed after ``run``, None if not known."""
        return self._following.get(run)

    def n_bytes(self, run: Run) -> int:
        """Upper bound of the size of ``run``, bytes."""
        return (run.end - run.first) * self._manifest.minibatch_bytes
