"""Runs of the policy alone: rows made from a curve and stragglers, straight to the tuner, a tenth of a second a case.

No worker, supervisor or exchange is simulated, so that a thousand runs are a matter of minutes. `simulate_tuner` asks
the same of whole simulated runs, of which it gets through a few dozen in that time.
"""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import numpy as np

from mlless_nb import ScaleIn
from mlless_nb.exchange.step_report import Report
from mlless_nb.money import Rates, price_profile
from mlless_nb.simulate import Machine, PowerCurve, Workload
from mlless_nb.supervisor.policy.policy import Policy
from mlless_nb.supervisor.policy.projection import Prices
from mlless_nb.telemetry.live import COLUMNS

#: Seconds before the first step, and of a step beside its computing.
START_S, EXCHANGE_S = 0.5, 0.01
#: Steps between two evaluations, and between a decision and a worker's last step.
EVAL_EVERY, NOTICE = 10, 2


@dataclasses.dataclass(frozen=True)
class AloneRun:
    """What came of it: seconds, dollars, steps, whether the target was reached, steps of removals and of the knee."""

    time_s: float
    usd: float
    n_steps: int
    has_reached: bool
    departures: tuple[int, ...]
    seen_knee: int | None


def run_alone(workload: Workload, machine: Machine, curve: PowerCurve, seed: int, scale_in: ScaleIn) -> AloneRun:
    """Take the steps of ``workload``; the tuner decides after each."""
    stop, n_workers = dataclasses.asdict(workload.stop), workload.workers
    prices = Prices.of(Rates(price_profile(workload.prices), workload.memory_mb, 1, False))
    advice = Policy(scale_in.to_json(), n_workers, stop, prices)
    noise, draws = np.random.default_rng(seed), [random.Random(f"{seed} {slot}") for slot in range(n_workers)]
    time_s, usd, progress = START_S, START_S * prices.usd_s(n_workers), 0.0
    last_steps: dict[int, int] = {}
    removed: list[int] = []
    seen_knee, reached, step = None, False, 0
    while not reached and step < stop["steps"]:
        step += 1
        active = [slot for slot in range(n_workers) if last_steps.get(slot, step) >= step]
        busy_s = {
            slot: machine.costs.step_s * machine.stragglers.factor(draws[slot], slot, step, time_s) for slot in active
        }
        duration = max(busy_s.values()) + EXCHANGE_S
        time_s, usd = time_s + duration, usd + duration * prices.usd_s(len(active))
        loss = curve.loss(progress) * (1 + curve.noise / math.sqrt(len(active)) * noise.normal())
        progress += curve.gain(len(active))
        held_out = curve.loss(progress) if step % EVAL_EVERY == 0 else math.nan
        known: dict[str, Any] = dict.fromkeys(COLUMNS, 0.0)
        known.update(
            step=step, time_s=time_s, loss=loss, validation_loss=held_out, n_workers=len(active), spent_usd=usd
        )
        advice.append([known[name] for name in COLUMNS])
        reports = {slot: Report(compute_s=seconds) for slot, seconds in busy_s.items()}
        for decision, slot in advice.decide(reports, last_steps):
            if decision.kind == "knee":
                seen_knee = step
            if slot is not None:
                last_steps[slot] = step + NOTICE
                removed.append(step)
        reached = held_out <= stop["target"] * (1 + 1e-9)
    return AloneRun(time_s, usd, step, reached, tuple(removed), seen_knee)
