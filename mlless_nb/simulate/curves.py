"""Loss curves instead of training: recorded ones, or a power law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Curve(Protocol):
    """The loss as a function of training progress.

    Attributes
    ----------
    noise : float
        Standard deviation of the loss of one worker's minibatch, relative to the loss.
    """

    @property
    def noise(self) -> float: ...

    def loss(self, progress: float) -> float:
        """The loss, in the model's metric, after ``progress`` full steps."""

    def gain(self, n_workers: int) -> float:
        """The progress, in full steps, of one step of ``n_workers`` workers."""


def _gain(n_workers: int, full: int, noise_workers: float) -> float:
    return (1.0 + noise_workers / full) / (1.0 + noise_workers / n_workers)


@dataclass(frozen=True)
class PowerCurve:
    """``floor + 1 / (speed * progress ** power + 1 / (start - floor))``: the paper's reference curve, L_P.

    Parameters
    ----------
    start, floor : float
        The loss before any training, and its limit.
    speed, power : float
        Speed of the decrease.
    noise : float
        See `Curve`.
    full_workers : int
        Number of workers whose step is a full step.
    noise_workers : float
        The gradient's noise scale in minibatches: with this number of workers, a step makes half the progress of a step
        with infinitely many, ``gain(p) ~ 1 / (1 + noise_workers / p)``. 0: the progress does not depend on the number.

    References
    ----------
    MLLess, the scale-in auto-tuner's reference curve; McCandlish et al., "An empirical model of large-batch training".
    """

    start: float = 1.1
    floor: float = 0.85
    speed: float = 0.05
    power: float = 1.0
    noise: float = 0.01
    full_workers: int = 1
    noise_workers: float = 0.0

    def loss(self, progress: float) -> float:
        """See `Curve`."""
        return self.floor + 1.0 / float(self.speed * progress**self.power + 1.0 / (self.start - self.floor))

    def gain(self, n_workers: int) -> float:
        """See `Curve`."""
        return _gain(n_workers, self.full_workers, self.noise_workers)


@dataclass(frozen=True)
class RecordedCurve:
    """The losses of a run, interpolated between its steps; constant after the last one.

    Parameters
    ----------
    losses : sequence of float
        The loss before the first step, after it, and so on.
    noise, full_workers, noise_workers
        See `PowerCurve`; ``full_workers`` is the number of workers in the run.
    """

    losses: Sequence[float]
    noise: float = 0.0
    full_workers: int = 1
    noise_workers: float = 0.0

    def loss(self, progress: float) -> float:
        """See `Curve`."""
        last = len(self.losses) - 1
        before = min(int(progress), last)
        share = min(progress, last) - before
        after = self.losses[min(before + 1, last)]
        return self.losses[before] + share * (after - self.losses[before])

    def gain(self, n_workers: int) -> float:
        """See `Curve`."""
        return _gain(n_workers, self.full_workers, self.noise_workers)


@dataclass(frozen=True)
class SentFraction:
    """Share of an update that ISP publishes: ``first * step ** -power * n_workers ** -by_workers``, at most 1.

    Measured with PMF, MovieLens-1M and ISP(0.7). It falls because updates get smaller relative to the parameters, both
    over the steps and by averaging over more workers.
    """

    first: float = 1.0
    power: float = 0.5
    by_workers: float = 0.0

    def at(self, step: int, n_workers: int) -> float:
        """The share in ``step`` (1-based)."""
        return min(1.0, float(self.first * step**-self.power * n_workers**-self.by_workers))
