"""Step times with a constant global minibatch: measured, and predicted for fewer workers. Pure.

With p of P workers a step computes the minibatches of P shards, the busiest worker ``ceil(P / p)`` of them. Let ``c``
be the processor time of one minibatch and N the cores that the workers share (with a core for each worker, the second
term of the maximum is left out)::

    T(p) = c * max(ceil(P / p), P / N) + R(p)

The rest ``R(p)``, mainly the exchange, is the measured time beyond the first term. With fewer workers there is less to
read: if there are more workers than shared cores, ``R`` is assumed to fall in proportion to the number of peers, since
reading keeps the cores busy; otherwise by half of that. A single worker exchanges nothing.
"""

from __future__ import annotations

import math

import numpy as np

from .loss_history import History

#: Number of newest step times whose median is taken.
RECENT = 200
#: ``R(1)`` as a share of the present ``R``.
ALONE = 0.25


class KeptStepTimes:
    """Seconds of a step by number of workers, with a constant global minibatch.

    Parameters
    ----------
    n_all : int
        P, the shards, and the workers at the start.
    n_cores : int
        Cores that all workers share; 0: each worker has its own.
    """

    def __init__(self, n_all: int, n_cores: int = 0) -> None:
        self._n_all, self._n_cores = n_all, n_cores
        self._measured: dict[int, float] = {}
        self._present = n_all
        self._cpu_s = math.nan  # processor seconds of one shard's minibatch

    def measure(self, history: History, first: int) -> None:
        """Measure the step time of the rows from ``first`` on, which had the present number of workers."""
        first = max(first, history.n - RECENT)
        durations = np.diff(history.column("time_s")[first:])
        if len(durations) == 0:
            return
        self._present = int(history.last("n_workers"))
        self._measured[self._present] = float(np.median(durations))
        cpu_s = history.column("compute_cpu_s")[first:]
        cpu_s = cpu_s[np.isfinite(cpu_s)]
        if len(cpu_s):  # cpu_s is the mean over workers of the time for all their shards
            self._cpu_s = float(np.median(cpu_s)) * self._present / self._n_all

    def at(self, n_workers: int) -> float:
        """Seconds of a step with ``n_workers`` workers; NaN before the first measurement."""
        known = self._measured.get(n_workers)
        if known is not None:
            return known
        now, present = self._measured.get(self._present, math.nan), self._present
        if math.isnan(now):
            return math.nan
        cpu_s = 0.0 if math.isnan(self._cpu_s) else self._cpu_s
        rest = max(now - cpu_s * self._shards_in_turn(present), 0.0)
        return cpu_s * self._shards_in_turn(n_workers) + rest * self._share_left(n_workers, present)

    def _shards_in_turn(self, n_workers: int) -> float:
        """Minibatches that are computed one after another in a step, in the first term's maximum."""
        busiest = math.ceil(self._n_all / n_workers)
        return max(busiest, self._n_all / self._n_cores) if self._n_cores else busiest

    def _share_left(self, n_workers: int, present: int) -> float:
        """``R(n_workers)`` as a share of ``R(present)``."""
        if n_workers >= present:
            return 1.0
        if n_workers == 1:
            return ALONE
        peers = (n_workers - 1) / (present - 1)
        return peers if self._n_cores and present > self._n_cores else 0.5 + 0.5 * peers
