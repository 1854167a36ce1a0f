"""Specifications of algorithms: what a worker contributes to a step and how all contributions are combined. Pure.

A new algorithm is two files: a specification in this folder (`register_algorithm`), and an implementation in
``worker/algorithms``, which has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

from ..errors import JobError
from ..validation import specification

Kind = TypeVar("Kind", bound="type[Algorithm]")
_registered: dict[str, type[Algorithm]] = {}


class DecidedSteps(int):
    """A number of local steps that an algorithm decided, not the user.

    ``dataclasses.replace`` hands it to the new job, whose algorithm decides anew.
    """


class Algorithm:
    """Base of the specifications: a frozen dataclass whose fields are plain JSON.

    Attributes
    ----------
    kind : str
        The algorithm's name in JSON.
    form : str
        How a job writes it, for messages.
    takes_whole_shards : bool
        Whether a step takes all minibatches of a worker's shard, which are the same ones in every step.
    is_state_local : bool
        Whether each worker's state differs and goes on in this worker only. The progress of a run then has the tables
        of every worker; else it has their mean.
    n_work_tables : int
        Tables of the size of the parameters that a worker needs besides the state and the update.
    """

    kind: ClassVar[str]
    form: ClassVar[str]
    takes_whole_shards: ClassVar[bool] = False
    is_state_local: ClassVar[bool] = False
    n_work_tables: ClassVar[int] = 0

    @property
    def passes(self) -> int:
        """Passes of a step over its minibatches."""
        return 1

    def state_names(self, optimizer: Any) -> tuple[str, ...]:
        """Names of the tables, shaped like the parameters, that a worker keeps from step to step."""
        return ()

    def given_steps(self, job: Any) -> int:
        """The local steps that are known before the minibatch and the workers of ``job`` are decided.

        Raises JobError if the user gives ``local_steps`` to an algorithm that decides them.
        """
        return 1 if isinstance(job.local_steps, DecidedSteps) else int(job.local_steps)

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
        """Raise JobError if a setting of ``job`` (a TrainingJob) is incompatible with the algorithm.

        Unless ``job.is_counted``, nothing is known of its rows, and an optimiser that was left open is None.
        """

    def goes_on_from(self, earlier: dict[str, Any]) -> bool:
        """Whether a run can use the state of a run whose algorithm was ``earlier``, as JSON."""
        return bool(earlier["kind"] == self.kind)

    def to_json(self) -> dict[str, Any]:
        """The algorithm as plain JSON."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


def refuse_given_steps(job: Any, algorithm: str) -> None:
    """Raise JobError if the user gave ``job`` local steps, which ``algorithm`` decides."""
    if job.local_steps != 1 and not isinstance(job.local_steps, DecidedSteps):
        raise JobError("local_steps", job.local_steps, f"left out with {algorithm}, which decides them")


def register_algorithm(kind: Kind) -> Kind:
    """Class decorator that makes the `Algorithm` class ``kind`` known to jobs and functions."""
    _registered[kind.kind] = kind
    if "form" not in vars(kind):
        kind.form = f"{kind.__name__}(...)"
    return kind


def registered_algorithms() -> dict[str, type[Algorithm]]:
    """The registered algorithms, by kind."""
    return dict(_registered)


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
    form: ClassVar[str] = "GradientAveraging()"

    def state_names(self, optimizer: Any) -> tuple[str, ...]:
        """The names of the optimiser's state."""
        names: tuple[str, ...] = optimizer.state_names
        return names

    def __str__(self) -> str:
        return "gradient averaging"
