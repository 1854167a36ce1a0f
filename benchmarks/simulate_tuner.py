"""Simulated runs over random curves and stragglers: does a tuner remove too early, or keep a run from its target?

python benchmarks/simulate_tuner.py [--runs 1000] [--jobs 2] [--invocation '{...}'] [--baseline '{...}']

``--invocation`` holds fields of the functions' `Invocation` with which the tuner is on, ``--baseline`` those of the
runs that each is compared with. Whatever the supervisor does with them is what is counted.
"""

from __future__ import annotations

import dataclasses
import json
import random
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from report import Report, median, parser

from mlless_nb import Stop
from mlless_nb.simulate import (
    CLOUD,
    Costs,
    Even,
    Machine,
    Pareto,
    PowerCurve,
    ShiftedExponential,
    SlowWorkers,
    Workload,
    simulate,
)

#: Full steps to the target, and how many times as many a run is given.
STEPS, PATIENCE = 300, 3
WORKERS = (8, 12, 16, 24)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One case: with the tuner, and without."""

    workers: int
    knee: int
    removed_at: tuple[int, ...]
    status: str
    has_reached: bool
    steps: int
    time_s: float
    usd: float
    base_has_reached: bool
    base_time_s: float
    base_usd: float

    @property
    def n_early(self) -> int:
        """Workers that were removed before the knee."""
        return sum(step < self.knee for step in self.removed_at)


def case(seed: int) -> tuple[Workload, Machine, PowerCurve]:
    """A curve, noise, workers and stragglers, drawn by ``seed``."""
    draws = random.Random(seed)
    workers = draws.choice(WORKERS)
    floor = 10 ** draws.uniform(-1.5, 1.5)
    curve = PowerCurve(
        start=floor * draws.uniform(1.1, 6.0),
        floor=floor,
        speed=10 ** draws.uniform(-2.5, 0.0) / floor,
        power=draws.uniform(0.6, 1.4),
        noise=draws.choice((0.0, 10 ** draws.uniform(-3.5, -1.5))),
        full_workers=workers,
        noise_workers=draws.choice((0.0, 10 ** draws.uniform(-1.0, 2.0))),
    )
    stragglers = draws.choice(
        (
            Even(),
            ShiftedExponential(draws.uniform(0.1, 1.0)),
            Pareto(draws.uniform(1.5, 4.0)),
            SlowWorkers({draws.randrange(workers): draws.uniform(1.5, 6.0)}, from_s=draws.uniform(0.0, 60.0)),
        )
    )
    costs = dataclasses.replace(Costs(), step_s=10 ** draws.uniform(-2.0, 0.0))
    machine = dataclasses.replace(CLOUD, costs=costs, stragglers=stragglers, lifetime_s=1e6)
    workload = Workload(
        workers=workers,
        curve=curve,
        stop=Stop(target=curve.loss(STEPS), steps=PATIENCE * STEPS),
        checkpoint_every=10_000,
        n=6250 * 40 * workers,
    )
    return workload, machine, curve


def knee(curve: PowerCurve) -> int:
    """The step at which the curve to the target is furthest below the chord from its beginning to its end."""
    steps = np.arange(STEPS + 1)
    losses = np.array([curve.loss(float(step)) for step in steps])
    fallen = (losses[0] - losses) / (losses[0] - losses[-1])
    return int(np.argmax(fallen - steps / STEPS))


def run(seed: int, invocation: Mapping[str, Any], baseline: Mapping[str, Any]) -> Outcome:
    """Simulate the case of ``seed``, with the tuner and, where that is another thing, without."""
    workload, machine, curve = case(seed)
    tuned = simulate(dataclasses.replace(workload, invocation=invocation), machine, seed)
    plain = tuned
    if invocation != baseline:
        plain = simulate(dataclasses.replace(workload, invocation=baseline), machine, seed)
    return Outcome(
        workload.workers,
        knee(curve),
        tuple(step for _, step in tuned.departures),
        tuned.status,
        "target" in tuned.reason,
        tuned.history.n_steps,
        tuned.time_s,
        tuned.cost.total,
        "target" in plain.reason,
        plain.time_s,
        plain.cost.total,
    )


def main() -> None:
    """Simulate and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--jobs", type=int, default=2, help="processes")
    arguments.add_argument("--invocation", type=json.loads, default={}, metavar="JSON")
    arguments.add_argument("--baseline", type=json.loads, default={}, metavar="JSON")
    options = arguments.parse_args()
    count = options.runs or (40 if options.quick else 1000)
    report = Report("simulate_tuner", "Does the tuner remove before the knee, or keep a run from its target?")
    began = time.perf_counter()
    with ProcessPoolExecutor(options.jobs) as pool:
        one = partial(run, invocation=options.invocation, baseline=options.baseline)
        outcomes = list(pool.map(one, range(count), chunksize=4))
    took_s = time.perf_counter() - began
    broken = [seed for seed, it in enumerate(outcomes) if it.base_has_reached and not it.has_reached]
    early = [seed for seed, it in enumerate(outcomes) if it.n_early]
    both = [it for it in outcomes if it.base_has_reached and it.has_reached]
    times_s, gains = (
        [it.time_s / it.base_time_s for it in both],
        [it.base_time_s * it.base_usd / (it.time_s * it.usd) for it in both],
    )
    figures = {
        "runs": count,
        "steps": sum(it.steps for it in outcomes),
        "departures": sum(len(it.removed_at) for it in outcomes),
        "runs_with_departures": sum(bool(it.removed_at) for it in outcomes),
        "early": early,
        "broken": broken,
        "reached": sum(it.has_reached for it in outcomes),
        "reached_without": sum(it.base_has_reached for it in outcomes),
        "time_ratio": median(times_s),
        "worst_time_ratio": max(times_s, default=float("nan")),
        "perf_usd_ratio": median(gains),
        "worst_perf_usd_ratio": min(gains, default=float("nan")),
        "took_s": took_s,
    }
    rows = [[name, len(value) if isinstance(value, list) else value] for name, value in figures.items()]
    report.table(f"{count} simulated runs of about {STEPS} steps, P = {', '.join(map(str, WORKERS))}", ["", ""], rows)
    report.remark(
        "Early: runs in which a worker left before the knee. Broken: the target was reached without, not with."
    )
    report.end(**figures)


if __name__ == "__main__":
    main()
