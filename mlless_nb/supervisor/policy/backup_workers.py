"""How many updates a step waits for: the rules of DBW, its blind variant, and AdaSync. Pure.

A rule takes in the complete steps and returns the quorum of the steps to come. The supervisor asks it in a run, and
benchmarks ask it on a virtual clock.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .decision import Numbers
from .gain import GainEstimate
from .loss_rise import LossRise
from .round_times import REMEMBERED, RoundTimes

Float64 = NDArray[np.float64]
#: Least time of a step, seconds: what a coarse clock shows as 0 is all the same.
LEAST_S = 1e-9


class QuorumRule(ABC):
    """Chooses k, the number of updates that a step waits for.

    Parameters
    ----------
    n_workers : int

    Attributes
    ----------
    rate : float
        The learning rate; the owner sets it when it changes.
    """

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self.rate = math.nan

    @abstractmethod
    def note_step(
        self,
        step: int,
        quorum: int,
        loss: float,
        arrived_s: Sequence[float],
        complete_at_s: float,
        *,
        variance: float | None = None,
    ) -> None:
        """Take in a complete step.

        Parameters
        ----------
        step : int
            One more than that of the call before.
        quorum : int
            The updates that it waited for.
        loss : float
            The mean loss of the minibatches of these updates, before the step.
        arrived_s : sequence of float
            Times of the arrivals so far, ascending, seconds.
        complete_at_s : float
        variance : float or None
            Of the mean losses of the minibatches, unbiased; None with a single one.
        """

    def note_late(self, step: int, rank: int, at_s: float) -> None:  # noqa: B027 - not every rule looks at times
        """Take in arrival number ``rank`` (1-based) of a complete ``step``, at ``at_s`` seconds."""

    def note_gradients(self, quorum: int, mean_square: float, variance: float | None) -> None:  # noqa: B027
        """Take in the gradients of the newest step, see `GainEstimate`; not every rule needs them."""

    @abstractmethod
    def quorum(self) -> int:
        """k for the next step, 1 to ``n_workers``."""

    @abstractmethod
    def numbers(self) -> Numbers:
        """The figures behind the newest `quorum`."""


class GainPerSecond(QuorumRule):
    """DBW: the k with the largest ratio of gain to time, ``G_k / T_k``.

    After a step whose loss has risen, k grows by at least one.

    Parameters
    ----------
    n_workers : int
    gain : {"estimated", "paper", "blind"}
        "blind" takes k for it. "paper" estimates it by the paper's formulas, without the bound of `GainEstimate` and
        the test of `LossRise`, and all times of `RoundTimes` count the same; k is n before the estimates are known, and
        if no gain is positive. "estimated" is blind
        then: of gradients that are mostly noise, k are worth k times as much as one. Until a time is known, k is that
        of the first steps.

    References
    ----------
    Xu, Neglia and Sebastianelli, "Dynamic backup workers for parallel machine learning", equations (18) and (19).
    """

    def __init__(self, n_workers: int, gain: str = "estimated") -> None:
        super().__init__(n_workers)
        self._times, self._kind = RoundTimes(n_workers, 1.0 if gain == "paper" else REMEMBERED), gain
        self._gain = GainEstimate(is_bounded=gain == "estimated")
        self._rise = LossRise(is_tested=gain == "estimated")
        self._newest = n_workers  # the quorum of the newest step
        self._numbers: Numbers = {}

    def note_step(
        self,
        step: int,
        quorum: int,
        loss: float,
        arrived_s: Sequence[float],
        complete_at_s: float,
        *,
        variance: float | None = None,
    ) -> None:
        """See `QuorumRule`."""
        self._times.append(step, quorum, arrived_s, complete_at_s)
        self._gain.note_loss(loss)
        self._rise.note(loss, quorum, variance)
        self._newest = quorum

    def note_late(self, step: int, rank: int, at_s: float) -> None:
        """See `QuorumRule`."""
        self._times.note(step, rank, at_s)

    def note_gradients(self, quorum: int, mean_square: float, variance: float | None) -> None:
        """See `QuorumRule`."""
        self._gain.note_gradients(quorum, mean_square, variance, self.rate)

    def quorum(self) -> int:
        """See `QuorumRule`."""
        n_workers, times = self.n_workers, self._times.estimate()
        gains = self._gain.estimate(n_workers, self.rate) if self._kind != "blind" else None
        if self._kind != "paper" and (gains is None or not (gains > 0).any()):
            gains = np.arange(1.0, n_workers + 1)
        best, self._numbers = n_workers, {}
        if times is None and self._kind == "estimated":
            best = self._newest
        elif times is not None and gains is not None and np.isfinite(gains).all() and (gains > 0).any():
            best = int(np.argmax(gains / np.maximum(times, LEAST_S))) + 1
        has_risen = self._rise.has_risen
        if has_risen and self._newest < n_workers:
            best = max(best, self._newest + 1)
        if times is not None and gains is not None:
            self._numbers = {
                "gain": float(gains[best - 1]),
                "gain_of_all": float(gains[-1]),
                "time_s": float(times[best - 1]),
                "time_of_all_s": float(times[-1]),
                "has_risen": float(has_risen),
            }
        return best

    def numbers(self) -> Numbers:
        """See `QuorumRule`."""
        return self._numbers


class FallingLoss(QuorumRule):
    """AdaSync: k grows as the loss falls, ``k^2 / (n - k) = (first^2 / (n - first)) * F_1 / F``.

    The DBW paper says of AdaSync that it minimises a bound on the mean squared gradient over a time horizon, assumes
    round trips of shifted exponential times, and solves a quadratic equation in which only the current loss changes; it
    does not print the equation. This one is derived from that: the bound ``2 F E[T_k] / (eta t) + L eta sigma^2 / k``
    with ``E[T_k]`` about ``shift + log(n / (n - k)) / mu`` has its minimum where ``k^2 / (n - k)`` is inversely
    proportional to F; the constant follows from the k of the first step.

    Parameters
    ----------
    n_workers : int
    first : int
        k of the first step.
    """

    def __init__(self, n_workers: int, first: int = 1) -> None:
        super().__init__(n_workers)
        self._first = min(first, n_workers)
        self._first_loss = self._loss = math.nan

    def note_step(
        self,
        step: int,
        quorum: int,
        loss: float,
        arrived_s: Sequence[float],
        complete_at_s: float,
        *,
        variance: float | None = None,
    ) -> None:
        """See `QuorumRule`."""
        if math.isnan(self._first_loss):
            self._first_loss = loss
        self._loss = loss

    def quorum(self) -> int:
        """See `QuorumRule`."""
        n_workers, first = self.n_workers, self._first
        if first == n_workers or math.isnan(self._first_loss):
            return first
        if not self._loss > 0:  # also if it is NaN
            return n_workers
        constant = first**2 / (n_workers - first) * self._first_loss / self._loss
        root = (math.sqrt(constant**2 + 4 * constant * n_workers) - constant) / 2
        return min(max(round(root), 1), n_workers)

    def numbers(self) -> Numbers:
        """See `QuorumRule`."""
        return {"loss": self._loss, "first_loss": self._first_loss}


def rule_of(sync: dict[str, Any], n_workers: int) -> QuorumRule | None:
    """The rule of a protocol, given as JSON; None if the quorum does not change or there is none."""
    if sync["kind"] == "dbw":
        return GainPerSecond(n_workers, sync["gain"])
    if sync["kind"] == "adasync":
        return FallingLoss(n_workers, sync["first"])
    return None
