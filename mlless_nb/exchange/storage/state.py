"""What the processes of a job change together: plan, budget, and how the run ended. One object, changed on a condition.

A change reads the object, applies a function to it, and writes it if nobody has written it meanwhile; else it begins
anew. Every function is safe to apply twice, because an answer may be lost: what it has granted is in the state.
"""

from __future__ import annotations

import dataclasses
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from ...errors import DecodeError
from ...money.request import BudgetRequest
from ...storage.conditional import Conditional
from ..memory_hub import MemoryHub
from ..plan import Plan
from ..restarts import Aborted, LostData, Restart

GONE = "the run's data is gone from the object storage (is there a rule that expires or removes objects?)"
#: Answers to budget requests that are kept, the newest ones; and refunds of one slot.
MOST_ANSWERS, MOST_REFUNDS = 128, 8
#: Tries of a change, and the longest pause before the first retry, seconds; it doubles up to `MOST_PAUSE_S`.
TRIES, PAUSE_S, MOST_PAUSE_S = 100, 0.01, 0.5

_Result = TypeVar("_Result")


@dataclass
class JobState(MemoryHub):
    """The part of the coordinator's state that is changed on a condition, with the rules of the one in memory."""

    generation: str = ""
    #: What each invocation's requests have cost by its newest change of this, nano-dollars, by its nonce.
    told: dict[str, int] = dataclasses.field(default_factory=dict)

    def encode(self) -> bytes:
        """The state as JSON."""
        for request_id in list(self.answers)[:-MOST_ANSWERS]:
            del self.answers[request_id]
        return json.dumps(
            {
                "generation": self.generation,
                "cap": self.cap,
                "reserved": self.reserved,
                "latest": self.latest,
                "plan": dataclasses.asdict(self.plan),
                "restart": self.restart,
                "aborted": self.aborted,
                "grants": [[round_id, slot, nusd] for (round_id, slot), nusd in self.grants.items()],
                "answers": self.answers,
                "started_late": self.started_late,
                "refunded": sorted(self.refunded),
                "told": self.told,
            },
            separators=(",", ":"),
        ).encode()

    @staticmethod
    def decode(blob: bytes) -> JobState:
        """The state in ``blob``; DecodeError if it is none."""
        try:
            spec = json.loads(blob)
            return JobState(
                generation=spec["generation"],
                cap=spec["cap"],
                reserved=spec["reserved"],
                latest=spec["latest"],
                plan=Plan.decode(json.dumps(spec["plan"])),
                restart=Restart(*map(int, spec["restart"])),
                aborted=tuple(spec["aborted"]) if spec["aborted"] else None,
                grants={(round_id, slot): nusd for round_id, slot, nusd in spec["grants"]},
                answers=spec["answers"],
                started_late={int(slot): nusd for slot, nusd in spec["started_late"].items()},
                refunded={(slot, part) for slot, part in spec["refunded"]},
                told={nonce: _amount(nusd) for nonce, nusd in spec["told"].items()},
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DecodeError(f"not the state of a job: {type(error).__name__}") from None

    def give(self, nusd: int, slot: int, part: int) -> None:
        """Take ``nusd`` back from ``slot``, once for each part."""
        if (slot, part) in self.refunded:
            return
        self.refunded.add((slot, part))
        self.reserved -= nusd
        parts = sorted(other for who, other in self.refunded if who == slot and other)
        self.refunded -= {(slot, other) for other in parts[:-MOST_REFUNDS]}

    def pay(self, round_id: str, slot: int, wanted: BudgetRequest) -> int:
        """The grant of ``slot`` in a round; that of its newest round is kept."""
        granted = self.grant((round_id, slot), wanted)
        for key in [key for key in self.grants if key[1] == slot and key[0] != round_id]:
            del self.grants[key]
        return granted


def _amount(nusd: object) -> int:
    if not isinstance(nusd, int) or nusd < 0:
        raise ValueError("not an amount")
    return nusd


class State(Protocol):
    """What a `Cell` holds."""

    def encode(self) -> bytes:
        """As bytes; equal states give equal bytes."""


_State = TypeVar("_State", bound=State)


class Cell(Generic[_State]):
    """One object that many processes change, for several threads.

    Parameters
    ----------
    storage : Conditional
    key : str
        Of the object.
    decode : callable
        The state in the object's bytes.
    note : callable
        Called with the numbers of reads and writes made.
    sign : callable, optional
        Called with each state before it is written.
    """

    def __init__(
        self,
        storage: Conditional,
        key: str,
        decode: Callable[[bytes], _State],
        note: Callable[[int, int], None],
        sign: Callable[[_State], None] = lambda state: None,
    ) -> None:
        self._storage, self._key, self._decode, self._note, self._sign = storage, key, decode, note, sign
        self._lock = threading.Lock()
        self._seen: tuple[bytes, str] | None = None
        self._read_at = -1e9

    def create(self, state: _State) -> None:
        """Write the state of a new job."""
        self._note(0, 1)
        self._storage.objects.put(self._key, state.encode())

    def read(self, most_age_s: float = 0.0) -> _State:
        """The state, at most ``most_age_s`` seconds old; raises `LostData` if there is none."""
        with self._lock:
            if self._seen is None or time.monotonic() - self._read_at > most_age_s:
                self._fetch()
            assert self._seen is not None
            return self._decode(self._seen[0])

    def _fetch(self) -> None:
        asked_at = time.monotonic()
        self._note(1, 0)
        found = self._storage.read(self._key)
        if found is None:
            raise LostData(GONE)
        self._seen, self._read_at = found, asked_at

    def change(self, action: Callable[[_State], _Result]) -> _Result:
        """Apply ``action`` to the state, atomically; what it returns. Nothing is written if it changes nothing."""
        pause_s, is_fresh = PAUSE_S, False
        for _ in range(TRIES):
            with self._lock:
                if self._seen is None or is_fresh:
                    self._fetch()
                assert self._seen is not None
                before, tag = self._seen
                state = self._decode(before)
                try:
                    result = action(state)
                except Exception:
                    if is_fresh:
                        raise
                    is_fresh = True  # an older state refuses it
                    continue
                if (after := state.encode()) == before:
                    if is_fresh:
                        return result
                    is_fresh = True  # by an older state there was nothing to change
                    continue
                self._note(0, 1)
                self._sign(state)
                after = state.encode()
                written = self._storage.swap(self._key, after, tag)
                if written is not None:
                    self._seen, self._read_at = (after, written), time.monotonic()
                    return result
                is_fresh = True
            # Others change it too: each waits for another time.
            time.sleep(random.uniform(0.0, pause_s) if not self._storage.has_local_objects else 0.0)
            pause_s = min(2 * pause_s, MOST_PAUSE_S)
        raise Aborted("the run's state in the object storage is changed by others over and over")
