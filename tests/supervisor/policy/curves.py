"""Generated runs for the tests of the policy: rows as a supervisor makes them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mlless_nb.supervisor.policy.projection import Prices
from mlless_nb.telemetry.live import COLUMNS

PRICES = Prices(2.88e-5, 7.2e-5)
STEP_S = 0.02


def hyperbola(step: float) -> float:
    """A loss that falls from 0.69 to a floor of 0.5."""
    return 0.5 + 1 / (0.06 * step + 5.2)


def row(
    step: int, loss: float, n_workers: int, time_s: float, spent: float, held_out: float | None
) -> list[float | None]:
    """One row of telemetry."""
    known: dict[str, float | None] = {
        "step": float(step),
        "epoch": step / 20,
        "time_s": time_s,
        "loss": loss,
        "validation_loss": held_out,
        "n_workers": float(n_workers),
        "spent_usd": spent,
    }
    return [known.get(name, 0.0) for name in COLUMNS]


def rows(
    losses: list[float] | NDArray[np.float64], n_workers: int = 8, eval_every: int | None = None
) -> list[list[float | None]]:
    """Rows of a run whose losses are ``losses``, with held-out losses that are the same every ``eval_every`` steps."""
    made = []
    for step, loss in enumerate(map(float, losses), start=1):
        held_out = loss if eval_every and step % eval_every == 0 else None
        time_s = 1 + step * STEP_S
        made.append(row(step, loss, n_workers, time_s, time_s * PRICES.usd_s(n_workers), held_out))
    return made


def live(
    loss_at: Callable[[int, int], float],
    n_steps: int,
    n_workers: int,
    decide: Callable[[list[float | None]], int],
    *,
    is_quicker: bool = True,
) -> list[int]:
    """Workers at each step of a run in which ``decide`` (row in, workers to remove out) acts with the next step.

    Steps take time in proportion to their workers, or all as long; ``loss_at(step, n_workers)`` is the loss.
    """
    time_s, spent, left, seen = 1.0, 1.0 * PRICES.usd_s(n_workers), n_workers, []
    for step in range(1, n_steps + 1):
        duration = STEP_S * left / n_workers if is_quicker else STEP_S
        time_s += duration
        spent += duration * PRICES.usd_s(left)
        loss = loss_at(step, left)
        seen.append(left)
        left -= decide(row(step, loss, left, time_s, spent, loss if step % 10 == 0 else None))
    return seen
