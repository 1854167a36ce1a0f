"""The budget of local functions that start later than was planned: it is reserved in small amounts while they do."""

from __future__ import annotations

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
        self._paid_until_s = money.start_s + EXIT_S

    def pay(self, run_s: float) -> bool:
        """Reserve what functions need that have not started ``run_s`` seconds after the run; False if refused."""
        if run_s <= self._paid_until_s - SLICE_S:
            return True
        is_paid = self._log.reserve_start(self._money.slice_nusd(self._paid_until_s, SLICE_S))
        self._paid_until_s += SLICE_S * is_paid
        return is_paid
