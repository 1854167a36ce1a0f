"""What a run on this machine takes: the embedded backend, whose functions share the machine's cores."""

from __future__ import annotations

import os

from ..exchange.pattern import MESSAGE_S
from ..money import Rates
from ..money.meter import NUSD
from .analytic import FIXED_GETS, FIXED_PUTS, Option, Sizes

#: Seconds until the functions of a run train: of all, and more for each. As the other constants here, these were fitted
#: to runs of 1 to 12 workers on two cores; ``benchmarks/adviser.py`` compares.
START_S, START_EACH_S = 1.0, 0.03
#: Processor seconds of a step's loop in each worker.
STEP_S = 200e-6
#: Bytes per second of a frame's way from one worker to another: copied by its writer, the server and its reader.
BYTES_S = 8.0e9


def n_cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def here(n_workers: int, sizes: Sizes, rates: Rates, cores: int | None = None) -> Option:
    """``n_workers`` functions of the embedded backend; the bill is that of the job's price profile.

    Parameters
    ----------
    cores : int, optional
        Processor cores; None: those of this machine.
    """
    w, cores = n_workers, cores or n_cores()
    rounds = sizes.n_rounds(w)
    made_s = sizes.local_steps * sizes.minibatch_s + STEP_S
    read_s = (w - 1) * (sizes.apply_s + sizes.update_bytes / BYTES_S + MESSAGE_S)
    crowd = max(w / cores, 1.0)  # workers that share a core take turns
    start_s = START_S + START_EACH_S * w
    compute, exchange = rounds * made_s * crowd, rounds * read_s * crowd
    time_s = start_s + compute + exchange
    nusd = (w + 1) * rates.function_nusd(time_s) + rates.servers_nusd(time_s)
    nusd += rates.requests_nusd(FIXED_GETS + sizes.n_minibatches, FIXED_PUTS)
    return Option("here", "this machine", w, start_s, compute, exchange, nusd / NUSD)
