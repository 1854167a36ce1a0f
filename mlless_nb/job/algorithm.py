"""Specifications of algorithms: what a worker contributes to a step and how all contributions are combined. Pure.

The arithmetic of each is in ``worker/algorithms``. A new algorithm is one file there: it registers its specification
(`register_algorithm`) and its implementation.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

from ..errors import JobError
from ..validation import specification

Kind = TypeVar("Kind", bound="type[Algorithm]")
_registered: dict[str, type[Algorithm]] = {}


class Algorithm:
    """Base of the specifications: a frozen dataclass whose fields are plain JSON; ``kind`` is its name in JSON.

    ``more_tables`` is the memory that a worker needs beside parameters, state and contribution, in tables of float32.
    """

    kind: ClassVar[str]
    more_tables: ClassVar[int] = 0

    def state_names(self, optimizer: Any) -> tuple[str, ...]:
        """Names of the tables, shaped like the parameters, that a worker keeps from step to step."""
        return ()

    def local_steps(self, job: Any) -> int:
        """Minibatches that a worker takes in a step of ``job``: as many as the job says, unless a step is an epoch."""
        n: int = job.local_steps
        return n

    def decided(self, job: Any, left_open: Collection[str]) -> dict[str, Any]:
        """Fields of ``job`` that the algorithm decides, by name; ``left_open`` are those that have a default value."""
        return {}

    def default_stop(self, job: Any) -> Any:
        """The `Stop` of a job with neither stop rule nor budget; None for a default number of epochs."""
        return None

    def check(self, job: Any) -> None:
        """Raise JobError if a setting of ``job`` (a TrainingJob) is incompatible with the algorithm."""

    def to_json(self) -> dict[str, Any]:
        """The algorithm as plain JSON."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


def register_algorithm(kind: Kind) -> Kind:
    """Class decorator that makes the `Algorithm` class ``kind`` known to jobs and functions."""
    _registered[kind.kind] = kind
    return kind


def algorithm_from_json(spec: dict[str, Any]) -> Algorithm:
    """The algorithm that ``to_json`` wrote; JobError for one that is not registered."""
    fields = dict(spec)
    if (kind := fields.pop("kind")) not in _registered:
        raise JobError("algorithm", kind, "one of " + ", ".join(repr(name) for name in sorted(_registered)))
    return _registered[kind](**fields)


@register_algorithm
@specification
@dataclass(frozen=True)
class GradientAveraging(Algorithm):
    """Every worker publishes the optimiser's update from its minibatch's gradient, and adds its peers' updates.

    With ``local_steps`` it takes several local steps first, and publishes the sum of their updates.

    References
    ----------
    MLLess (journal), section 3.2; LambdaML, section 3.1.
    """

    kind: ClassVar[str] = "gradient-averaging"

    def state_names(self, optimizer: Any) -> tuple[str, ...]:
        """The names of the optimiser's state."""
        names: tuple[str, ...] = optimizer.state_names
        return names

    def __str__(self) -> str:
        return "gradient averaging"
