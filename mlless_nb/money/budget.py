"""The budget cap: a function runs on money that was reserved for it before, and ends itself when that is used up."""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Callable

from .meter import NUSD, Rates
from .request import BudgetRequest

#: Seconds that a function keeps paid for beside what it measured (evaluating, storing), to hand over and to end.
EXIT_S = 0.35
#: The same where the budget is small: such a share of it for all functions together, and no less than so many seconds.
EXIT_SHARE, LEAST_EXIT_S = 0.01, 0.1
#: Seconds of running that a function asks for at a time; it is given less where the cap is near.
SLICE_S = 0.5
#: Seconds of the whole run: where the budget has no more left, the end is near.
SCARCE_S = 2.0
#: Seconds before its money is used up at which a function says that it ends for that.
LAST_CALL_S = 0.05
#: Seconds before that at which the watch buys time for a function that is held up and does not buy it itself.
BUY_AHEAD_S = 0.25
#: Seconds within which the budget's records have to answer a function that is past its money.
ANSWER_S = 0.1
#: Steps that may still end after a worker asked for money in vain: the one it asks in, and the last one.
STEPS_TO_END = 2

#: Takes what is wanted out of the budget, at least the second amount, once for a request id (the third argument);
#: returns how much it was, 0: nothing.
Reserve = Callable[[int, int, str], int]
#: Gives back so many nano-dollars, for the n-th time.
GiveBack = Callable[[int, int], None]
#: The cap (None: no cap) and what is reserved of it, nano-dollars.
Money = Callable[[], tuple[int | None, int]]


class Prepaid:
    """What one function has spent and been given.

    Parameters
    ----------
    rates : Rates
    granted_nusd : int
        Nano-dollars it starts on.
    elapsed_s : callable
        Seconds since the function was invoked; the bill runs from there.
    requests_nusd : callable
        Nano-dollars of its storage requests so far.
    with_servers : bool
        Whether the servers' time is on this function's account (the supervisor's is).
    n_functions : int
        Functions of the run, this one among them.
    """

    def __init__(
        self,
        rates: Rates,
        granted_nusd: int,
        elapsed_s: Callable[[], float],
        requests_nusd: Callable[[], int],
        *,
        with_servers: bool = False,
        n_functions: int = 1,
    ) -> None:
        self._rates, self.granted_nusd = rates, granted_nusd
        self._elapsed_s, self._requests_nusd = elapsed_s, requests_nusd
        self._with_servers = with_servers
        self._run_usd_s = n_functions * rates.function_usd_s + rates.servers_usd_s
        self._plain_exit_s, self._measured_exit_s = EXIT_S, 0.0
        self._has_cap = True
        #: Whether little of the budget is left: less than `SCARCE_S` seconds of the whole run.
        self.is_scarce = False
        #: Writes to the storage that are paid for before they are made: a checkpoint, the model.
        self.puts_ahead = 2
        #: Reads that are to be paid for ahead: the next minibatch, and the held-out rows not yet read.
        self.gets_ahead = 2
        #: Steps that may still be taken when the end is announced.
        self.steps_to_end = STEPS_TO_END
        self._step_s: float | None = None  # of the steps that are asked for
        self._n_returned = 0
        self._unanswered: list[tuple[BudgetRequest, str]] = []  # requests whose answer did not come, with their ids
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def cost_nusd(self, span_s: float) -> int:
        """Bill of a span of ``span_s`` seconds without storage requests."""
        servers = self._rates.servers_nusd(span_s + self._rates.profile.function.tail_s) if self._with_servers else 0
        return self._rates.function_nusd(span_s) + servers

    @property
    def spent_nusd(self) -> int:
        """Bill so far, were the function to end now; storage requests included."""
        return self.cost_nusd(self._elapsed_s()) + self._requests_nusd()

    @property
    def storage_nusd(self) -> int:
        """Storage requests so far."""
        return self._requests_nusd()

    @property
    def plain_exit_s(self) -> float:
        """Seconds that are kept paid for beside what was measured."""
        return self._plain_exit_s

    @property
    def exit_s(self) -> float:
        """Seconds that are kept paid for to end in good order."""
        return self._plain_exit_s + self._measured_exit_s

    def keep_for_exit(self, seconds: float) -> None:
        """Keep ``seconds`` more paid for than a plain exit takes (to store a large model, say)."""
        self._measured_exit_s = seconds

    def learn(self, cap_nusd: int | None, reserved_nusd: int) -> None:
        """The cap (None: no cap) and what is reserved of it now: of a small one less is kept for the exit."""
        self._has_cap = cap_nusd is not None
        if cap_nusd is None:
            self._plain_exit_s, self.is_scarce = EXIT_S, False
        else:
            share_s = EXIT_SHARE * cap_nusd / NUSD / self._run_usd_s
            self._plain_exit_s = min(max(share_s, LEAST_EXIT_S), EXIT_S)
            self.is_scarce = cap_nusd - reserved_nusd < SCARCE_S * self._run_usd_s * NUSD

    def wanted(self, step_s: float) -> BudgetRequest:
        """What to ask for before another step of about ``step_s`` seconds; nothing when enough is there."""
        if step_s > 0:
            self._step_s = step_s
        requests, horizon_s = self._ahead(step_s)
        least = self.cost_nusd(horizon_s) + requests - self.granted_nusd
        if least <= 0:
            return BudgetRequest()
        return BudgetRequest(self.cost_nusd(horizon_s + max(SLICE_S, step_s)) + requests - self.granted_nusd, least)

    def _ahead(self, step_s: float) -> tuple[int, float]:
        """Requests, nano-dollars, and seconds since the invocation that have to be paid for before another step."""
        requests = self._requests_nusd() + self._rates.requests_nusd(self.gets_ahead, self.puts_ahead)
        return requests, self._elapsed_s() + self.exit_s + self.steps_to_end * step_s

    def return_surplus(self, give_back: GiveBack) -> None:
        """Give back what steps and exit turned out not to need: others may lack it."""
        step_s = self._step_s
        if not self._has_cap or step_s is None:
            return
        slice_s = max(SLICE_S, step_s)
        with self._lock:
            requests, horizon_s = self._ahead(step_s)
            surplus = self.granted_nusd - requests - self.cost_nusd(horizon_s + slice_s)
            if surplus <= slice_s * self._rates.function_usd_s * NUSD:
                return
            self.granted_nusd -= surplus
            self._n_returned += 1
        give_back(surplus, self._n_returned)

    def add(self, nusd: int) -> None:
        """``nusd`` were granted."""
        with self._lock:
            self.granted_nusd += nusd

    def buy(self, step_s: float, reserve: Reserve) -> bool:
        """Ask ``reserve`` for what `wanted` says; False when not even the least of it was to be had."""
        self._repeat_unanswered(reserve)
        wanted = self.wanted(step_s)
        return wanted.nusd <= 0 or self._ask(reserve, wanted) > 0

    def hold_out(self, reserve: Reserve) -> bool:
        """Ask for time to end in, all of it or a little; False when there is none.

        Who is on its way out takes what is left, or was given back: it has no use for what another step would need.
        """
        if self.buy(0.0, reserve):
            return True
        requests, elapsed_s = self._requests_nusd() - self.granted_nusd, self._elapsed_s()
        wanted, least = (self.cost_nusd(elapsed_s + span_s) + requests for span_s in (2 * BUY_AHEAD_S, BUY_AHEAD_S))
        return wanted <= 0 or self._ask(reserve, BudgetRequest(wanted, max(least, 1))) > 0

    def _ask(self, reserve: Reserve, wanted: BudgetRequest, request_id: str = "") -> int:
        """Ask for money and add what is given; a request without an answer is kept, to be repeated under its id."""
        request_id = request_id or uuid.uuid4().hex
        try:
            granted = reserve(wanted.nusd, wanted.least_nusd, request_id)
        except Exception:
            with self._lock:
                self._unanswered.append((wanted, request_id))
            raise
        self.add(granted)
        return granted

    def _repeat_unanswered(self, reserve: Reserve) -> None:
        """Repeat what was not answered: the money may have been taken, and is then had for it."""
        while self._unanswered:
            with self._lock:
                unanswered = self._unanswered.pop() if self._unanswered else None
            if unanswered is not None:
                self._ask(reserve, *unanswered)

    def watch(
        self,
        reserve: Reserve,
        last_call: Callable[[], None],
        money: Money,
        give_back: GiveBack = lambda nusd, part: None,
    ) -> None:
        """End this process before it can spend what it was not given, whatever it is doing then.

        While the budget allows, time is bought for a function that is held up. When it does not, ``last_call`` is made
        `LAST_CALL_S` seconds before the end, to tell why. A process that stood still for longer than was paid for
        (a busy machine) pays late where the budget ``money`` tells of allows that, and goes on.
        """
        self.learn(*money())
        arguments = (reserve, last_call, money, give_back)
        threading.Thread(target=self._watch, args=arguments, name="mlless-prepaid", daemon=True).start()

    def _watch(self, reserve: Reserve, last_call: Callable[[], None], money: Money, give_back: GiveBack) -> None:
        was_called = False
        arguments = (reserve, last_call)
        threading.Thread(target=self._end_in_time, args=arguments, name="mlless-deadline", daemon=True).start()
        while not self._ended.wait(max(min(self.left_s - BUY_AHEAD_S, 0.25), 0.01)):
            # What this thread waits for may never come (a server that hangs): the deadline is another thread's.
            try:
                self.learn(*money())
                self.return_surplus(give_back)
                if self.left_s > BUY_AHEAD_S or was_called:
                    continue
                is_refused = not self.hold_out(reserve)
                if is_refused and self.left_s <= LAST_CALL_S:
                    was_called = True
                    last_call()
            except Exception:  # the server is gone or lost the run: the main thread finds out and ends, or time does
                continue

    def _end_in_time(self, reserve: Reserve, last_call: Callable[[], None]) -> None:
        while not self._ended.wait(min(max(self.left_s, 0.0), 0.25)):
            if self.left_s <= 0 and not self._pays_late(reserve, last_call):
                os._exit(75)

    def _pays_late(self, reserve: Reserve, last_call: Callable[[], None]) -> bool:
        """Whether the budget has room for what this function is past its money; with a cap the answer has to be quick.

        When it has not, ``last_call`` is made: nobody is to go without a word.
        """
        answers: list[bool] = []

        def ask() -> None:
            with contextlib.suppress(Exception):  # the server is gone
                is_paid = self.hold_out(reserve)
                if not is_paid:
                    last_call()
                answers.append(is_paid)

        asking = threading.Thread(target=ask, name="mlless-late", daemon=True)
        asking.start()
        asking.join(ANSWER_S if self._has_cap else None)
        return answers == [True]

    @property
    def left_s(self) -> float:
        """Seconds that the money granted so far still lasts."""
        left_nusd = self.granted_nusd - self._requests_nusd()
        return self._rates.seconds_for(left_nusd, with_servers=self._with_servers) - self._elapsed_s()

    def end(self) -> None:
        """The function is about to return: stop watching."""
        self._ended.set()
