"""An event-driven iteration with more functions than one machine has cores for: a model on a virtual clock.

Each function has a core of its own, and the object storage the latency and the bandwidth of LambdaML's Table 6. The
stages follow each other as in `mlless_nb.stateless`: launcher, w workers, r reducers, merger.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from mlless_nb.money import Rates, price_profile

#: Latency (s) and bandwidth (bytes/s) of the object storage for one request.
LATENCY_S, BYTES_S = 0.08, 65e6
#: Requests that a function has under way at a time, and bytes/s of a function's own link.
PARALLEL, LINK_BYTES_S = 16, 75e6
#: Seconds from a call to a warm function's first line, and between two calls that one function makes.
INVOKE_S, CALL_S = 0.1, 0.01
#: Standard deviation of the logarithm of a function's time: stragglers.
SPREAD = 0.12


@dataclass(frozen=True)
class Load:
    """One iteration's work.

    Attributes
    ----------
    compute_s : float
        Of the whole global minibatch on one function.
    model_bytes, data_bytes : float
        Of the model and of the global minibatch.
    memory_mb : int
    """

    compute_s: float
    model_bytes: float
    data_bytes: float
    memory_mb: int


@dataclass(frozen=True)
class Iteration:
    """Seconds, dollars of functions and of requests, and requests to the storage of one iteration."""

    seconds: float
    functions_usd: float
    requests_usd: float
    requests: int

    @property
    def usd(self) -> float:
        """Dollars in all."""
        return self.functions_usd + self.requests_usd


class Uneven:
    """The same stragglers for the simulator; see `mlless_nb.simulate.stragglers`."""

    def factor(self, draws: random.Random, slot: int, step: int, time_s: float) -> float:
        """How many times longer a worker computes in a step."""
        return draws.lognormvariate(0.0, SPREAD)


def resnet50(images: int) -> Load:
    """ResNet50, which slsML trains, with so many images an iteration: 0.35 s and 110 kB an image, 98 MB of parameters.

    The seconds are our guess of a function of 3,008 MB.
    """
    return Load(images * 0.35, 98e6, images * 110e3, 3008)


def requests_s(n_requests: int, n_bytes: float) -> float:
    """Seconds for so many requests, some at a time, of so many bytes in all."""
    speed = min(LINK_BYTES_S, BYTES_S * min(n_requests, PARALLEL))
    return -(-n_requests // PARALLEL) * LATENCY_S + n_bytes / speed


def iteration(load: Load, workers: int, reducers: int, seed: int = 0) -> Iteration:
    """One iteration with so many functions."""
    draws = np.random.default_rng([seed, workers])
    part = load.model_bytes / reducers

    def stage(count: int, each_s: float) -> tuple[float, float]:
        """Seconds until the last of ``count`` functions has ended, and seconds of all."""
        took = each_s * draws.lognormal(0.0, SPREAD, count)
        begins = INVOKE_S + CALL_S * np.arange(count)
        return float((begins + took).max()), float(took.sum() + INVOKE_S * count)

    working_s = requests_s(2, load.model_bytes + load.data_bytes / workers) + load.compute_s / workers
    working_s += requests_s(reducers, load.model_bytes)
    reducing_s = requests_s(1, part) + requests_s(workers, workers * part) + requests_s(1, part)
    merging_s = requests_s(reducers, load.model_bytes) + requests_s(1, load.model_bytes)
    launching_s = CALL_S * workers
    stages = [stage(1, launching_s), stage(workers, working_s), stage(reducers, reducing_s), stage(1, merging_s)]
    gets = 2 * workers + reducers * (workers + 1) + reducers
    puts = workers * reducers + reducers + 1
    rates = Rates(price_profile("aws-lambda-x86"), load.memory_mb)
    functions_usd = sum(seconds for _, seconds in stages) * rates.function_usd_s
    return Iteration(
        sum(seconds for seconds, _ in stages), functions_usd, rates.requests_nusd(gets, puts) / 1e9, gets + puts
    )
