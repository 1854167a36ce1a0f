"""Successors of one run's functions, near the end of these' lifetimes, and duplicates of stragglers: each slot has one.

A supervisor asks for them. One that has just taken over does not know what the one before it has asked for, and would
ask again: it is remembered here which slots have one that has not taken over yet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from ...bus.messages import Aged, Invocation, Invoked
from ...errors import ServiceError
from ...exchange import SUPERVISOR
from ...exchange.protocol import START_LEASES
from ...exchange.slots import successor_of
from ...money.start import StartingMoney
from ..servers.services import Services
from .invoking import invoke_patiently
from .recovery_payments import THE_SUPERVISOR, RecoveryPayments
from .unrecoverable import Unrecoverable


class _Pending(NamedTuple):
    """A successor that was invoked ``invoked_s`` seconds after the run, when the invocation ``holder`` had its slot."""

    invoked_s: float
    holder: str | None


class SuccessorInvocations:
    """The successors of one run's functions.

    Parameters
    ----------
    services : Services
    payments : RecoveryPayments
    money : StartingMoney
    lease_s : float
        Lease of the functions.
    invocation : callable
        That of another function for a slot with a grant, so many seconds after the run.
    invoke : callable
        Invokes functions, and has them watched.
    add_event : callable
        Takes events.
    pause : callable
        See `invoke_patiently`.
    """

    def __init__(
        self,
        services: Services,
        payments: RecoveryPayments,
        money: StartingMoney,
        lease_s: float,
        invocation: Callable[[int, int, float], Invocation],
        invoke: Callable[[list[Invocation]], None],
        add_event: Callable[[str], None],
        pause: Callable[[float], bool],
    ) -> None:
        self._services, self._payments, self._money, self._lease_s = services, payments, money, lease_s
        self._invocation, self._invoke, self._add_event, self._pause = invocation, invoke, add_event, pause
        self._pending: dict[int, _Pending] = {}
        self._unpaid: set[int] = set()  # slots of old functions whose successors were refused, as was told
        self._n_invoked = 0

    def succeed(self, aged: Aged, run_s: float) -> None:
        """Invoke the successors that are asked for, as far as the budget pays for them, ``run_s`` after the run."""
        at_work, granted = self._services.log.at_work(aged.slots), dict[int, int]()
        what = "another one" if aged.is_late else "a duplicate"
        for slot in aged.slots:
            if not aged.is_late and self._has_one(slot, at_work.get(slot), run_s):
                continue
            try:
                granted[slot] = self._payments.reserve_successor(slot)
                self._unpaid.discard(slot)
            except Unrecoverable:
                self._refuse(slot, aged, what)
        if not granted or not self._are_invoked(granted, run_s):
            return
        self._pending |= {slot: _Pending(run_s, at_work.get(slot)) for slot in granted}
        if aged.reason:
            self._add_event(f"{aged.reason}; {what} was invoked")

    def _refuse(self, slot: int, aged: Aged, what: str) -> None:
        """Tell that the budget does not pay for a successor; of one that takes over from an old function, once.

        The supervisor ends a run in good order whose functions get too old.
        """
        if slot in self._unpaid:
            return
        if aged.is_late or not aged.reason:
            self._unpaid.add(slot)
        who = THE_SUPERVISOR if slot == SUPERVISOR else f"worker {slot}"
        why = "a function's lifetime is limited, and the run may end with it"
        plain = f"The budget does not pay for a successor of {who}: {why}"
        self._add_event(f"{aged.reason}; the budget does not pay for {what}" if aged.reason else plain)

    def _has_one(self, slot: int, holder: str | None, run_s: float) -> bool:
        """Whether a successor of the function of ``slot``, the invocation ``holder``, starts or waits."""
        pending = self._pending.get(slot)
        if pending is None or pending.holder != holder:
            return False
        return run_s - pending.invoked_s < START_LEASES * self._lease_s

    def _are_invoked(self, granted: dict[int, int], run_s: float) -> bool:
        """Invoke successors with the money ``granted``; whether that worked. If not, it is kept for those to come."""
        number = self._n_invoked + len(granted)
        news = Invoked([*granted], run_s, self._money.unheard_start_s, number)
        # Before they are there: one of them may be a supervisor, which reads what was said.
        self._services.bus.send("supervisor", news.encode())
        made = [self._invocation(slot, nusd, run_s) for slot, nusd in granted.items()]
        made = [dataclasses.replace(one, is_successor=True) for one in made]
        try:
            invoke_patiently(self._invoke, made, self._add_event, self._pause)
        except ServiceError as error:
            self._add_event(f"{error}; they are asked for again while the functions before them live")
            news = dataclasses.replace(news, number=self._n_invoked, is_refused=True)
            self._services.bus.send("supervisor", news.encode())
            return False
        self._n_invoked = number
        for slot, nusd in granted.items():
            self._payments.use(successor_of(slot), nusd)
        return True
