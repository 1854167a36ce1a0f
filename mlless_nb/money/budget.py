"""The cap as a promise: a function runs only on money it was given beforehand, and ends itself when that is used up."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from ..exchange.base import Wanted
from .meter import Rates

#: Seconds that a function keeps paid for, to flush its residual, store the model and say goodbye.
EXIT_S = 0.35
#: Seconds of running that a function asks for at a time.
SLICE_S = 0.5
#: Seconds before its money is used up at which a function says that it ends for that.
LAST_CALL_S = 0.12
#: Seconds before that at which the watch buys time for a function that is held up and does not buy it itself.
BUY_AHEAD_S = 0.25
#: Steps that may still be taken between the announcement of the end and the end, where workers keep step.
STEPS_TO_END = 3


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
    """

    def __init__(
        self,
        rates: Rates,
        granted_nusd: int,
        elapsed_s: Callable[[], float],
        requests_nusd: Callable[[], int],
        *,
        with_servers: bool = False,
    ) -> None:
        self._rates, self.granted_nusd = rates, granted_nusd
        self._elapsed_s, self._requests_nusd = elapsed_s, requests_nusd
        self._with_servers = with_servers
        self._exit_s = EXIT_S
        self._has_cap = True
        #: Writes to the storage that are paid for before they are made: a checkpoint, the model.
        self.puts_ahead = 2
        #: Reads that are to be paid for ahead: the next minibatch, and the held-out rows not yet read.
        self.gets_ahead = 2
        #: Steps that may still be taken when the end is announced.
        self.steps_to_end = STEPS_TO_END
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
    def exit_s(self) -> float:
        """Seconds that are kept paid for to end in good order."""
        return self._exit_s

    def keep_for_exit(self, seconds: float) -> None:
        """Keep ``seconds`` more paid for than a plain exit takes (to store a large model, say)."""
        self._exit_s = EXIT_S + seconds

    def wanted(self, step_s: float) -> Wanted:
        """What to ask for before another step of about ``step_s`` seconds; nothing when enough is there."""
        elapsed_s, requests = self._elapsed_s(), self._requests_nusd()
        requests += self._rates.requests_nusd(self.gets_ahead, self.puts_ahead)
        horizon_s = elapsed_s + self._exit_s + self.steps_to_end * step_s
        least = self.cost_nusd(horizon_s) + requests - self.granted_nusd
        if least <= 0:
            return Wanted()
        return Wanted(self.cost_nusd(horizon_s + max(SLICE_S, step_s)) + requests - self.granted_nusd, least)

    def add(self, nusd: int) -> None:
        """``nusd`` were granted."""
        with self._lock:
            self.granted_nusd += nusd

    def buy(self, step_s: float, reserve: Callable[[int], bool]) -> bool:
        """Ask ``reserve`` for what `wanted` says; False when not even the least of it was to be had."""
        wanted = self.wanted(step_s)
        for amount in (wanted.nusd, wanted.least_nusd):
            if amount > 0 and reserve(amount):
                self.add(amount)
                return True
        return wanted.nusd <= 0

    def watch(
        self,
        reserve: Callable[[int], bool],
        last_call: Callable[[], None],
        has_cap: Callable[[], bool] = lambda: True,
    ) -> None:
        """End this process before it can spend what it was not given, whatever it is doing then.

        While the budget allows, time is bought for a function that is held up. When it does not, ``last_call`` is made
        `LAST_CALL_S` seconds before the end, to tell why. Where ``has_cap`` says that there is no cap, a process that
        stood still for longer than was paid for goes on and pays late.
        """
        self._has_cap = has_cap()
        arguments = (reserve, last_call, has_cap)
        threading.Thread(target=self._watch, args=arguments, name="mlless-prepaid", daemon=True).start()

    def _watch(
        self, reserve: Callable[[int], bool], last_call: Callable[[], None], has_cap: Callable[[], bool]
    ) -> None:
        was_called = False
        threading.Thread(target=self._end_in_time, args=(reserve,), name="mlless-deadline", daemon=True).start()
        while not self._ended.wait(max(min(self.left_s - BUY_AHEAD_S, 0.25), 0.01)):
            # What this thread waits for may never come (a server that hangs): the deadline is another thread's.
            try:
                self._has_cap = has_cap()
                if self.left_s > BUY_AHEAD_S or was_called:
                    continue
                is_refused = not self.buy(0.0, reserve)
                if is_refused and self.left_s <= LAST_CALL_S:
                    was_called = True
                    last_call()
            except Exception:  # the server is gone or lost the run: the main thread finds out and ends, or time does
                continue

    def _end_in_time(self, reserve: Callable[[int], bool]) -> None:
        while not self._ended.wait(min(max(self.left_s, 0.0), 0.25)):
            if self.left_s <= 0 and (self._has_cap or not self._pays_late(reserve)):
                os._exit(75)

    def _pays_late(self, reserve: Callable[[int], bool]) -> bool:
        try:
            return self.buy(0.0, reserve)
        except Exception:  # the server is gone
            return False

    @property
    def left_s(self) -> float:
        """Seconds that the money granted so far still lasts."""
        left_nusd = self.granted_nusd - self._requests_nusd()
        return self._rates.seconds_for(left_nusd, with_servers=self._with_servers) - self._elapsed_s()

    def end(self) -> None:
        """The function is about to return: stop watching."""
        self._ended.set()
