"""What the settings of a sweep are drawn from: `choice`, `uniform`, `log_uniform`, `integer`. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..errors import JobError
from ..validation import is_integer, is_number, plain

#: Most values of a choice, and most combinations of a grid.
MOST_OPTIONS, MOST_GRID = 100, 10_000


class Suggests(Protocol):
    """What draws values: a trial of Optuna's."""

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """One of ``choices``."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """A number from ``low`` to ``high``."""

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        """An integer from ``low`` to ``high``."""


class Space:
    """What a setting is drawn from."""

    @property
    def edges(self) -> list[Any]:
        """The values with which a job is tried before anything is launched."""
        raise NotImplementedError

    @property
    def grid(self) -> list[Any] | None:
        """All values as the sampler knows them; None if there is no end of them."""
        return None

    def drawn(self, name: str, by: Suggests) -> Any:
        """A value of the setting ``name``, drawn ``by`` a trial."""
        raise NotImplementedError

    def is_like(self, other: Space) -> bool:
        """Whether the sampler cannot tell it from ``other``."""
        return self == other


@dataclass(frozen=True)
class Choice(Space):
    """One of several values of any kind; see `choice`."""

    options: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.options) <= MOST_OPTIONS:
            raise JobError("choice", len(self.options), f"of 1 to {MOST_OPTIONS} values, e.g. choice(0.1, 0.03, 0.01)")
        if len(set(self.grid)) < len(self.options):
            raise JobError("choice", self.options, "of values that differ")

    @property
    def edges(self) -> list[Any]:
        """See `Space`."""
        return list(self.options)

    @property
    def grid(self) -> list[Any]:
        """See `Space`."""
        # what is no plain value may hold other settings, and differ from trial to trial: it is known by its place
        are_plain = [isinstance(each, (str, int, float, type(None))) for each in self.options]
        return [
            each if is_plain else f"{type(each).__name__} {place}"
            for place, (each, is_plain) in enumerate(zip(self.options, are_plain, strict=True))
        ]

    def drawn(self, name: str, by: Suggests) -> Any:
        """See `Space`."""
        return self.options[self.grid.index(by.suggest_categorical(name, self.grid))]

    def is_like(self, other: Space) -> bool:
        """See `Space`."""
        return isinstance(other, Choice) and self.grid == other.grid


@dataclass(frozen=True)
class Number(Space):
    """A number between two others; see `uniform`, `log_uniform` and `integer`."""

    low: float
    high: float
    is_log: bool = False
    is_whole: bool = False

    def __post_init__(self) -> None:
        kind = "integer" if self.is_whole else "log_uniform" if self.is_log else "uniform"
        is_right = is_integer if self.is_whole else is_number
        noun = "integers" if self.is_whole else "finite numbers"
        for value in (self.low, self.high):
            if not is_right(value):
                raise JobError(kind, value, f"two {noun}, e.g. {kind}({'1, 8' if self.is_whole else '0.01, 1.0'})")
        if self.low >= self.high:
            raise JobError(kind, (self.low, self.high), "two numbers, the lower one first")
        if self.is_log and self.low <= 0:
            raise JobError(kind, self.low, "numbers > 0")

    @property
    def edges(self) -> list[Any]:
        """See `Space`."""
        return [self.low, self.high]

    @property
    def grid(self) -> list[Any] | None:
        """See `Space`."""
        if self.is_whole and self.high - self.low < MOST_OPTIONS and not self.is_log:
            return list(range(int(self.low), int(self.high) + 1))
        return None

    def drawn(self, name: str, by: Suggests) -> Any:
        """See `Space`."""
        if self.is_whole:
            return by.suggest_int(name, int(self.low), int(self.high), log=self.is_log)
        value = by.suggest_float(name, float(self.low), float(self.high), log=self.is_log)
        # the value that is shown is the value that is used
        return min(max(float(f"{value:.4g}"), float(self.low)), float(self.high))


def choice(*options: Any) -> Choice:
    """One of ``options``, for a setting of a sweep: values of any kind, or one list of them.

    Examples
    --------
    >>> choice(0.1, 0.03, 0.01)
    Choice(options=(0.1, 0.03, 0.01))
    """
    listed = options[0] if len(options) == 1 and isinstance(options[0], (list, tuple, range, np.ndarray)) else options
    return Choice(tuple(plain(each) for each in listed))


def uniform(low: float, high: float) -> Number:
    """A number from ``low`` to ``high``, all of them alike, for a setting of a sweep."""
    return Number(plain(low), plain(high))


def log_uniform(low: float, high: float) -> Number:
    """A number from ``low`` > 0 to ``high``, whose logarithms are alike: for rates and penalties."""
    return Number(plain(low), plain(high), is_log=True)


def integer(low: int, high: int, *, log: bool = False) -> Number:
    """An integer from ``low`` to ``high``, both included; with ``log`` the logarithms are alike."""
    return Number(plain(low), plain(high), is_log=bool(log), is_whole=True)


def combinations(spaces: Mapping[str, Space]) -> list[dict[str, Any]] | None:
    """All combinations of values as the sampler knows them; None if there is no end of them, or too many."""
    size, lists = 1, []
    for space in spaces.values():
        if space.grid is None or (size := size * len(space.grid)) > MOST_GRID:
            return None
        lists.append(space.grid)
    return [dict(zip(spaces, values, strict=True)) for values in itertools.product(*lists)]
