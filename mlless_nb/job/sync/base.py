"""The interface of a synchronisation protocol, and the registry of protocols. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar, TypeVar

from ...errors import JobError
from ...validation import is_integer

#: The largest staleness: frames are kept for twice as many steps, and a worker that far ahead learns little.
MOST_STALENESS = 100


def check_staleness(kind: str, value: Any) -> None:
    """Raise JobError unless ``value`` is a valid staleness of the protocol ``kind``."""
    if not is_integer(value) or not 0 <= value <= MOST_STALENESS:
        raise JobError(f"{kind}.staleness", value, f"an integer between 0 and {MOST_STALENESS}, e.g. 3")


Kind = TypeVar("Kind", bound="type[Sync]")
_registered: dict[str, type[Sync]] = {}


class Sync:
    """Base of the protocols: a frozen dataclass whose fields are plain JSON.

    Attributes
    ----------
    kind : str
        The protocol's name in JSON.
    form : str
        How a job writes it, for messages.
    policy : str
        The name of its round policy.
    filters : bool
        Whether a significance filter keeps part of an update in a residual.
    counts_all : bool
        Whether every step applies the updates of all workers, so that workers may own users and ranges of rows.
    averages : bool or "paper"
        Whether the remaining workers average in the replica of a worker that leaves.
    staleness : int
        Steps that a worker may be ahead of the newest peers' updates that it has applied.
    """

    kind: ClassVar[str]
    form: ClassVar[str]
    filters: ClassVar[bool] = False
    counts_all: ClassVar[bool] = True
    averages: bool | str = False
    staleness: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether, when a step ends, every worker has applied the updates of all workers for it."""
        return self.counts_all and not self.staleness

    @property
    def waits_for_slowest(self) -> bool:
        """Whether the slowest worker holds up the others, at once or once they are ``staleness`` steps ahead."""
        return self.counts_all

    @property
    def policy(self) -> str:
        """The name of the round policy that implements the protocol."""
        return "stale" if self.staleness else "lockstep"

    def threshold_at(self, step: int) -> float:
        """Significance threshold at ``step`` (1-based); 0: everything is significant."""
        return 0.0

    def rate_factor(self, epoch: float) -> float:
        """Factor of the learning rate after ``epoch`` passes over the data, a fraction."""
        return 1.0

    def check(self, job: Any) -> None:
        """Raise JobError if a setting of ``job`` (a TrainingJob) is incompatible with the protocol.

        Unless ``job.is_counted``, nothing is known of its rows, and an optimiser that was left open is None.
        """

    def to_json(self) -> dict[str, Any]:
        """The protocol as plain JSON."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


def register_sync(kind: Kind) -> Kind:
    """Class decorator that makes the `Sync` class ``kind`` known to jobs and functions."""
    _registered[kind.kind] = kind
    if "form" not in vars(kind):
        kind.form = f"{kind.__name__}(...)"
    return kind


def registered_syncs() -> dict[str, type[Sync]]:
    """The registered protocols, by kind."""
    return dict(_registered)


def sync_from_json(spec: dict[str, Any]) -> Sync:
    """The protocol that ``to_json`` wrote; JobError for one that is not registered."""
    fields = dict(spec)
    if (kind := fields.pop("kind")) not in _registered:
        raise JobError("sync", kind, "one of " + ", ".join(repr(name) for name in sorted(_registered)))
    return _registered[kind](**fields)
