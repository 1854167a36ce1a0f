"""The budget cap: a function runs on a prepaid grant from the budget, and ends itself when the grant is used up."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial

from .lateness import Lateness
from .meter import NUSD, Rates
from .questions import Questions
from .request import NO_REQUEST, BudgetRequest, GiveBack, Reserve

#: Seconds of a plain exit that a function keeps prepaid, beside measured ones (evaluating, storing).
EXIT_S = 0.35
#: The same for a small budget: a share of it for all functions together, and the least seconds.
EXIT_SHARE, LEAST_EXIT_S = 0.01, 0.1
#: Seconds of running that a function requests at a time; it is granted less when the cap is near.
SLICE_S = 0.5
#: The budget is scarce when it does not pay for this many more seconds of the whole run.
SCARCE_S = 2.0
#: Seconds before the end of the grant at which the watch reserves time for a function that is blocked.
BUY_AHEAD_S = 0.25
#: Longest wait for an answer when a function has overrun its grant, seconds.
ANSWER_S = 0.1
#: Steps that may still complete after a worker's request was refused: the present one, and the last one.
STEPS_TO_END = 2


class Prepaid:
    """The grant of one function, and what it has spent.

    Parameters
    ----------
    rates : Rates
    granted_nusd : int
        Initial grant, nano-dollars.
    elapsed_s : callable
        Seconds since the function was started; the bill runs from there.
    requests_nusd : callable
        Nano-dollars of its storage requests so far.
    with_servers : bool
        Whether this function pays for the servers' time (the supervisor does).
    n_functions : int
        Functions of the run, including this one.
    clock : callable
        Seconds; by it the function measures how late it is woken.
    store_nusd : callable
        Nano-dollars of its requests to the frame store so far.
    store_end_nusd : int
        Nano-dollars of such requests that it keeps prepaid for its end.
    steps_ahead : callable
        Steps that are taken after an announced end, beside `steps_to_end`.
    slice_s : float
        Seconds of running that it requests at a time.
    margin_nusd : int
        Nano-dollars reserved beyond the grant: for requests between two looks of a watch, or for servers after its end.
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
        clock: Callable[[], float] = time.monotonic,
        store_nusd: Callable[[], int] = lambda: 0,
        store_end_nusd: int = 0,
        steps_ahead: Callable[[], int] = lambda: 0,
        slice_s: float = SLICE_S,
        margin_nusd: int = 0,
    ) -> None:
        self.rates, self.granted_nusd, self._margin_nusd = rates, granted_nusd, margin_nusd
        self._elapsed_s, self._requests_nusd = elapsed_s, requests_nusd
        self._with_servers, self._run_usd_s = with_servers, rates.run_usd_s(n_functions)
        self._store_nusd, self._store_end_nusd = store_nusd, store_end_nusd
        self._steps_ahead, self._slice_s = steps_ahead, slice_s
        self._store_seen_nusd = self._store_step_nusd = 0  # up to the newest step; the most of one step
        self._plain_exit_s, self._measured_exit_s = EXIT_S, 0.0
        #: Whether the run has a budget, as far as this function knows.
        self.has_cap = True
        #: Whether the start of the function's runtime is on its bill, too; None where that is not known.
        self.is_cold: bool | None = None
        #: Whether little of the budget is left: less than `SCARCE_S` seconds of the whole run.
        self.is_scarce = False
        #: Writes to the storage that are prepaid: a checkpoint, the model.
        self.puts_ahead = 2
        #: Reads that are prepaid: the next minibatch, and the held-out rows not yet read.
        self.gets_ahead = 2
        #: Steps that may still be taken when the end is announced.
        self.steps_to_end = STEPS_TO_END
        self._step_s: float | None = None  # seconds of a step, as in the newest request
        self._n_returned = 0
        self._unanswered: list[tuple[BudgetRequest, str]] = []  # requests without an answer, with their ids
        self.lateness = Lateness(clock)
        #: Whether it returns, or has returned, what it has not spent.
        self.is_settling = False
        #: Set once it need not be watched any more.
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self.questions = Questions(self._lock, elapsed_s)

    def cost_nusd(self, span_s: float) -> int:
        """Bill of a span of ``span_s`` seconds without storage requests."""
        servers = self.rates.servers_nusd(span_s + self.rates.tail_s) if self._with_servers else 0
        return self.rates.function_nusd(span_s) + servers

    @property
    def spent_nusd(self) -> int:
        """Bill if the function ended now, including storage requests."""
        return self.cost_nusd(self._elapsed_s()) + self._requests_nusd()

    @property
    def alone_nusd(self) -> int:
        """The part of `spent_nusd` that is not for servers: if it leaves in vain, another supervisor pays for those."""
        return self.rates.function_nusd(self._elapsed_s()) + self._requests_nusd()

    def rest_nusd(self, spent_nusd: int) -> int:
        """What was reserved for the function and is not spent; below 0 if it has overrun all of it."""
        return self.granted_nusd + self._margin_nusd - spent_nusd

    @property
    def is_limited(self) -> bool:
        """Whether the grant bounds what the function may spend: with a cap, until `end`."""
        return self.has_cap and not self.ended.is_set()

    @property
    def elapsed_s(self) -> float:
        """Seconds that are billed so far."""
        return self._elapsed_s()

    @property
    def storage_nusd(self) -> int:
        """Cost of the storage requests so far, those to the frame store included."""
        return self._requests_nusd()

    @property
    def store_nusd(self) -> int:
        """The part of `storage_nusd` that is for the frame store."""
        return self._store_nusd()

    def note_step(self) -> None:
        """A step is complete: note what it cost at the frame store, which later steps will cost again."""
        spent = self._store_nusd()
        self._store_step_nusd = max(self._store_step_nusd, spent - self._store_seen_nusd)
        self._store_seen_nusd = spent

    @property
    def plain_exit_s(self) -> float:
        """Seconds of a plain exit that are kept prepaid."""
        return self._plain_exit_s

    @property
    def exit_s(self) -> float:
        """Seconds that are kept prepaid to end in good order: a plain exit, measured work, and being woken late."""
        return self._plain_exit_s + self._measured_exit_s + self.late_margin_s

    @property
    def _slow_answer_s(self) -> float:
        """Seconds that the watch reserves in addition: no step is refused for them, and the last of a budget is not."""
        return 0.0 if self.is_scarce else self.questions.slow_answer_s

    @property
    def buy_ahead_s(self) -> float:
        """Seconds before the end of the grant at which the watch reserves time for a function that is blocked."""
        return BUY_AHEAD_S + self._slow_answer_s

    @property
    def late_margin_s(self) -> float:
        """Seconds before the end of the grant at which the deadline acts: it is woken late, and so is its question.

        A started second of the servers is billed whole: with a cap, who pays for them is answered before its end.
        """
        return self.lateness.margin_s + (ANSWER_S if self._with_servers and self.has_cap else 0.0)

    def keep_for_exit(self, seconds: float) -> None:
        """Keep ``seconds`` prepaid beyond a plain exit, e.g. to store a large model."""
        self._measured_exit_s = seconds

    def learn(self, cap_nusd: int | None, reserved_nusd: int) -> None:
        """Take in the cap (None: no cap) and the amount reserved of it; with a small cap less is kept for the exit."""
        self.has_cap = cap_nusd is not None
        if cap_nusd is None:
            self._plain_exit_s, self.is_scarce = EXIT_S, False
        else:
            share_s = EXIT_SHARE * cap_nusd / NUSD / self._run_usd_s
            self._plain_exit_s = min(max(share_s, LEAST_EXIT_S), EXIT_S)
            self.is_scarce = cap_nusd - reserved_nusd < SCARCE_S * self._run_usd_s * NUSD

    def wanted(self, step_s: float, more_s: float = 0.0) -> BudgetRequest:
        """The request before another step of about ``step_s`` seconds; empty if ``more_s`` beyond it are paid."""
        if step_s > 0:
            self._step_s = step_s
        requests, horizon_s = self._ahead(step_s)
        horizon_s += more_s
        least = self.cost_nusd(horizon_s) + requests - self.granted_nusd
        if least <= 0:
            return NO_REQUEST
        return BudgetRequest(
            self.cost_nusd(horizon_s + max(self._slice_s, step_s)) + requests - self.granted_nusd, least
        )

    def _ahead(self, step_s: float) -> tuple[int, float]:
        """Storage requests, nano-dollars, and seconds since the invocation that must be prepaid before another step."""
        requests = self._requests_nusd() + self.rates.requests_nusd(self.gets_ahead, self.puts_ahead)
        # Once the last rounds have begun, they are paid from what was kept for them.
        begun = max(self._store_nusd() - self._store_seen_nusd, 0)
        n_steps = self.steps_to_end + self._steps_ahead()
        requests += n_steps * self._store_step_nusd + max(self._store_end_nusd - begun, 0)
        return requests, self._elapsed_s() + self.exit_s + n_steps * step_s

    def return_surplus(self, give_back: GiveBack) -> None:
        """Return the part of the grant that steps and exit do not need, so that other functions can use it."""
        step_s = self._step_s
        if not self.has_cap or step_s is None:
            return
        slice_s = max(self._slice_s, step_s)
        with self._lock:
            if self.is_settling:
                return
            requests, horizon_s = self._ahead(step_s)
            surplus = self.granted_nusd - requests - self.cost_nusd(horizon_s + self._slow_answer_s + slice_s)
            if surplus <= slice_s * self.rates.function_usd_s * NUSD:
                return
            self.granted_nusd -= surplus
            self._n_returned += 1
            self.questions.add()
        try:
            give_back(surplus, self._n_returned)
        finally:
            self.questions.end()

    def add(self, nusd: int) -> None:
        """Add ``nusd`` to the grant."""
        with self._lock:
            self.granted_nusd += nusd

    def buy(self, step_s: float, reserve: Reserve, more_s: float = 0.0) -> bool:
        """Reserve what `wanted` returns; False if not even its least amount was granted."""
        self._repeat_unanswered(reserve)
        wanted = self.wanted(step_s, more_s)
        return wanted.nusd <= 0 or self._ask(reserve, wanted) > 0

    def buy_reads(self, n_reads: int, reserve: Reserve) -> bool:
        """Reserve so many reads of the storage, which are made at once, beside `gets_ahead`; False if refused.

        They are made sooner than a watch of the grant would reserve more.
        """
        self.gets_ahead += n_reads
        try:
            return self.buy(0.0, reserve)
        finally:
            self.gets_ahead -= n_reads

    def hold_out(self, reserve: Reserve, *, is_late: bool = False) -> bool:
        """Reserve time to end: the full exit time, or else a short one; False if refused.

        A function that is ending takes what is left or was returned, since it needs no further step. Once it settles
        its money only one that ``is_late`` asks, as its grant is used up.
        """
        with self._lock:
            if self.is_settling and not is_late:
                return True
            self.questions.add()  # between its two requests, too
        try:
            return self._hold_out(reserve)
        finally:
            self.questions.end()

    def _hold_out(self, reserve: Reserve) -> bool:
        if self.buy(0.0, reserve, self._slow_answer_s):
            return True
        requests, elapsed_s = self._requests_nusd() - self.granted_nusd, self._elapsed_s()
        wanted, least = (self.cost_nusd(elapsed_s + span_s) + requests for span_s in (2 * BUY_AHEAD_S, BUY_AHEAD_S))
        return wanted <= 0 or self._ask(reserve, BudgetRequest(wanted, max(least, 1))) > 0

    def _ask(self, reserve: Reserve, wanted: BudgetRequest, request_id: str = "") -> int:
        """Reserve ``wanted`` and add the grant; a request without an answer is kept, to be repeated with its id."""
        request_id = request_id or uuid.uuid4().hex
        granted, is_answered, asked_s = 0, False, self.questions.begin()
        try:
            granted = reserve(wanted.nusd, wanted.least_nusd, request_id)
            is_answered = True
        finally:
            with self._lock:
                self.granted_nusd += granted
                if not is_answered:
                    self._unanswered.append((wanted, request_id))
            self.questions.end(asked_s)
        return granted

    def _repeat_unanswered(self, reserve: Reserve) -> None:
        """Repeat unanswered requests with their ids: if one was granted before, the same grant is returned."""
        while self._unanswered:
            with self._lock:
                unanswered = self._unanswered.pop() if self._unanswered else None
            if unanswered is not None:
                self._ask(reserve, *unanswered)

    @property
    def left_s(self) -> float:
        """Seconds that the grant still lasts."""
        left_nusd = self.granted_nusd - self._requests_nusd()
        return self.rates.seconds_for(left_nusd, with_servers=self._with_servers) - self._elapsed_s()

    def _unneeded_nusd(self, late_s: float, *, alone: bool, with_servers: bool) -> int:
        """What a function that is about to return, and exits so late, does not need; ``with_servers``: nor they."""
        cost_nusd, span_s = self.cost_nusd if with_servers else self.rates.function_nusd, self._elapsed_s()
        rest = self.rest_nusd(self.alone_nusd if alone else self.spent_nusd)
        return min(rest, max(rest - cost_nusd(span_s + late_s) + cost_nusd(span_s), 0))

    def settle(self, give_back: GiveBack, part: int = 0, *, alone: bool = False) -> None:
        """Return what is not spent, since the function is about to return.

        From now on the watch reserves nothing ahead. What the deadline reserves all the same until the server has
        answered is returned afterwards.

        Parameters
        ----------
        give_back : callable
        part : int
            Of the first of these calls; 0 settles the slot's money.
        alone : bool
            Whether another supervisor pays for the servers, see `alone_nusd`.
        """
        with self.questions.answered:
            self.is_settling = True
            self.questions.wait()
            late_s = max(self.lateness.margin_s - self.rates.tail_s, 0.0)  # it exits late, as it is woken late
            # A successor pays for the servers meanwhile.
            unneeded = partial(self._unneeded_nusd, late_s, alone=alone, with_servers=not (alone or part))
            rest = unneeded()
        give_back(rest, part)
        with self.questions.answered:
            self.questions.wait()
            # Less what was spent meanwhile; the second call costs as much as the first one, and nothing is kept for it.
            more = unneeded() - rest
        if more > 0:
            with contextlib.suppress(Exception):  # the run may be over by now: it stays reserved
                give_back(more, (part or self._n_returned) + 1)

    def end(self) -> None:
        """Stop watching, since the function is about to return."""
        self.ended.set()
