"""The coordinator: one interface, its backends (`redis`, `storage`, `memory`) beside it.

A *round* is one exchange: ``"12"`` is step 12; a letter after the step names the further rounds of that step (`KINDS`).
When a worker publishes into a round, it also arrives at the round's barrier; the last arrival wakes the others. It
publishes one frame for all peers, or one for each receiver (`RoundRequest.parts`): a *scatter*. Every request is safe
to repeat: a frame, an arrival and a grant count once per (round, slot), however often they are sent.

Changes that every worker must make at the same step are announced in the *plan*, for a step that no worker has reached:
with ``m`` the latest step at which any worker has arrived, a stop takes effect after step ``m + 1`` and a scale-in from
step ``m + 2`` on. A worker that arrives at ``m + 1`` receives the new plan, so all workers know it in time, without
waiting. This also holds with bounded staleness, where workers are at different steps: ``m`` is the fastest worker's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ..money.request import BudgetRequest
from .frame_count import CountsFrames
from .plan import Plan
from .restarts import Restart
from .standing import NO_PAST, Past, Standing
from .step_report import LateArrival, Report, StepEntry

#: Seconds between two polls of the run's state while a worker waits.
WAIT_POLL_S = 0.2
#: Suffix of the step in a round's id: "" for the step itself, "m" for the merged ranges of a scatter-reduce, "r" for
#: residuals that are handed over, "p" for the ranges of parameters after adding them, "b" and "q" for the same two of
#: the best replicas, "e" and "f" for the evaluations of both, "c" for rows with one owner, at a checkpoint.
KINDS = ("", "m", "r", "p", "b", "q", "e", "f", "c")
#: A supervisor or worker must have started within so many leases.
START_LEASES = 6
#: A frame as it is read: a view is valid until the next exchange of the same coordinator.
Frame = bytes | memoryview
#: Names a broadcast frame: the round's id, and the slot that publishes it.
FrameKey = tuple[str, int]


class Closing(NamedTuple):
    """How a round of a quorum ended.

    ``slots``: the slots whose frames count, ascending. ``next_quorum``: the quorum that was announced for the next step
    when this one ended, the same for all workers; 0 if none was.
    """

    slots: list[int]
    next_quorum: int = 0


class Arrival(NamedTuple):
    """The answer to a worker that publishes.

    ``is_complete``: the round is complete, there is nothing to wait for. ``plan``: the plan if it is newer than the one
    the worker knows. ``granted_nusd``: money granted, nano-dollars. ``has_supervisor``: whether the supervisor's lease
    is alive. ``closing``: None if the frames of all count or the round is not complete. ``read_step``: with a quorum,
    the newest step whose frames all workers have read; 0 if that is not known.
    """

    is_complete: bool
    plan: Plan | None
    granted_nusd: int
    has_supervisor: bool
    closing: Closing | None = None
    read_step: int = 0


class Exchanged(NamedTuple):
    """A complete round: the answer to the arrival, the slots whose frames count, and the peers' frames among these.

    ``slots`` are ascending and ``frames`` in their order. The own slot may be in ``slots``; its frame is not returned.
    The frames may be views that are valid until the next exchange. ``published_at`` and ``complete_at`` are readings of
    ``time.monotonic`` when the arrival was acknowledged and when the round was complete, seconds. ``next_quorum`` is
    that of the `Closing`.
    """

    arrival: Arrival
    frames: list[Frame]
    published_at: float
    complete_at: float
    slots: list[int]
    next_quorum: int = 0


@dataclass
class RoundRequest:
    """One worker's part in a round. Treat it as frozen: it is not declared so because that doubles the time to make it.

    The round is complete when all ``publishers`` have arrived, or the first ``quorum`` of them if that is not 0. Then
    only the frames of these first ones count, and later arrivals are told which slots they are. A round of a quorum is
    not completed while a worker is more than ``most_behind`` steps behind, or, if that is less, ``kept_steps - 2``.
    ``waiters`` are the slots to wake. With a ``report``, the completed step becomes an entry of the step log.
    ``wanted`` is the money requested, ``known_plan`` the version of the plan that the worker knows.

    With ``parts``, the round is addressed: each worker reads the frames that its peers addressed to its slot. ``frame``
    and a part for this slot are not sent then; a worker that only reads passes {}. With None, all read ``frame``.

    Frames and arrivals are kept for ``kept_steps`` steps. A worker may be ``s`` steps ahead of the updates that it has
    read. When it publishes step t, all have arrived at step t - 1 - s and have read step t - 2 - 2 s. So ``kept_steps``
    is 2 + 2 s, which is 2 in lockstep. Frames of ``read_step`` and earlier are dropped at once.
    """

    round_id: str
    step: int
    slot: int
    publishers: list[int]
    waiters: list[int]
    frame: bytes
    report: Report | None
    wanted: BudgetRequest
    known_plan: int
    lease_s: float
    deadline_s: float
    parts: dict[int, bytes] | None = None
    kept_steps: int = 2
    quorum: int = 0
    read_step: int = 0
    most_behind: int = sys.maxsize
    # What follows is computed once: each is asked several times in a step.
    #: The publishers without this slot: it reads their frames.
    peers: list[int] = field(init=False)
    #: Number of arrivals that complete the round.
    n_due: int = field(init=False)
    #: Most steps that a worker may be behind for a round of a quorum to be completed.
    most_late: int = field(init=False)
    #: The newest step whose frames are dropped: all workers have read them.
    expired_step: int = field(init=False)
    #: Whether another slot waits for the round.
    is_awaited: bool = field(init=False)
    #: The receiver under which the peers' frames for this slot are kept.
    inbox: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.peers = self.publishers.copy()
        if self.slot in self.peers:
            self.peers.remove(self.slot)
        self.n_due = self.quorum or len(self.publishers)
        self.most_late = min(self.most_behind, self.kept_steps - 2)
        self.expired_step = max(self.step - self.kept_steps, self.read_step)
        self.is_awaited = bool(self.waiters) and self.waiters != [self.slot]
        self.inbox = None if self.parts is None else self.slot

    def read_slots(self, slots: list[int] | None) -> list[int]:
        """The peers among ``slots``, the slots whose frames count (None: all)."""
        return self.peers if slots is None else [slot for slot in slots if slot != self.slot]

    @property
    def outgoing(self) -> dict[int | None, bytes]:
        """The frames that this slot publishes, by receiver; the key None stands for all peers."""
        if self.parts is None:
            return {None: self.frame}
        return {receiver: frame for receiver, frame in self.parts.items() if receiver != self.slot}


class Coordinator(CountsFrames, Protocol):
    """The exchange of one job, as its workers, supervisor and driver see it."""

    # -- driver
    def create(self, *, cap_nusd: int | None, reserved_nusd: int, past: Past = NO_PAST) -> None:
        """Create the state of a new job, or again that of one whose data was lost, with what is known of its ``past``.

        ``reserved_nusd`` is for the functions' start and end.
        """

    def delete(self) -> int:
        """Remove all data of the job; returns the number of keys removed."""

    def now_s(self) -> float:
        """The coordinator's clock, seconds. The only clock that is compared between machines."""

    def renew(self, role: str, lease_s: float) -> None:
        """Keep the lease of ``role`` ("driver", "supervisor" or a slot's number) alive for ``lease_s`` seconds."""

    def alive(self, roles: list[str]) -> list[bool]:
        """Which of ``roles`` hold a lease."""

    def at_work(self, slots: list[int]) -> dict[int, str]:
        """The invocation that claimed each of ``slots``, for slots whose money is not settled yet (`refund`)."""

    def settled(self, slots: list[int]) -> set[int]:
        """Those of ``slots`` whose money is settled, because their functions have ended (`refund`)."""

    def bury(self, role: str) -> None:
        """End the lease of ``role``, whose function was found to have ended."""

    def restart(self) -> Restart:
        """The newest restart of the run; raises `LostData` if the job's data was lost."""

    def join(self, restart: Restart) -> None:
        """From now on take part in the rounds of ``restart``."""

    def roll_back(self, known: Restart, step: int, replaced: list[int], n_workers: int, origin: int = 0) -> Restart:
        """Let all ``n_workers`` go on from the checkpoint of ``step`` that was stored after the restart ``origin``.

        Every waiting worker raises `Restarted`. The slots of ``replaced`` can be claimed again. Returns the new one; if
        ``known`` is not the newest one, nothing is changed. Raises `LostData` if the job's data was lost, `Aborted` if
        the run was aborted.
        """

    def identities(self) -> list[str]:
        """What changes when a server is restarted, one for each: its data may be older then, or gone."""

    def standing(self, slots: list[int]) -> Standing:
        """Where the run stands, and who is `at_work` on ``slots``; raises `LostData` if the job's data was lost."""

    def release(self, slot: int) -> None:
        """Let another invocation claim ``slot`` (-1: the supervisor's), which is lost, while the others go on."""

    def hand_over(self, slot: int, step: int) -> None:
        """Let another one claim this invocation's ``slot`` and go on after ``step``; if it has done so, do nothing."""

    def read_plan(self) -> Plan:
        """The current plan."""

    def announce_checkpoint(self) -> Plan:
        """Let all workers store their state after the first step by which all of them know it."""

    def announce_leave(self, slots: list[int], command_id: str = "") -> Plan:
        """Let ``slots`` leave at the first step by which all know it, if they do not yet. A command counts once."""

    def announce_hand_over(self, slots: list[int]) -> Plan:
        """Let the functions of ``slots`` end after the next checkpoint, from which others that wait for them go on."""

    def announce_stop(self, status: str, reason: str) -> Plan:
        """End the run after the first step by which all workers know it. The first announced stop is valid."""

    def abort(self, reason: str, n_workers: int, status: str = "failed") -> None:
        """Abort the run now: every waiting worker raises `Aborted`. Status and reason of the first call are kept."""

    def aborted(self) -> tuple[str, str] | None:
        """Status and reason if the run was aborted, else None."""

    # -- money
    def money(self) -> tuple[int | None, int]:
        """The budget cap (None: no cap) and how much of it is reserved, nano-dollars."""

    def reserve(self, nusd: int, least_nusd: int | None = None, request_id: str = "") -> int:
        """Reserve ``nusd`` more of the budget, or at least ``least_nusd`` (None: ``nusd``), see `BudgetRequest.grant`.

        Returns the nano-dollars reserved, 0 if the cap does not allow ``least_nusd``. A repeated ``request_id`` gets
        the first answer again; "" stands for a new id. Raises `Aborted` if the job's data was lost.
        """

    def reserve_start(self, nusd: dict[int, int], request_id: str = "") -> bool:
        """Grant more nano-dollars, by slot, to functions that have not claimed their slot; False if the cap forbids it.

        It pays for functions that start later than was planned; once started, they reserve money themselves.
        ``request_id`` is as in `reserve`.
        """

    def start_grant(self, slot: int) -> int:
        """Nano-dollars that `reserve_start` granted ``slot``; to be called once the slot is claimed."""

    def refund(self, nusd: int, slot: int, part: int = 0) -> None:
        """Return ``nusd`` that were reserved for ``slot`` and not spent. It counts once per slot and part.

        Part 0 settles the slot's money: its function has ended.
        """

    def set_cap(self, cap_nusd: int) -> bool:
        """Set the cap; returns False, and changes nothing, if it is below the reserved amount."""

    # -- worker
    def claim(self, slot: int) -> bool:
        """Take ``slot`` for this invocation; False when another invocation has it."""

    def publish(self, part: RoundRequest) -> Arrival:
        """Publish the frames, arrive at the round's barrier, renew the lease and request money, in one call.

        Frames and arrivals older than `RoundRequest.kept_steps` are dropped: all workers have read them.
        """

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> Closing | None:
        """Wait until the round is complete, at most ``part.deadline_s`` seconds; returns `Arrival.closing`.

        ``pay`` is called every `WAIT_POLL_S` seconds: waiting costs money too.

        Raises
        ------
        Aborted
            When the run is aborted or the deadline passes.
        Restarted
            When the run goes on from a checkpoint, as every method of a round.
        """

    def frames(self, part: RoundRequest, slots: list[int] | None = None) -> list[Frame]:
        """The peers' frames that count in a complete round, in slot order; raises `LostData` if one is missing."""

    def exchange(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        """`publish`, `wait` and `frames` of a round, in as few round trips as the backend allows."""

    def publish_and_poll(self, part: RoundRequest, keys: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        """`publish`, then the frames of ``keys`` in their order, None for one that is not published; does not wait."""

    def wait_for_any(self, part: RoundRequest, keys: Sequence[FrameKey], pay: Callable[[], None]) -> list[Frame | None]:
        """Wait, as `wait` does, until a frame of ``keys`` is published; returns what `publish_and_poll` does."""

    def catch_up(self, part: RoundRequest) -> tuple[Arrival, list[Closing]]:
        """The rounds of a quorum from that of ``part`` on that are complete already, in the order of their steps.

        Does not arrive. For a worker that has read all earlier rounds. The list may end before the newest complete one.
        Raises `Aborted` also if the worker is so late that the round is no longer kept.
        """

    def put_model(self, frame: bytes) -> None:
        """Replace the model that all workers share (`mlless_nb.ASP`); the last write wins."""

    def get_model(self) -> Frame | None:
        """The shared model, None before the first `put_model`."""

    # -- supervisor
    def announce_quorum(self, quorum: int) -> None:
        """Set the quorum that the rounds to come return as `Closing.next_quorum`."""

    def read_late(self) -> list[LateArrival]:
        """Late arrivals that the calls of `read_steps` met since the last call, oldest first."""

    def read_steps(self, timeout_s: float) -> list[StepEntry]:
        """Steps completed since the last call, oldest first; [] if none was completed within ``timeout_s`` seconds.

        When a worker leaves under bounded staleness, the first step without it may be complete before its last step.
        """


#: The key of the shared model, as one of a frame: no round has this id.
MODEL = ("model", 0, None)


def with_own(slots: Sequence[int], slot: int, own: Frame, frames: Sequence[Frame]) -> list[Frame]:
    """The frame ``own`` of ``slot`` and its peers' ``frames``, in the order of ``slots``."""
    rest = iter(frames)
    return [own if one == slot else next(rest) for one in slots]


def key_prefix(job_id: str) -> str:
    """The prefix of every key of a job; by the part in braces all lie on one server of a Redis in cluster mode."""
    return f"mlless:{{{job_id}}}:"


def frame_key(prefix: str, round_id: str, slot: int, receiver: int | None) -> str:
    """The key under which the frame of ``slot`` for ``receiver`` (None: for all) is kept."""
    return f"{prefix}frame:{round_id}:{slot}" if receiver is None else f"{prefix}frame:{round_id}:{slot}>{receiver}"


def frame_keys(prefix: str, round_id: str, slots: Sequence[int], receiver: int | None) -> list[str]:
    """The `frame_key` of each of ``slots``."""
    begin, end = f"{prefix}frame:{round_id}:", "" if receiver is None else f">{receiver}"
    return [f"{begin}{slot}{end}" for slot in slots]
