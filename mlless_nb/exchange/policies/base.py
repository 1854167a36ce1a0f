"""What a round policy is: who waits for whom in a step, and when whose update is applied. Each is one file here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from ..protocol import Arrival, Coordinator, Exchanged, Frame, RoundRequest
from ..stats import Stats

_Kind = TypeVar("_Kind", bound="type[RoundPolicy]")
_registered: dict[str, type[RoundPolicy]] = {}


@dataclass(frozen=True)
class CompletedRound:
    """A round of which everything is applied, and the sums of all its stats, in slot order."""

    step: int
    epoch: float
    sums: Stats


class Updates(Protocol):
    """What a policy asks of a replica: see `mlless_nb.worker.replica.Replica`."""

    def encode(self, step: int, stats: Stats) -> bytes:
        """The frame of the own update for everybody."""

    def apply(self, active: Sequence[int], frames: Sequence[Frame], stats: Stats) -> Stats:
        """Add the updates of ``active`` in slot order; the sums of all their stats."""

    def apply_own(self) -> None:
        """Add the own update."""

    def apply_late(self, frame: Frame) -> Stats:
        """Add a peer's update; its stats."""

    def average(self) -> None:
        """Average in the replica of a worker that leaves."""

    def encode_parts(self, step: int, stats: Stats, active: list[int]) -> dict[int, bytes]:
        """Frames of the own update by range, for the slot that merges it."""

    def merge(self, active: list[int], own: bytes, frames: Sequence[Frame], step: int) -> tuple[bytes, Stats]:
        """The merged range of this slot as a frame, and the sums of all stats."""

    def apply_merged(self, active: list[int], own: bytes, frames: Sequence[Frame]) -> None:
        """Add the merged ranges, and what was not sent of the own update."""


class Step(Protocol):
    """One step as a policy sees it: what the worker lends it.

    Attributes
    ----------
    number : int
        1-based, of this run.
    active : list of int
        Slots that take part in it.
    epoch : float
        Passes over the data after it.
    stats : Stats
        Of the own update.
    slot : int
    waited_s : float
        Seconds that were waited for peers, which the policy adds up.
    merged_bytes : int
        Of the merged range that this worker published.
    """

    number: int
    active: list[int]
    epoch: float
    stats: Stats
    slot: int
    waited_s: float
    merged_bytes: int

    def request(self, frame: bytes, *, kind: str = "", parts: dict[int, bytes] | None = None) -> RoundRequest:
        """This worker's part in the round of ``kind`` of the step. The first one ends the step's computation."""

    def exchange(self, request: RoundRequest) -> Exchanged:
        """Carry a round out, and learn what arriving told."""

    def learn(self, arrival: Arrival) -> None:
        """Take note of the money, the plan and the supervisor's lease of an arrival."""

    def pay(self) -> None:
        """Pay for waiting."""

    def is_last(self) -> bool:
        """Whether this step is the last one whatever the losses, as far as this worker knows."""

    def leaving(self) -> list[int]:
        """Slots that take part for the last time in this step."""


class RoundPolicy(ABC):
    """How the workers of a job wait for each other, in one of them.

    Parameters
    ----------
    log : Coordinator
    replica : Updates
    sync : Sync
        The protocol that names the policy.
    scatters : callable
        Whether so many active workers scatter and reduce their updates.
    clock : callable
        Seconds that pass.

    Attributes
    ----------
    is_lockstep : bool
        Whether all workers have completed the same rounds at the same step, so that all judge the same losses there.
    """

    is_lockstep: ClassVar[bool] = True

    def __init__(
        self,
        log: Coordinator,
        replica: Updates,
        sync: Any,
        scatters: Callable[[int], bool],
        clock: Callable[[], float],
    ) -> None:
        self.log, self.replica, self.sync, self.scatters, self.clock = log, replica, sync, scatters, clock

    def quorum(self, step: int, n_active: int) -> int:
        """How many updates, the first ones, a step takes; all of them. A pure function: every worker says the same."""
        return n_active

    @property
    def retention(self) -> int:
        """Steps for which frames and arrivals are kept: see `RoundRequest`."""
        return 2

    @abstractmethod
    def exchange(self, step: Step) -> list[CompletedRound]:
        """Publish the update of ``step``, apply its peers' as far as they are due; the rounds completed by that."""

    def staleness(self, step: int) -> int:
        """How many steps the oldest update that is not applied is behind when ``step`` is computed."""
        return 0


def register_policy(name: str) -> Callable[[_Kind], _Kind]:
    """Make a `RoundPolicy` the one that protocols call ``name`` (`Sync.policy`): for the line above it."""

    def register(kind: _Kind) -> _Kind:
        _registered[name] = kind
        return kind

    return register


def policy_of(name: str) -> type[RoundPolicy]:
    """The policy registered as ``name``."""
    return _registered[name]
