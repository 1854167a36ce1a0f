"""Stragglers: random factors by which the computation of a step takes longer, drawn for each worker.

The distributions are those of the literature on stragglers; see Xu, Neglia and Sebastianelli, "Dynamic backup workers
for parallel machine learning", whose experiments draw round-trip times from ``1 - a + a Exp(1)``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class Stragglers(Protocol):
    """Factors of compute time."""

    def factor(self, draws: random.Random, slot: int, step: int, time_s: float) -> float:
        """The factor of worker ``slot`` in ``step`` (1-based), which begins at ``time_s``; ``draws`` is its own."""


@dataclass(frozen=True)
class Even:
    """Every step takes as long as any other."""

    def factor(self, draws: random.Random, slot: int, step: int, time_s: float) -> float:
        """1."""
        return 1.0


@dataclass(frozen=True)
class ShiftedExponential:
    """``1 - a + a * Exp(1)``: mean 1, never below ``1 - a``.

    Parameters
    ----------
    a : float
        0 (even) to 1.
    """

    a: float

    def factor(self, draws: random.Random, slot: int, step: int, time_s: float) -> float:
        """See `Stragglers`."""
        return 1.0 - self.a + self.a * draws.expovariate(1.0)


@dataclass(frozen=True)
class Pareto:
    """At least 1, and above ``x`` with probability ``x ** -alpha``: rare steps take very long.

    Parameters
    ----------
    alpha : float
        > 1; the smaller, the heavier the tail.
    """

    alpha: float

    def factor(self, draws: random.Random, slot: int, step: int, time_s: float) -> float:
        """See `Stragglers`."""
        return draws.paretovariate(self.alpha)


@dataclass(frozen=True)
class SlowWorkers:
    """Some workers are slow from a given time on.

    Parameters
    ----------
    factors : mapping of int to float
        Factor by slot; 1 for the other slots.
    from_s : float
        Virtual time, seconds.
    """

    factors: Mapping[int, float] = field(default_factory=dict)
    from_s: float = 0.0

    def factor(self, draws: random.Random, slot: int, step: int, time_s: float) -> float:
        """See `Stragglers`."""
        return self.factors.get(slot, 1.0) if time_s >= self.from_s else 1.0


@dataclass(frozen=True)
class Trace:
    """Measured factors, repeated cyclically; each worker begins at another position.

    Parameters
    ----------
    factors : tuple of float
    """

    factors: tuple[float, ...]

    def factor(self, draws: random.Random, slot: int, step: int, time_s: float) -> float:
        """See `Stragglers`."""
        return self.factors[(step - 1 + slot * 7919) % len(self.factors)]
