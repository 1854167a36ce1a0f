"""The plan: what all workers change at the same step. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ..errors import DecodeError

#: Most bytes of a plan: 65,536 workers that leave have less.
MOST_BYTES = 2 << 20


@dataclass(frozen=True)
class Plan:
    """Which slots are active in which step, and when training ends.

    ``leaves[slot]`` is the first step in which ``slot`` is not active; ``stop_after`` is the last step of the run.
    After ``checkpoint`` every worker stores its state; 0: there was no checkpoint yet. ``hand_overs[slot]`` is the last
    step of the function of ``slot``, which is such a checkpoint: another function goes on from it, if one waits for the
    slot then. ``handed_over[slot]`` is the step after which that has happened, since the newest restart.
    ``asked[id]`` are the slots that the user's command ``id`` has removed: a later supervisor may hear it again.
    """

    version: int = 0
    leaves: dict[int, int] = field(default_factory=dict)
    stop_after: int | None = None
    stop_status: str = ""
    stop_reason: str = ""
    checkpoint: int = 0
    hand_overs: dict[int, int] = field(default_factory=dict)
    handed_over: dict[int, int] = field(default_factory=dict)
    asked: dict[str, list[int]] = field(default_factory=dict)

    def active(self, step: int, n_workers: int) -> list[int]:
        """Slots that take part in ``step`` (1-based), ascending."""
        if not self.leaves:
            return list(range(n_workers))
        return [slot for slot in range(n_workers) if self.leaves.get(slot, step + 1) > step]

    def has_handed_over(self, slot: int, step: int, staleness: int) -> bool:
        """Whether ``slot`` has left and its peers have its residual, since ``step`` is complete.

        A worker takes a step without ``slot`` once it has read the residual, or ``staleness`` steps before.
        """
        return slot in self.leaves and self.leaves[slot] + staleness <= step

    def is_checkpoint(self, step: int) -> bool:
        """Whether every worker stores its state after ``step``."""
        return step == self.checkpoint or (bool(self.hand_overs) and step in self.hand_overs.values())

    def encode(self) -> str:
        """The plan as the JSON that `decode` reads, without hand-overs: it is that of a run which is restarted."""
        spec: dict[str, Any] = {
            "version": self.version,
            "leaves": {str(slot): step for slot, step in self.leaves.items()},
        }
        if not self.leaves:
            del spec["leaves"]  # an empty object of JSON is a list to Lua
        if self.asked:
            spec["asked"] = self.asked
        if self.stop_after is not None:
            spec |= {"stop_after": self.stop_after, "stop_status": self.stop_status, "stop_reason": self.stop_reason}
        return json.dumps(spec | ({"checkpoint": self.checkpoint} if self.checkpoint else {}))

    @staticmethod
    def decode(text: str | bytes) -> Plan:
        """The plan from the JSON that the coordinator keeps; DecodeError if it is none."""
        if len(text) > MOST_BYTES:
            raise DecodeError(f"a plan of {len(text)} bytes: must be at most {MOST_BYTES}")
        try:
            spec: dict[str, Any] = json.loads(text) if text else {}
            plan = Plan(
                int(spec.get("version", 0)),
                {int(slot): int(step) for slot, step in (spec.get("leaves") or {}).items()},
                None if (stop_after := spec.get("stop_after")) is None else int(stop_after),
                spec.get("stop_status", ""),
                spec.get("stop_reason", ""),
                int(spec.get("checkpoint", 0)),
                {int(slot): int(step) for slot, step in (spec.get("hand_overs") or {}).items()},
                {int(slot): int(step) for slot, step in (spec.get("handed_over") or {}).items()},
                {str(name): [int(slot) for slot in slots] for name, slots in (spec.get("asked") or {}).items()},
            )
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            raise DecodeError("a plan that is none") from None
        if not isinstance(plan.stop_status, str) or not isinstance(plan.stop_reason, str):
            raise DecodeError("a plan whose end is no text")
        return plan


#: That of a run about which nothing was announced.
NO_PLAN = Plan()
