"""The budget of local functions that start later than was planned: it is reserved in small amounts while they do."""

from __future__ import annotations

import math
import uuid
from collections.abc import Collection, Iterable

from ...exchange import Coordinator
from ...money.budget import EXIT_S
from ...money.start import StartingMoney

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
        self._unanswered: tuple[float, dict[int, int], str] | None = None  # when it was asked for, what, and its id

    def begin(self, slots: Iterable[int], run_s: float) -> None:
        """Functions of ``slots`` are invoked ``run_s`` seconds after the run, with their first grants."""
        for slot in slots:
            self._invoked_s[slot] = run_s
            self._paid_until_s[slot] = run_s + self._money.start_s + EXIT_S

    def pay(self, run_s: float, started: Collection[int]) -> bool:
        """Reserve what functions need that have not started ``run_s`` seconds after the run; False if refused.

        Those in ``started`` have, and so has whichever claims its slot before the money is reserved.
        """
        self._leave_out(started)
        asked_s, amounts, request_id = self._unanswered or (run_s, self._due(run_s), uuid.uuid4().hex)
        if not amounts:
            return True
        self._unanswered = asked_s, amounts, request_id  # if the answer is lost, the same is asked for again
        is_paid = self._log.reserve_start(amounts, request_id)
        self._unanswered = None
        for slot in amounts if is_paid else ():
            if self._invoked_s.get(slot, math.inf) <= asked_s:  # it has neither started nor been replaced meanwhile
                self._paid_until_s[slot] = max(asked_s, self._paid_until_s[slot]) + SLICE_S
        return is_paid

    def is_due(self, run_s: float, started: Collection[int]) -> bool:
        """Whether more must be reserved now; arguments as of `pay`."""
        self._leave_out(started)
        return bool(self._due(run_s))

    def _leave_out(self, started: Collection[int]) -> None:
        for slot in set(started) & set(self._invoked_s):
            del self._invoked_s[slot], self._paid_until_s[slot]

    def _due(self, run_s: float) -> dict[int, int]:
        """By slot, what functions need that have not started."""
        amounts = {}
        for slot, paid_s in self._paid_until_s.items():
            if run_s > paid_s - SLICE_S:
                from_s = paid_s - self._invoked_s[slot]
                until_s = max(run_s - self._invoked_s[slot], from_s) + SLICE_S
                amounts[slot] = self._money.slice_nusd(from_s, until_s - from_s)[slot]
        return amounts
