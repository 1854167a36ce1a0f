"""The budget of local functions that start later than was planned: it is reserved in small amounts while they do."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..exchange import Coordinator
from ..money.budget import EXIT_S
from ..money.start import StartingMoney

#: Seconds of start-up time that are reserved at a time.
SLICE_S = 0.2


class StartPayments:
    """The payments of one run.

    Parameters
    ----------
    money : StartingMoney
        What the functions were granted.
    log : Coordinator
    """

    def __init__(self, money: StartingMoney, log: Coordinator) -> None:
        self._money, self._log = money, log
        # By slot, seconds after the run: when its function was invoked, and until when its start is paid.
        self._invoked_s: dict[int, float] = {}
        self._paid_until_s: dict[int, float] = {}

    def begin(self, slots: Iterable[int], run_s: float) -> None:
        """Functions of ``slots`` are invoked ``run_s`` seconds after the run, with their first grants."""
        for slot in slots:
            self._invoked_s[slot] = run_s
            self._paid_until_s[slot] = run_s + self._money.start_s + EXIT_S

    def pay(self, run_s: float, started: Collection[int]) -> bool:
        """Reserve what functions need that have not started ``run_s`` seconds after the run; False if refused.

        Those in ``started`` have, and so has whichever claims its slot before the money is reserved.
        """
        for slot in set(started) & set(self._invoked_s):
            del self._invoked_s[slot], self._paid_until_s[slot]
        due = [slot for slot, until_s in self._paid_until_s.items() if run_s > until_s - SLICE_S]
        amounts = {}
        for slot in due:
            from_s = self._paid_until_s[slot] - self._invoked_s[slot]
            until_s = max(run_s - self._invoked_s[slot], from_s) + SLICE_S
            amounts[slot] = self._money.slice_nusd(from_s, until_s - from_s)[slot]
        if not amounts:
            return True
        is_paid = self._log.reserve_start(amounts)
        for slot in due if is_paid else ():
            self._paid_until_s[slot] = max(run_s, self._paid_until_s[slot]) + SLICE_S
        return is_paid
