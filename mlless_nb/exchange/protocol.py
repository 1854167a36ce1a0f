"""The coordinator: one interface, its backends (`redis`, `memory`) beside it.

A *round* is one exchange: ``"12"`` is step 12; a letter behind the step tells the further rounds of it apart (`KINDS`).
A worker publishes into a round, which is also its arrival at the barrier; whoever arrives last wakes the rest. It
publishes one frame for everybody, or one for each receiver (`RoundRequest.parts`): a *scatter*. Everything is safe to
repeat: a frame, an arrival and a grant count once per (round, slot), however often they are sent.

Changes that every worker must make at the same step are announced in the *plan*, for a step that no worker has reached:
with ``m`` the latest step anybody has arrived at, a stop takes effect after step ``m + 1`` and a departure from step
``m + 2`` on. Whoever arrives at ``m + 1`` is handed the new plan, so all of them know in time, without waiting. This
holds with bounded staleness too, where workers are at different steps: ``m`` is the fastest one's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ..money.request import BudgetRequest
from .step_report import Report

#: Seconds between two looks at the state of the run while a worker waits.
WAIT_POLL_S = 0.2
#: What may follow the step in a round's id: nothing for the step itself, "m" for the merged ranges of a scatter-reduce,
#: "r" for residuals that are handed over, "p" for ranges of parameters that they were added to, "b" and "q" for the
#: same of the best replicas, "e" and "f" for the evaluations of both, "c" for rows with one owner, at a checkpoint.
KINDS = ("", "m", "r", "p", "b", "q", "e", "f", "c")
#: Leases within which a supervisor, or a worker, is to have started.
START_LEASES = 6
#: A frame as it is read: a view is valid until the next exchange of the same log.
Frame = bytes | memoryview
#: A frame that is looked for: the round's id, and the slot that publishes it there for everybody.
FrameKey = tuple[str, int]


class Aborted(Exception):  # noqa: N818 - it is how a run ends, not a mistake
    """The run was called off; the message says why, ``status`` how it counts."""

    def __init__(self, reason: str, status: str = "failed") -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Plan:
    """Who takes part in which step, and when it all ends.

    ``leaves[slot]`` is the first step that ``slot`` takes no part in; ``stop_after`` the last step of all.
    """

    version: int = 0
    leaves: dict[int, int] = field(default_factory=dict)
    stop_after: int | None = None
    stop_status: str = ""
    stop_reason: str = ""

    def active(self, step: int, n_workers: int) -> list[int]:
        """Slots that take part in ``step`` (1-based), ascending."""
        if not self.leaves:
            return list(range(n_workers))
        return [slot for slot in range(n_workers) if self.leaves.get(slot, step + 1) > step]

    @staticmethod
    def decode(text: str | bytes) -> Plan:
        """The plan from the JSON that the coordinator keeps."""
        spec: dict[str, Any] = json.loads(text) if text else {}
        return Plan(
            int(spec.get("version", 0)),
            {int(slot): int(step) for slot, step in (spec.get("leaves") or {}).items()},
            spec.get("stop_after"),
            spec.get("stop_status", ""),
            spec.get("stop_reason", ""),
        )


class Arrival(NamedTuple):
    """What a worker learns from publishing.

    ``is_complete``: as many as it takes have arrived, there is nothing to wait for. ``plan``: the plan when it is newer
    than the one the worker knows. ``granted_nusd``: money granted. ``has_supervisor``: whether the supervisor's lease
    is alive. ``slots``: whose frames count, ascending, once the round is complete and that is not everybody.
    """

    is_complete: bool
    plan: Plan | None
    granted_nusd: int
    has_supervisor: bool
    slots: list[int] | None = None


class Exchanged(NamedTuple):
    """A complete round: what the worker learnt from arriving, whose frames count, and those of them that are peers'.

    ``slots`` are ascending, and ``frames`` in their order; the own slot may be among them, its frame is not.
    The frames may be views that are valid until the next exchange. ``published_at`` and ``complete_at`` are readings of
    ``time.monotonic``: the arrival was acknowledged, the round was complete.
    """

    arrival: Arrival
    frames: list[Frame]
    published_at: float
    complete_at: float
    slots: list[int]


@dataclass
class RoundRequest:
    """One worker's part in a round; nobody changes it, but one is made every step, and freezing takes as long again.

    The round is complete when all ``publishers`` have arrived, or the first ``quorum`` of them where that is not 0:
    theirs are the frames that count then, and who arrives later is told so. ``waiters`` are woken. A ``report`` makes
    the completed step an entry of the log. ``wanted`` is the money asked for, ``known_plan`` the version of the plan
    that the worker knows.

    ``parts`` makes it an addressed round: frames by receiver's slot, kept one by one, of which everybody reads those
    that the peers addressed to it; ``frame`` goes to nobody then, nor does a part for this slot. Who only reads says so
    with an empty dict. None: everybody reads ``frame``.

    Frames and arrivals are kept for ``kept_steps`` steps. Whoever publishes step t has read all that is due, step
    t - 1 - s at the least, so all have arrived there; and whoever arrived there has read step t - 2 - 2 s, with s the
    steps that a worker may be ahead of what it has read. So it is 2 in lockstep, and 2 s more where s is not 0.
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
    #: The publishers but this slot: whose frames it reads.
    peers: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.peers = [slot for slot in self.publishers if slot != self.slot]

    @property
    def n_due(self) -> int:
        """Arrivals that complete the round."""
        return self.quorum or len(self.publishers)

    def read_slots(self, slots: list[int] | None) -> list[int]:
        """The peers whose frames count, where ``slots`` do (None: everybody's)."""
        return self.peers if slots is None else [slot for slot in slots if slot != self.slot]

    @property
    def is_awaited(self) -> bool:
        """Whether anybody but this slot waits for the round."""
        return self.waiters != [self.slot] and bool(self.waiters)

    @property
    def outgoing(self) -> dict[int | None, bytes]:
        """What this slot publishes, by receiver; None stands for all of them."""
        if self.parts is None:
            return {None: self.frame}
        return {receiver: frame for receiver, frame in self.parts.items() if receiver != self.slot}

    @property
    def inbox(self) -> int | None:
        """The receiver under which the peers' frames for this slot are kept."""
        return None if self.parts is None else self.slot


@dataclass(frozen=True)
class StepEntry:
    """A completed step in the log: when (seconds, the log's clock) and each slot's report."""

    step: int
    at_s: float
    reports: dict[int, Report]


class Coordinator(Protocol):
    """The exchange of one job, as its workers, supervisor and driver see it."""

    # -- driver
    def create(self, *, cap_nusd: int | None, reserved_nusd: int) -> None:
        """Begin the log of a new job. ``reserved_nusd`` is what the functions are given to start and end on."""

    def delete(self) -> int:
        """Remove everything of the job; returns how many keys there were."""

    # -- anyone
    def now_s(self) -> float:
        """The log's clock, seconds. The only clock compared between machines."""

    def renew(self, role: str, lease_s: float) -> None:
        """Keep the lease of ``role`` ("driver", "supervisor" or a slot's number) alive for ``lease_s`` seconds."""

    def alive(self, roles: list[str]) -> list[bool]:
        """Which of ``roles`` hold a lease."""

    def at_work(self, slots: list[int]) -> dict[int, str]:
        """Which of ``slots`` were claimed and have not settled their money (`refund`), and by which invocation."""

    def bury(self, role: str) -> None:
        """End the lease of ``role``: it was seen to be gone."""

    def read_plan(self) -> Plan:
        """The plan now."""

    def announce_leave(self, slots: list[int]) -> Plan:
        """Let ``slots`` leave as soon as all can know of it; slots that leave already are passed over."""

    def announce_stop(self, status: str, reason: str) -> Plan:
        """End the run as soon as all can know of it; the first stop announced stands."""

    def abort(self, reason: str, n_workers: int, status: str = "failed") -> None:
        """Call the run off now: every waiting worker raises `Aborted`. The first to call it off gives the reason."""

    def aborted(self) -> tuple[str, str] | None:
        """Status and reason with which the run was called off, None while it was not."""

    # -- money
    def money(self) -> tuple[int | None, int]:
        """The cap (None: no cap) and what is reserved of it, nano-dollars."""

    def reserve(self, nusd: int, least_nusd: int | None = None, request_id: str = "") -> int:
        """Take ``nusd`` more out of the budget, or at least ``least_nusd`` (None: all), as `BudgetRequest.grant` says.

        Returns how much was taken, 0 when the cap does not allow the least of it. A request with the same
        ``request_id`` as one before takes nothing and gets the same answer; "" stands for an id of its own. `Aborted`
        when the job's data is gone.
        """

    def reserve_start(self, nusd: dict[int, int], request_id: str = "") -> bool:
        """Grant functions so much more, by slot, as long as they have not claimed it; False when the cap is in the way.

        They start later than was paid for; once they have begun they pay for themselves. ``request_id`` as of
        `reserve`.
        """

    def start_grant(self, slot: int) -> int:
        """What `reserve_start` granted ``slot``, nano-dollars; for who has claimed it."""

    def refund(self, nusd: int, slot: int, part: int = 0) -> None:
        """Give back ``nusd`` that were reserved for ``slot`` and not spent; counts once a slot and part.

        Part 0 settles its money: the function has ended.
        """

    def set_cap(self, cap_nusd: int) -> bool:
        """Set the cap; False, and nothing changed, when it is below what is reserved."""

    # -- worker
    def claim(self, slot: int) -> bool:
        """Take ``slot`` for this invocation; False when another invocation has it."""

    def publish(self, part: RoundRequest) -> Arrival:
        """Publish the frames, arrive at the round's barrier, renew the lease and ask for money, in one go.

        Frames and arrivals of `RoundRequest.kept_steps` before are dropped: all have read them.
        """

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> list[int] | None:
        """Wait until the round is complete, at most ``part.deadline_s`` seconds; returns `Arrival.slots`.

        ``pay`` is called every `WAIT_POLL_S` seconds: waiting costs money too.

        Raises
        ------
        Aborted
            When the run is called off or the deadline passes.
        """

    def frames(self, part: RoundRequest, slots: list[int] | None = None) -> list[Frame]:
        """The peers' frames in a complete round, in slot order, of those that count; `Aborted` when one is missing."""

    def exchange(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        """`publish`, `wait` and `frames` of a round, in as few round trips as the backend can."""

    def publish_and_poll(self, part: RoundRequest, sought: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        """`publish`, and those frames of ``sought`` that are there, in its order; None for the others. Does not wait.

        In one round trip where the backend can.
        """

    def wait_for_any(
        self, part: RoundRequest, sought: Sequence[FrameKey], pay: Callable[[], None]
    ) -> list[Frame | None]:
        """Wait, as `wait` does, until a frame of ``sought`` is there; the frames as of `publish_and_poll`."""

    # -- supervisor
    def read_steps(self, timeout_s: float) -> list[StepEntry]:
        """Steps completed since the last call, oldest first; [] when none was within ``timeout_s`` seconds.

        Where one leaves under bounded staleness, a step without it may be complete before the last one with it.
        """


def key_prefix(job_id: str) -> str:
    """What every key of a job begins with, on Redis and in a frame store."""
    return f"mlless:{job_id}:"


def frame_key(prefix: str, round_id: str, slot: int, receiver: int | None) -> str:
    """The key under which the frame of ``slot`` for ``receiver`` (None: for all) is kept."""
    return f"{prefix}frame:{round_id}:{slot}" if receiver is None else f"{prefix}frame:{round_id}:{slot}>{receiver}"


class Exchanges(Protocol):
    """The part of a `Coordinator` that exchanges rounds."""

    def publish(self, part: RoundRequest) -> Arrival:
        """See `Coordinator`."""

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> list[int] | None:
        """See `Coordinator`."""

    def frames(self, part: RoundRequest, slots: list[int] | None = None) -> list[Frame]:
        """See `Coordinator`."""


def exchange_in_parts(log: Exchanges, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
    """A round as three calls, where a backend knows no shorter way."""
    arrival = log.publish(part)
    published_at, slots = time.monotonic(), arrival.slots
    if not arrival.is_complete:
        slots = log.wait(part, pay)
    complete_at = time.monotonic()
    frames = log.frames(part, slots) if part.read_slots(slots) else []
    return Exchanged(arrival, frames, published_at, complete_at, part.publishers if slots is None else slots)
