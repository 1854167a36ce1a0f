"""The interface of a round policy: whom a worker waits for in a step, and when it applies the peers' updates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from ..protocol import Arrival, Coordinator, Exchanged, Frame, RoundRequest
from ..stats import Stats
from .gradient_spread import NOT_MEASURED, Spread

_Kind = TypeVar("_Kind", bound="type[RoundPolicy]")
_registered: dict[str, type[RoundPolicy]] = {}


@dataclass(frozen=True)
class CompletedRound:
    """A round whose updates are all applied, and the sums of its stats, added in slot order."""

    step: int
    epoch: float
    sums: Stats


class Updates(Protocol):
    """The methods of a replica that a policy calls: see `mlless_nb.worker.replica.Replica`."""

    params: Any

    def learning_rate(self, step: int) -> float:
        """The learning rate with which the update of ``step`` is made."""

    def encode(self, step: int, stats: Stats) -> bytes:
        """The frame of the own update that all peers read."""

    def apply(self, active: Sequence[int], frames: Sequence[Frame], stats: Stats) -> Stats:
        """Add the updates of ``active`` in slot order; returns the sums of their stats."""

    def apply_own(self) -> None:
        """Add the own update."""

    def apply_late(self, frame: Frame) -> Stats:
        """Add a peer's late update; returns its stats."""

    def encode_stats(self, step: int, stats: Stats) -> bytes:
        """A frame without values, to send ``stats`` in its header."""

    def average(self) -> None:
        """Average the replica of a leaving worker into this one."""

    def encode_parts(self, step: int, stats: Stats, active: list[int]) -> dict[int, bytes]:
        """One frame of the own update for each range, by the slot that merges the range."""

    def merge(self, active: list[int], own: bytes, frames: Sequence[Frame], step: int) -> tuple[bytes, Stats]:
        """The merged range of this slot as a frame, and the sums of all stats."""

    def merge_all(self, active: list[int], own: bytes, frames: Sequence[Frame], step: int) -> tuple[bytes, Stats]:
        """The sum of all updates as a frame whose stats are the sums of all stats, and these."""

    def apply_merged(self, active: list[int], own: bytes, frames: Sequence[Frame]) -> None:
        """Add the merged ranges, and the unsent part of the own update."""


class Step(Protocol):
    """One step as a policy sees it: the methods and values that the worker provides.

    Attributes
    ----------
    number : int
        1-based, of this run.
    active : list of int
        Slots that take part in the step.
    epoch : float
        Passes over the data after the step.
    stats : Stats
        Those of the own update.
    slot : int
    waited_s : float
        Seconds spent waiting for peers; the policy sets it.
    merged_bytes : int
        Size of the merged range that this worker published; the policy sets it.
    """

    number: int
    active: list[int]
    epoch: float
    stats: Stats
    slot: int
    waited_s: float
    merged_bytes: int

    def request(
        self,
        frame: bytes,
        *,
        kind: str = "",
        parts: dict[int, bytes] | None = None,
        publishers: list[int] | None = None,
    ) -> RoundRequest:
        """This worker's part in the step's round of ``kind``, in which ``publishers`` (None: all) publish.

        The first round ends the step's computation.
        """

    def reading(self) -> RoundRequest:
        """A part in the step's round that does not arrive there: to read its frames."""

    def exchange(self, request: RoundRequest) -> Exchanged:
        """Carry a round out, and take over what its arrival returned."""

    def learn(self, arrival: Arrival) -> None:
        """Take over the grant, the plan and the supervisor's lease from an arrival."""

    def pay(self) -> None:
        """Pay for waiting."""

    def is_last(self) -> bool:
        """Whether this step is the last one whatever the losses, as far as this worker knows."""

    def is_checkpoint(self) -> bool:
        """Whether every worker stores its state after this step, for which it has all updates up to this one."""

    def leaving(self) -> list[int]:
        """Slots whose last step is this one."""


class RoundPolicy(ABC):
    """How one worker waits for its peers.

    Parameters
    ----------
    log : Coordinator
    replica : Updates
    sync : Sync
        The protocol that names the policy.
    scatters : callable
        Returns whether a given number of active workers uses scatter-reduce.
    clock : callable
        Wall time, seconds.

    Attributes
    ----------
    is_lockstep : bool
        Whether all workers complete the same rounds at the same step, and therefore judge the same losses there.
    counts_all : bool
        Whether every round waits for all workers. If not, the coordinator says whose updates count (`Closing`).
    most_behind : int
        Steps that a worker may be behind the newest one that is complete.
    has_leader : bool
        Whether the first active worker merges all updates, and the others read their sum (AllReduce).
    spread : Spread
        That of the gradients of the newest step.
    """

    is_lockstep: ClassVar[bool] = True
    counts_all: ClassVar[bool] = True
    most_behind: ClassVar[int] = 0
    has_leader: bool = False

    def __init__(
        self,
        log: Coordinator,
        replica: Updates,
        sync: Any,
        scatters: Callable[[int], bool],
        clock: Callable[[], float],
    ) -> None:
        self.log, self.replica, self.sync, self.scatters, self.clock = log, replica, sync, scatters, clock
        self.spread: Spread = NOT_MEASURED

    def quorum(self, step: int, n_active: int) -> int:
        """How many updates (the first to arrive) a step waits for; here all. All workers must agree."""
        return n_active

    @property
    def retention(self) -> int:
        """Steps for which frames and arrivals are kept: see `RoundRequest`."""
        return 2

    @abstractmethod
    def exchange(self, step: Step) -> list[CompletedRound]:
        """Publish the update of ``step`` and apply the peers' updates that are due; returns the rounds completed."""

    def skip(self, step: Step) -> list[CompletedRound]:
        """Apply ``step`` if it has ended without this worker; returns its round, [] if the step is to be computed."""
        return []

    def state(self) -> list[int]:
        """What the rounds before a checkpoint have left, as JSON; all updates up to it are applied then."""
        return []

    def resume(self, state: list[int]) -> None:  # noqa: B027 - most have nothing
        """Go on from a `state`."""

    def staleness(self, step: int) -> int:
        """Age, in steps, of the oldest update that is not applied when ``step`` is computed."""
        return 0


def register_policy(name: str) -> Callable[[_Kind], _Kind]:
    """Class decorator: register a `RoundPolicy` under the ``name`` that protocols use (`Sync.policy`)."""

    def register(kind: _Kind) -> _Kind:
        _registered[name] = kind
        return kind

    return register


def policy_of(name: str) -> type[RoundPolicy]:
    """The policy registered as ``name``."""
    return _registered[name]
