"""The state of one job that its coordinators in memory share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from ..money.request import BudgetRequest
from .plan import Plan
from .protocol import KINDS
from .quorum_rounds import QuorumRounds
from .restarts import Restart
from .slots import role_of
from .standing import Past
from .step_report import Report, StepEntry


@dataclass
class MemoryHub:
    """The state that the coordinators of one job share."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    is_lost: bool = False  # whether the job's data is gone, as from a server that was emptied
    identity: str = "memory"  # changes when the server is restarted
    cap: int | None = None
    reserved: int = 0
    latest: int = 0
    plan: Plan = field(default_factory=Plan)
    restart: Restart = field(default_factory=Restart)
    aborted: tuple[str, str] | None = None
    frames: dict[tuple[str, int, int | None], bytes] = field(default_factory=dict)
    arrivals: dict[str, dict[int, Report | None]] = field(default_factory=dict)
    quorum: QuorumRounds = field(default_factory=QuorumRounds)
    grants: dict[tuple[str, int], int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)  # to budget requests, by their ids
    started_late: dict[int, int] = field(default_factory=dict)
    refunded: set[tuple[int, int]] = field(default_factory=set)
    claims: dict[int, str] = field(default_factory=dict)
    leases: dict[str, float] = field(default_factory=dict)
    steps: list[StepEntry] = field(default_factory=list)
    n_past_steps: int = 0  # entries of the step log that were lost with the data, or dropped
    kept_steps: int = 10_000  # newest entries of the step log that are kept, as on the servers

    def lose(self) -> None:
        """Lose all data of the job; every waiting worker learns of it."""
        with self.changed:
            n_past = self.n_past_steps + len(self.steps)
            for one in fields(MemoryHub):
                if one.name not in ("changed", "identity", "n_past_steps", "kept_steps"):
                    made = one.default_factory
                    setattr(self, one.name, one.default if made is MISSING else made())
            self.is_lost, self.n_past_steps = True, n_past
            self.changed.notify_all()

    def create(self, cap: int | None, reserved: int, past: Past) -> None:
        """Create the job's data, with what is known of its ``past``."""
        with self.changed:
            self.cap, self.reserved, self.restart, self.plan = cap, reserved, past.restart, past.plan
            self.latest, self.quorum = past.restart.step, QuorumRounds(past.restart.step)
            for entry in past.steps:
                self.log_step(entry)
            self.is_lost = False
            self.changed.notify_all()

    def log_step(self, entry: StepEntry) -> None:
        """Add a complete step to the step log."""
        self.steps.append(entry)
        if len(self.steps) > self.kept_steps:
            del self.steps[0]
            self.n_past_steps += 1

    def announce(self, **changes: Any) -> None:
        """Replace fields of the plan under a new version, unless the job's data is lost."""
        if self.is_lost:
            return
        with self.changed:
            self.plan = replace(self.plan, version=self.plan.version + 1, **changes)
            self.changed.notify_all()

    def announce_leave(self, slots: list[int], command_id: str) -> Plan:
        """Announce that ``slots`` leave, as the user's command ``command_id`` says if that is not ""; returns the plan.

        A command that is in the plan changes nothing.
        """
        plan = self.plan
        leaves = {slot: self.latest + 2 for slot in slots if slot not in plan.leaves}
        asked = {command_id: slots} if command_id else {}
        if (leaves or asked) and command_id not in plan.asked:
            self.announce(leaves={**plan.leaves, **leaves}, asked={**plan.asked, **asked})
        return self.plan

    def announce_checkpoint(self) -> Plan:
        """Announce a checkpoint for a step that no worker has reached; returns the plan.

        One for the newest step or the next one stays: some workers may know of it, and the others must learn of it. One
        that lies further ahead is from before a restart, and would come late: nobody gets there without this plan.
        """
        if not self.plan.checkpoint or not self.latest <= self.plan.checkpoint <= self.latest + 1:
            self.announce(checkpoint=self.latest + 1)
        return self.plan

    def announce_hand_over(self, slots: list[int]) -> Plan:
        """Announce that the functions of ``slots`` hand over after the next checkpoint; returns the plan.

        Those that do so after the newest step or a later one keep theirs: a restart forgets them.
        """
        step, announced = self.latest + 1, self.plan.hand_overs
        more = {slot: step for slot in slots if not announced.get(slot) or announced[slot] < self.latest}
        if more:
            self.announce(checkpoint=step, hand_overs={**announced, **more})
        return self.plan

    def roll_back(self, step: int, replaced: list[int], origin: int = 0) -> None:
        """Begin a new restart at ``step``, without the rounds so far; ``replaced`` slots can be claimed again."""
        self.restart, self.latest = Restart(self.restart.number + 1, step, origin), step
        self.frames.clear()
        self.arrivals.clear()
        self.grants.clear()
        self.quorum = QuorumRounds(step, self.quorum.announced)
        if self.plan.hand_overs or self.plan.handed_over:
            self.announce(hand_overs={}, handed_over={})
        for slot in replaced:
            self.release(slot)
        with self.changed:
            self.changed.notify_all()

    def hand_over(self, slot: int, step: int) -> None:
        """Let another invocation claim ``slot`` and go on after ``step``."""
        self.announce(handed_over={**self.plan.handed_over, slot: step})
        self.release(slot)

    def release(self, slot: int) -> None:
        """Let another invocation claim ``slot``."""
        self.claims.pop(slot, None)
        self.leases.pop(role_of(slot), None)
        self.started_late.pop(slot, None)
        self.refunded = {one for one in self.refunded if one[0] != slot}

    def forget(self, step: int, slot: int) -> None:
        """Drop the frames and grants of ``slot`` in the rounds of ``step``."""
        past = {f"{step}{kind}" for kind in KINDS}
        for key in [key for key in self.frames if key[0] in past and key[1] == slot]:
            del self.frames[key]
        for kind in KINDS:
            self.grants.pop((f"{step}{kind}", slot), None)

    def take(self, wanted: BudgetRequest) -> int:
        """Reserve the ``wanted`` money as far as the cap allows."""
        amount = wanted.grant(None if self.cap is None else self.cap - self.reserved)
        self.reserved += amount
        return amount

    def take_start(self, nusd: dict[int, int]) -> bool:
        """Reserve money, by slot, for functions that have not claimed their slots; False if the cap forbids it."""
        waiting = {slot: amount for slot, amount in nusd.items() if slot not in self.claims}
        total = sum(waiting.values())
        if self.cap is not None and self.reserved + total > self.cap:
            return False
        self.reserved += total
        for slot, amount in waiting.items():
            self.started_late[slot] = self.started_late.get(slot, 0) + amount
        return True

    def answer_once(self, request_id: str, take: Callable[[], int]) -> int:
        """The amount that ``take`` reserves. A repeated request id gets the first answer again; "" is always new."""
        with self.changed:
            if not request_id:
                return take()
            if request_id not in self.answers:
                self.answers[request_id] = take()
            return self.answers[request_id]

    def grant(self, key: tuple[str, int], wanted: BudgetRequest) -> int:
        """Grant money for (round, slot), once; if the cap does not allow it, announce the end of the run."""
        if wanted.nusd <= 0:
            return 0
        if key not in self.grants:
            self.grants[key] = self.take(wanted)
        if self.grants[key] == 0 and self.plan.stop_after is None:
            self.announce(
                stop_after=self.latest + 1,
                stop_status="capped",
                stop_reason="the budget does not pay for another step",
            )
        return self.grants[key]
