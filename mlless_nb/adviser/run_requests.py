"""Requests to the object storage that every run makes: for its data, its checkpoints and its model. Pure."""

from __future__ import annotations

import math

from ..data.prepare import BUNDLE_BYTES
from ..data.read_plan import FIRST_BYTES, RUN_BYTES
from ..money import Rates
from ..money.meter import NUSD
from ..supervisor.checkpoint_times import TABLES, CheckpointTimes
from ..worker.minibatch_loader import CACHE_BYTES, SMALL_BYTES
from .sizes import Sizes

#: The driver's reads: to see whether the data are packed, and what it sets aside to read the model. The writes are of
#: the model, and the listing by which the run's objects are removed.
FIXED_GETS, FIXED_PUTS = 7, 2


def n_reads(n_workers: int, sizes: Sizes) -> int:
    """Reads of the data by all workers: each reads its share in runs, and keeps it if it is not too large."""
    if sizes.data_bytes <= SMALL_BYTES:
        return n_workers
    share = sizes.data_bytes / n_workers
    n_runs = 1 + math.ceil(max(share - FIRST_BYTES, 0.0) / RUN_BYTES)
    passes = max(sizes.epochs, 1.0) if share > CACHE_BYTES else 1.0
    return n_workers * (math.ceil(share / BUNDLE_BYTES) + math.ceil(passes * n_runs))


def run_nusd(n_workers: int, sizes: Sizes, rates: Rates, trained_s: float, cores: float) -> int:
    """Bill of these requests in a run that trains for ``trained_s`` seconds with ``cores`` a worker, nano-dollars."""
    usd_s = (n_workers + 1) * rates.function_usd_s + rates.servers_usd_s
    checkpoints = CheckpointTimes(rates.requests_nusd(0, n_workers), round(TABLES * sizes.stored_bytes), cores)
    n_stored = checkpoints.number(trained_s, NUSD * usd_s * trained_s)
    n_packed = math.ceil(sizes.data_bytes / BUNDLE_BYTES)
    n_writes = FIXED_PUTS + n_packed + n_workers * n_stored
    return rates.requests_nusd(FIXED_GETS + n_reads(n_workers, sizes), n_writes)
