"""Simulated runs over random curves and stragglers: does the tuner remove too early, or keep a run from its target?

python benchmarks/simulate_tuner.py [--alone] [--runs 1000] [--minutes 4] [--jobs 2] [--scale-in '{"threshold": 0.05}']

The tuner is the paper's, under which the global minibatch shrinks: where it stays no target is lost.

Every case is run with the auto-tuner, by the fields of `ScaleIn` that are given, and without: as a whole simulated run,
or, with ``--alone``, as rows that are made for the policy (`policy_alone`). The knee is looked for twice: on the curve
without its noise, from the beginning to the target, and by the tuner, on the losses it has seen.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from policy_alone import run_alone
from report import Report, parser

from mlless_nb import ScaleIn, Stop
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
#: A run that takes so many times as long is named.
SLOWER = 1.05


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One case: with the tuner, and without."""

    workers: int
    knee: int
    seen_knee: int | None
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
        """Workers that were removed before the knee of the noise-free curve."""
        return sum(step < self.knee for step in self.removed_at)

    @property
    def n_unseen(self) -> int:
        """Workers that were removed before the tuner said that the knee was past."""
        return sum(self.seen_knee is None or step < self.seen_knee for step in self.removed_at)

    @property
    def time_ratio(self) -> float:
        """Time to the target, with / without."""
        return self.time_s / self.base_time_s

    @property
    def usd_ratio(self) -> float:
        """Dollars to the target, with / without."""
        return self.usd / self.base_usd

    @property
    def gain(self) -> float:
        """Perf/$ = 1 / (seconds x dollars), with / without."""
        return 1.0 / (self.time_ratio * self.usd_ratio)


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


def run(seed: int, scale_in: Mapping[str, Any]) -> Outcome:
    """Simulate the case of ``seed``, with the tuner and without."""
    workload, machine, curve = case(seed)
    tuned = simulate(dataclasses.replace(workload, scale_in=ScaleIn(**scale_in)), machine, seed)
    plain = simulate(dataclasses.replace(workload, scale_in=ScaleIn(**{**scale_in, "enabled": False})), machine, seed)
    return Outcome(
        workload.workers,
        knee(curve),
        next((decision["step"] for decision in tuned.decisions if decision["kind"] == "knee"), None),
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


def run_mind(seed: int, scale_in: Mapping[str, Any]) -> Outcome:
    """Let the policy alone decide on the case of ``seed``, and let nobody decide."""
    workload, machine, curve = case(seed)
    tuned = run_alone(workload, machine, curve, seed, ScaleIn(**scale_in))
    plain = run_alone(workload, machine, curve, seed, ScaleIn.off())
    return Outcome(
        workload.workers,
        knee(curve),
        tuned.seen_knee,
        tuned.departures,
        "finished",
        tuned.has_reached,
        tuned.n_steps,
        tuned.time_s,
        tuned.usd,
        plain.has_reached,
        plain.time_s,
        plain.usd,
    )


def spread(values: Sequence[float]) -> list[float]:
    """The smallest, the 5th, 25th, 50th, 75th and 95th of a hundred, the largest; NaN of nothing."""
    return [float(one) for one in np.quantile(values or [np.nan], [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1])]


def main() -> None:
    """Simulate and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--jobs", type=int, default=2, help="processes")
    arguments.add_argument("--minutes", type=float, default=math.inf, help="after which no further case is begun")
    arguments.add_argument("--alone", action="store_true", help="the policy alone")
    arguments.add_argument("--scale-in", type=json.loads, default={}, metavar="JSON")
    options = arguments.parse_args()
    fields = {"global_minibatch": "shrink", **options.scale_in}
    count = options.runs or (40 if options.quick else 1000)
    report = Report("simulate_tuner", "Does the tuner remove before the knee, or keep a run from its target?")
    began = time.perf_counter()
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        cases = [pool.submit(run_mind if options.alone else run, seed, fields) for seed in range(count)]
        for one in cases:
            outcomes.append(one.result())
            if time.perf_counter() - began > 60 * options.minutes:
                pool.shutdown(cancel_futures=True)
                break
    count = len(outcomes)
    took_s = time.perf_counter() - began
    both = {seed: it for seed, it in enumerate(outcomes) if it.base_has_reached and it.has_reached}
    seeds = {
        "broken": [seed for seed, it in enumerate(outcomes) if it.base_has_reached and not it.has_reached],
        "early": [seed for seed, it in enumerate(outcomes) if it.n_early],
        "unseen": [seed for seed, it in enumerate(outcomes) if it.n_unseen],
        "slower": [seed for seed, it in both.items() if it.time_ratio > SLOWER],
        "worse": [seed for seed, it in both.items() if it.gain < 1.0],
    }
    counts = {
        "target reached without the tuner": sum(it.base_has_reached for it in outcomes),
        "and with it": sum(it.has_reached for it in outcomes),
        "reached without, not with": len(seeds["broken"]),
        "runs in which workers left": sum(bool(it.removed_at) for it in outcomes),
        "workers that left": sum(len(it.removed_at) for it in outcomes),
        "before the knee of the noise-free curve": sum(it.n_early for it in outcomes),
        "in so many runs": len(seeds["early"]),
        "before the tuner had seen a knee": sum(it.n_unseen for it in outcomes),
        f"runs that took over {SLOWER:g} times as long": len(seeds["slower"]),
        "runs with less Perf/$": len(seeds["worse"]),
        "simulated steps": sum(it.steps for it in outcomes),
        "seconds taken": took_s,
    }
    what = "runs of the policy alone" if options.alone else "simulated runs"
    title = f"{count} {what} of about {STEPS} steps, P = {', '.join(map(str, WORKERS))}"
    report.table(title, ["", ""], [[name, value] for name, value in counts.items()])
    spreads = {
        "time": spread([it.time_ratio for it in both.values()]),
        "dollars": spread([it.usd_ratio for it in both.values()]),
        "Perf/$": spread([it.gain for it in both.values()]),
    }
    columns = ["to the target, with / without", "least", "5 %", "25 %", "median", "75 %", "95 %", "most"]
    report.table("Runs that reach it either way", columns, [[name, *values] for name, values in spreads.items()])
    for name, found in seeds.items():
        report.remark(f"Seeds, {name}: {', '.join(map(str, found)) or 'none'}.")
    report.end(runs=count, **counts, seeds=seeds, **spreads)


if __name__ == "__main__":
    main()
