"""Ends a function before it spends more than its grant, whatever it is doing."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable

from .budget import ANSWER_S, BUY_AHEAD_S, Prepaid
from .request import GiveBack, Money, Reserve

#: Seconds before its grant is used up at which a function reports that it ends for that reason.
LAST_CALL_S = 0.05
#: Seconds between two questions of a function without a cap to a server that fails.
ASK_AGAIN_S = 0.2


class GrantWatch:
    """The watch of one function, until `Prepaid.end`.

    While the budget allows, time is reserved for a function that is blocked. If it does not, ``last_call`` is
    called `LAST_CALL_S` seconds before the end, to report the reason. A process that was suspended for longer than
    was prepaid (on a busy machine) pays late if the budget has room, and goes on. What the budget is must be known
    (`Prepaid.learn`): a request from here would end a function whose servers have just lost the run's data.

    Parameters
    ----------
    prepaid : Prepaid
    reserve, last_call, money, give_back : callable
    """

    def __init__(
        self,
        prepaid: Prepaid,
        reserve: Reserve,
        last_call: Callable[[], None],
        money: Money,
        give_back: GiveBack = lambda nusd, part: None,
    ) -> None:
        self._prepaid, self._reserve, self._last_call = prepaid, reserve, last_call
        self._money, self._give_back = money, give_back
        self._is_short = False  # of money: not all that it wanted was granted
        self._has_called = False  # then it ends, even if others return money: it has told so
        # The first one may block (a server that hangs), so the other one enforces the deadline.
        for name, target in (("mlless-prepaid", self._look), ("mlless-deadline", self._end_in_time)):
            threading.Thread(target=target, name=name, daemon=True).start()

    @property
    def _ahead_s(self) -> float:
        """Seconds before the end of the grant at which more is asked for; what was refused is asked for again late."""
        return BUY_AHEAD_S if self._is_short else self._prepaid.buy_ahead_s

    def _look(self) -> None:
        prepaid = self._prepaid
        while not prepaid.lateness.wait(prepaid.ended, max(min(prepaid.left_s - self._ahead_s, 0.25), 0.01)):
            try:
                prepaid.learn(*self._money())
                prepaid.return_surplus(self._give_back)
                if prepaid.is_settling or prepaid.left_s > self._ahead_s or self._has_called:
                    continue
                is_refused = not prepaid.hold_out(self._reserve)
                self._is_short = prepaid.left_s <= prepaid.buy_ahead_s
                if is_refused and prepaid.left_s <= LAST_CALL_S:
                    self._has_called = True
                    self._last_call()
            except Exception:  # the server failed or lost the run: the main thread or the deadline ends the function
                continue

    def _end_in_time(self) -> None:
        prepaid = self._prepaid
        # A wait of no time at all would let a clock of finite precision stand just before the deadline.
        while not prepaid.lateness.wait(prepaid.ended, min(max(prepaid.left_s - prepaid.late_margin_s, 1e-5), 0.25)):
            if prepaid.left_s <= prepaid.late_margin_s and (self._has_called or not self._pays_late()):
                os._exit(75)

    def _pays_late(self) -> bool:
        """Whether the budget grants more time; with a cap the answer must come while the grant lasts, or be quick.

        If not, ``last_call`` is called, so that the function does not end without a message. Without a cap, a server
        that fails is no reason to end: it may come back.
        """
        answers: list[bool] = []

        def ask() -> None:
            try:
                is_paid = self._prepaid.hold_out(self._reserve, is_late=True)
            except Exception:  # the server failed
                return
            finally:
                self._prepaid.questions.end()
            with contextlib.suppress(Exception):
                if not is_paid:
                    self._last_call()
                answers.append(is_paid)

        self._prepaid.questions.begin()  # before the thread runs
        asking = threading.Thread(target=ask, name="mlless-late", daemon=True)
        asking.start()
        if self._prepaid.has_cap:
            asking.join(max(self._prepaid.left_s, ANSWER_S))
            return answers == [True]
        asking.join()
        if not answers:
            self._prepaid.ended.wait(ASK_AGAIN_S)
        return answers != [False]
