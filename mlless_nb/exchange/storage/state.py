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
from ..slots import SUPERVISOR
from ..step_report import StepEntry

GONE = "the run's data is gone from the object storage (is there a rule that expires or removes objects?)"
#: Reads and writes of a function that was killed before its first change of the state, and since its newest report or
#: change on average, beside the steps that a supervisor reads (measured with 1 to 4 workers: 7,000 to 14,000
#: nano-dollars).
STARTING, UNTOLD = (2, 4), (8, 1)
#: Seconds between two looks of a supervisor into the step log; it looks more often if the budget is nearly spent.
LOOKS_S = 0.21
#: Most steps that a killed supervisor is taken to have read since it told: others may have gone on for long without it.
MOST_UNREAD = 500
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
    #: The nonces of those that have told everything.
    final: set[str] = dataclasses.field(default_factory=set)
    #: What killed workers had requested by their reports of a step, with what their two last writes cost.
    reported: dict[str, int] = dataclasses.field(default_factory=dict)
    #: Steps that killed supervisors may have read since they told.
    unread: dict[str, int] = dataclasses.field(default_factory=dict)
    #: The newest supervisor that has told, the newest step that it had read by then, and when that was complete.
    reader: tuple[str, int, float] = ("", 0, 0.0)
    #: When the run was restarted last, seconds, the storage's clock: earlier reports may be of replaced functions.
    restarted_s: float = 0.0

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
                "final": sorted(self.final),
                "reported": self.reported,
                "unread": self.unread,
                "reader": self.reader,
                "restarted_s": self.restarted_s,
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
                final={str(nonce) for nonce in spec["final"]},
                reported={nonce: _amount(nusd) for nonce, nusd in spec["reported"].items()},
                unread={nonce: _amount(n_steps) for nonce, n_steps in spec["unread"].items()},
                reader=_reader(*spec["reader"]),
                restarted_s=float(spec["restarted_s"]),
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

    def note_told(self, nonce: str, nusd: int, step: int, at_s: float) -> None:
        """A function's requests have cost ``nusd`` so far; a supervisor has read the step log up to ``step``."""
        self.told[nonce] = nusd
        if step and nonce not in self.final:  # else its successor may have told before
            self.reader = nonce, step, at_s
        self.unread.pop(nonce, None)  # it was not dead

    def note_lost(self, functions: dict[int, str], newest: StepEntry | None) -> None:
        """These functions are lost, and their claims will be gone: of some nothing else tells.

        Most workers change this rarely, and a supervisor reads much meanwhile: the newest step tells more of both.

        Parameters
        ----------
        functions : dict
            Their nonces, by slot.
        newest : StepEntry or None
            The newest step since the newest restart: earlier functions may have taken others.
        """
        for slot, nonce in functions.items():
            self.told.setdefault(nonce, 0)
            if newest is None or nonce in self.final:
                continue
            if slot == SUPERVISOR:
                self.unread[nonce] = min(self._unread(nonce, newest), MOST_UNREAD)
            elif slot in newest.reports and newest.step > self.plan.handed_over.get(slot, 0):
                self.reported[nonce] = max(newest.reports[slot].storage_nusd, 0)

    def _unread(self, nonce: str, newest: StepEntry) -> int:
        """Steps that a supervisor has read between its newest change of this and its end: those until its last look."""
        reader, step, at_s = self.reader
        if nonce != reader:
            return newest.step
        since_s = newest.at_s - at_s
        share = since_s // LOOKS_S * LOOKS_S / since_s if since_s > 0 else 0.0
        return round(share * max(newest.step - step, 0))

    def requests_nusd(self, price: Callable[[int, int], int], claims: set[str]) -> int:
        """What all functions have requested, nano-dollars: as told, and by estimate where one was killed.

        Parameters
        ----------
        price : callable
            Of so many reads and writes.
        claims : set of str
            The nonces of functions that have slots.
        """
        told = dict.fromkeys(claims, 0) | self.told
        for nonce, nusd in self.reported.items():
            # A report counts two last writes; that of its update is made.
            told[nonce] = max(told.get(nonce, 0), nusd - price(0, 1))
        for nonce in told.keys() - self.final:
            reading = price(self.unread.get(nonce, 0), 0)
            told[nonce] += reading + price(*(UNTOLD if told[nonce] else STARTING))
        return sum(told.values())

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


def _reader(nonce: object, step: object, at_s: float) -> tuple[str, int, float]:
    return str(nonce), _amount(step), float(at_s)


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
