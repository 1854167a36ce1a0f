"""The part of the coordinator in the object storage that is for every process: plan, budget, claims, leases."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from typing import TypeVar

from ...money.request import BudgetRequest
from ...redaction import scrubbed
from ...storage.conditional import Conditional
from ..plan import Plan
from ..restarts import Aborted, LostData, Restart
from ..slots import SUPERVISOR, UNUSED, role_of
from ..standing import Standing
from ..step_report import StepEntry
from ..stores.storage import StorageStore
from .leases import Leases
from .state import GONE, Cell, JobState
from .step_log import StepLog

#: The share of a function's requests that it need not tell of in a second last call: the bill is known within 1 %.
UNTOLD_SHARE = 0.005
#: Longest wait of `Books` for functions that have not settled their money, seconds.
SETTLE_S = 2.0
#: Leases are read more rarely than the state, by this factor.
LEASES_FRESH = 3.0

_Result = TypeVar("_Result")


class Books:
    """See `Coordinator`; for any thread.

    Parameters
    ----------
    storage, store, generation, nonce, freshness_s
        See `mlless_nb.exchange.storage.coordinator.StorageCoordinator`.
    """

    def __init__(
        self, storage: Conditional, store: StorageStore, generation: str, nonce: str, freshness_s: float
    ) -> None:
        self._storage, self._store, self.generation, self._nonce = storage, store, generation, nonce
        self._freshness_s, self._folder = freshness_s, store.folder
        self._state = Cell(storage, f"{self._folder}state", JobState.decode, self._note, self._sign)
        self._leases = Leases(storage, f"{self._folder}leases/", LEASES_FRESH * freshness_s, self._note)
        self._steps = StepLog(storage, self._folder, freshness_s / 2, self._note)
        self._claims: dict[int, str] = {}  # that were read
        #: What this function's requests will have cost once it has made one more write, nano-dollars.
        self.requested_nusd: Callable[[], int] | None = None
        self._is_settled = self._is_last_call = False  # whether functions were waited for; see `speak_for`

    @property
    def has_local_objects(self) -> bool:
        """Whether requests take microseconds."""
        return self._storage.has_local_objects

    def _note(self, gets: int, puts: int) -> None:
        self._store.count(n_gets=gets, n_puts=puts)

    def speak_for(self, own: Books) -> None:
        """This is a second coordinator of the function that has ``own``, for its last call."""
        self._nonce, self.requested_nusd, self._is_last_call = own._nonce, own.requested_nusd, True

    def _sign(self, state: JobState) -> None:
        """Say what the requests cost: those after a function's last message, or of one that is lost, nobody reports."""
        if self.requested_nusd is not None:
            state.note_told(self._nonce, self.requested_nusd(), *self._steps.read_to)

    # -- driver

    def delete(self) -> int:
        """See `Coordinator`."""
        self._await_settled()
        return self._store.clear()

    def hear_requests(self, slots: Iterable[int], price: Callable[[int, int], int]) -> int:
        """What the requests of all functions cost, nano-dollars, by what they say; once they have ended.

        For those of ``slots`` that were killed, see `JobState.note_lost` and `JobState.requests_nusd`.
        """
        self._await_settled()
        state = self._read()
        unsettled = {slot: self._claim_of(slot) for slot in slots if (slot, 0) not in state.refunded}
        claims = {slot: nonce for slot, nonce in (self._claims | unsettled).items() if nonce is not None}
        lost = {slot: nonce for slot, nonce in claims.items() if nonce not in state.final}
        # It is read with money that the lost ones had for their last writes.
        state.note_lost(lost, self._newest(state) if lost else None)
        return state.requests_nusd(price, set(claims.values()))

    def _await_settled(self) -> None:
        """Wait once for functions of a cloud that are about to return: they still write."""
        if not self._storage.has_local_objects and not self._is_settled:
            self._is_settled = True
            give_up_at = time.monotonic() + SETTLE_S
            claimed = [int(key.rpartition("/")[2]) for key in self._storage.objects.list(f"{self._folder}claims/")]
            slots = [slot for slot in claimed if slot >= SUPERVISOR]
            while self._are_alive(slots) and time.monotonic() < give_up_at:
                time.sleep(SETTLE_S / 5)

    def _are_alive(self, slots: list[int]) -> bool:
        """Whether functions of ``slots`` that are alive have not settled their money."""
        try:
            slots = list(self.at_work(slots))
        except Aborted:
            return False
        return any(self.alive([role_of(slot) for slot in slots]))

    # -- anyone

    def now_s(self) -> float:
        """See `Coordinator`."""
        return self._storage.now_s()

    def renew(self, role: str, lease_s: float) -> None:
        """See `Coordinator`."""
        self._leases.renew(role, lease_s)

    def alive(self, roles: list[str]) -> list[bool]:
        """See `Coordinator`."""
        return [self._leases.is_alive(role) for role in roles]

    def at_work(self, slots: list[int]) -> dict[int, str]:
        """See `Coordinator`."""
        for slot in slots:
            self._claims.pop(slot, None)  # another invocation may have it by now
        claims = {slot: nonce for slot in slots if (nonce := self._claim_of(slot)) is not None}
        if not claims:
            return {}
        settled = self._read(self._freshness_s).refunded
        return {slot: nonce for slot, nonce in claims.items() if (slot, 0) not in settled}

    def settled(self, slots: list[int]) -> set[int]:
        """See `Coordinator`."""
        refunded = self._read(self._freshness_s).refunded
        return {slot for slot in slots if (slot, 0) in refunded}

    def bury(self, role: str) -> None:
        """See `Coordinator`."""
        self._leases.bury(role)

    def _read(self, most_age_s: float = 0.0) -> JobState:
        return self._state.read(most_age_s)

    def read_plan(self) -> Plan:
        """See `Coordinator`."""
        return self._read().plan

    def _change(self, action: Callable[[JobState], _Result]) -> _Result:
        """Change the state of this start of the job; raises `LostData` if there is another."""

        def change(state: JobState) -> _Result:
            self._check_generation(state)
            return action(state)

        return self._state.change(change)

    def _check_generation(self, state: JobState) -> None:
        if state.generation != self.generation:
            raise LostData(GONE)

    def announce_leave(self, slots: list[int], command_id: str = "") -> Plan:
        """See `Coordinator`."""
        return self._change(lambda state: state.announce_leave(slots, command_id))

    def announce_checkpoint(self) -> Plan:
        """See `Coordinator`."""
        return self._change(lambda state: state.announce_checkpoint())

    def announce_hand_over(self, slots: list[int]) -> Plan:
        """See `Coordinator`."""
        return self._change(lambda state: state.announce_hand_over(slots))

    # -- restarts

    def restart(self) -> Restart:
        """See `Coordinator`."""
        state = self._read(self._freshness_s)
        self._check_generation(state)
        return state.restart

    def roll_back(self, known: Restart, step: int, replaced: list[int], n_workers: int, origin: int = 0) -> Restart:
        """See `Coordinator`."""

        def change(state: JobState) -> Restart:
            if state.aborted is not None:
                raise Aborted(state.aborted[1], state.aborted[0])
            if state.restart.number == known.number:
                state.note_lost(lost, newest)
                state.roll_back(step, replaced, origin)
                state.restarted_s = self.now_s()
            return state.restart

        lost = {slot: self._claims[slot] for slot in replaced if slot in self._claims}
        newest = self._newest(self._read()) if lost else None
        restart = self._change(change)
        for slot in replaced:
            self._free(slot)
        return restart

    def _newest(self, state: JobState) -> StepEntry | None:
        return self._steps.newest(state.latest, state.restarted_s)

    def release(self, slot: int) -> None:
        """See `Coordinator`."""
        if self._claims.get(slot) != self._nonce:
            self._claims.pop(slot, None)  # it may have been handed over meanwhile
        nonce = self._claim_of(slot)
        lost = {slot: nonce} if nonce and nonce != self._nonce else {}
        newest = self._newest(self._read()) if lost else None

        def change(state: JobState) -> None:
            state.note_lost(lost, newest)
            state.release(slot)

        try:
            self._change(change)
        finally:
            self._free(slot)

    def hand_over(self, slot: int, step: int) -> None:
        """See `Coordinator`."""
        self._claims.pop(slot, None)
        if self._claim_of(slot) == self._nonce:

            def change(state: JobState) -> None:
                state.hand_over(slot, step)
                state.final.add(self._nonce)

            self._change(change)
            self._free(slot)

    def _free(self, slot: int) -> None:
        """Remove claim and lease of a function that is lost, or has handed over."""
        self._claims.pop(slot, None)
        self._leases.bury(role_of(slot))
        self._storage.objects.delete([self._claim_key(slot)])

    def identities(self) -> list[str]:
        """See `Coordinator`. A storage does not lose what it has confirmed."""
        return []

    def standing(self, slots: list[int]) -> Standing:
        """See `Coordinator`."""
        return Standing(self.read_plan(), self.at_work(slots), self.money()[1], self.restart(), [])

    def announce_stop(self, status: str, reason: str) -> Plan:
        """See `Coordinator`."""

        def change(state: JobState) -> Plan:
            if state.plan.stop_after is None:
                state.announce(stop_after=state.latest + 1, stop_status=status, stop_reason=scrubbed(reason))
            return state.plan

        return self._change(change)

    def abort(self, reason: str, n_workers: int, status: str = "failed") -> None:
        """See `Coordinator`. Waiting workers look for it every `WAIT_POLL_S` seconds, or more rarely, see the class."""

        def change(state: JobState) -> None:
            state.aborted = state.aborted or (status, scrubbed(reason))
            if self._is_last_call and self.requested_nusd is not None:  # it is told, also if others have aborted before
                requested_nusd = self.requested_nusd()
                untold_nusd = requested_nusd - state.told.get(self._nonce, 0)
                if self._nonce not in state.final or untold_nusd > UNTOLD_SHARE * requested_nusd:
                    state.told[self._nonce] = requested_nusd
                    state.final.add(self._nonce)

        self._change(change)

    def aborted(self) -> tuple[str, str] | None:
        """See `Coordinator`."""
        return self._read(self._freshness_s).aborted

    # -- money

    def money(self) -> tuple[int | None, int]:
        """See `Coordinator`."""
        state = self._read(self._freshness_s)
        return state.cap, state.reserved

    def reserve(self, nusd: int, least_nusd: int | None = None, request_id: str = "") -> int:
        """See `Coordinator`."""
        wanted = BudgetRequest(nusd, nusd if least_nusd is None else least_nusd)
        request_id = request_id or uuid.uuid4().hex
        return self._change(lambda state: state.answer_once(request_id, lambda: state.take(wanted)))

    def reserve_start(self, nusd: dict[int, int], request_id: str = "") -> bool:
        """See `Coordinator`."""
        waiting = {slot: amount for slot, amount in nusd.items() if self._claim_of(slot) is None}
        request_id = request_id or uuid.uuid4().hex
        return bool(self._change(lambda state: state.answer_once(request_id, lambda: state.take_start(waiting))))

    def start_grant(self, slot: int) -> int:
        """See `Coordinator`."""
        return self._read().started_late.get(slot, 0)

    def refund(self, nusd: int, slot: int, part: int = 0) -> None:
        """See `Coordinator`."""

        def change(state: JobState) -> None:
            state.give(nusd, slot, part)
            if self.requested_nusd is not None and (not part or part >= UNUSED):
                state.final.add(self._nonce)

        self._change(change)

    def set_cap(self, cap_nusd: int) -> bool:
        """See `Coordinator`."""

        def change(state: JobState) -> bool:
            if cap_nusd < state.reserved:
                return False
            state.cap = cap_nusd
            return True

        return self._change(change)

    # -- functions

    def claim(self, slot: int) -> bool:
        """See `Coordinator`. A claim that was read before is written only if it is gone: a read costs less."""
        if self._claims.pop(slot, None) is None or self._claim_of(slot) is None:
            self._note(0, 1)
            if self._storage.swap(self._claim_key(slot), self._nonce.encode()) is not None:
                self._claims[slot] = self._nonce
        return self._claim_of(slot) == self._nonce

    def _claim_key(self, slot: int) -> str:
        return f"{self._folder}claims/{slot}"

    def _claim_of(self, slot: int) -> str | None:
        """The invocation that claimed ``slot``, None if none did."""
        if slot not in self._claims:
            self._note(1, 0)
            try:
                self._claims[slot] = self._storage.objects.get(self._claim_key(slot)).decode()
            except KeyError:
                return None
        return self._claims[slot]

    def count(self, name: str, index: int) -> tuple[bool, int]:
        """Count ``index`` under ``name``, once: whether it is new, and how many were counted so far."""
        folder = f"{self._folder}counts/{name}/"
        self._note(0, 2)
        is_new = self._storage.swap(f"{folder}{index}", self._nonce.encode()) is not None
        return is_new, len(self._storage.objects.list(folder))
