"""Prepaid money: whoever asks before each step, and ends when refused, never spends what it was not given."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.exchange import MemoryCoordinator, MemoryHub
from mlless_nb.money import Rates, price_profile, profile_names
from mlless_nb.money.budget import (
    BUY_AHEAD_S,
    EXIT_S,
    EXIT_SHARE,
    LEAST_EXIT_S,
    SCARCE_S,
    SLICE_S,
    STEPS_TO_END,
    Prepaid,
)
from mlless_nb.money.grant_watch import LAST_CALL_S, GrantWatch
from mlless_nb.money.lateness import LATE_MOST_S
from mlless_nb.money.meter import NUSD
from mlless_nb.money.request import BudgetRequest

#: For a machine that is busy with other things.
PATIENCE_S = 30.0

RATES = st.builds(
    Rates, st.sampled_from(profile_names()).map(price_profile), st.sampled_from([128, 1769, 10_240]), st.integers(1, 3)
)


class Function:
    """A function on a clock of the test's own."""

    def __init__(
        self, rates: Rates, granted_nusd: int, with_servers: bool, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.rates = rates
        self.now_s, self.gets, self.puts = 0.0, 0, 0
        self.prepaid = Prepaid(
            rates,
            granted_nusd,
            lambda: self.now_s,
            lambda: rates.requests_nusd(self.gets, self.puts),
            with_servers=with_servers,
            clock=clock,
        )

    def take_step(self, seconds: float, gets: int = 0, puts: int = 0) -> None:
        """Let time pass and read and write objects."""
        self.now_s += seconds
        self.gets += gets
        self.puts += puts


STEPS = st.lists(st.tuples(st.floats(0, 2), st.floats(0, 1), st.integers(0, 2), st.integers(0, 2)), max_size=30)


@given(RATES, STEPS, st.integers(0, 10**7), st.booleans(), st.integers(0, 10**6))
def test_spent_is_never_above_granted(
    rates: Rates, steps: list[tuple[float, float, int, int]], room: int, with_servers: bool, extra: int
) -> None:
    start = rates.function_nusd(EXIT_S) + (rates.servers_nusd(EXIT_S + 1) if with_servers else 0)
    log = MemoryCoordinator(MemoryHub())
    log.create(cap_nusd=start + room, reserved_nusd=start)
    function = Function(rates, start, with_servers)
    for step_s, share, gets, puts in steps:
        wanted = function.prepaid.wanted(step_s)
        assert 0 <= wanted.least_nusd <= wanted.nusd
        if wanted.nusd:
            granted = log.reserve(wanted.nusd, wanted.least_nusd)
            function.prepaid.granted_nusd += granted
            if not granted:
                break
        # What was asked for covers the step, as many again until all know of the end, and a clean exit.
        function.take_step(share * step_s, gets, puts)
        assert function.prepaid.spent_nusd <= function.prepaid.granted_nusd
        left_s = (STEPS_TO_END - share) * step_s + EXIT_S
        assert function.prepaid.cost_nusd(function.now_s + left_s) <= function.prepaid.granted_nusd
    cap, reserved = log.money()
    assert cap is not None
    assert function.prepaid.granted_nusd == reserved <= cap


@given(RATES, st.integers(0, 10**8), st.floats(0, 3), st.floats(0, 10), st.booleans())
def test_nothing_is_asked_for_right_after_a_grant(
    rates: Rates, granted: int, step_s: float, now_s: float, with_servers: bool
) -> None:
    function = Function(rates, granted, with_servers)
    function.now_s = now_s
    wanted = function.prepaid.wanted(step_s)
    function.prepaid.granted_nusd += wanted.least_nusd
    assert function.prepaid.wanted(step_s) == BudgetRequest()
    function.prepaid.granted_nusd += wanted.nusd - wanted.least_nusd
    assert function.prepaid.wanted(step_s) == BudgetRequest()
    if wanted.nusd:
        # A whole slice is there: the next question comes after about as long.
        function.take_step(0.99 * max(SLICE_S, step_s) - 2 * rates.profile.function.quantum_s)
        assert function.prepaid.wanted(step_s) == BudgetRequest()


@given(RATES, st.floats(0, 100), st.integers(0, 100), st.integers(0, 100), st.booleans())
def test_the_parts_of_a_bill_add_up(rates: Rates, now_s: float, gets: int, puts: int, with_servers: bool) -> None:
    function = Function(rates, 0, with_servers)
    function.take_step(now_s, gets, puts)
    prepaid = function.prepaid
    assert prepaid.storage_nusd == rates.requests_nusd(gets, puts)
    assert prepaid.spent_nusd == prepaid.cost_nusd(now_s) + prepaid.storage_nusd
    tail_s = rates.tail_s
    servers = rates.servers_nusd(now_s + tail_s) if with_servers else 0
    assert prepaid.cost_nusd(now_s) == rates.function_nusd(now_s) + servers


def test_whoever_keeps_more_for_the_exit_asks_sooner_and_writes_ahead_are_paid_for() -> None:
    rates = Rates(price_profile("aws-lambda-x86"), 1769)
    granted = rates.function_nusd(EXIT_S + 0.1) + rates.requests_nusd(2, 2)
    function = Function(rates, granted, with_servers=False)
    assert function.prepaid.wanted(0.0) == BudgetRequest()
    function.prepaid.keep_for_exit(0.2)
    assert function.prepaid.wanted(0.0).nusd > 0
    function.prepaid.keep_for_exit(0.0)
    function.prepaid.puts_ahead = 3
    assert function.prepaid.wanted(0.1).nusd > 0
    function.prepaid.puts_ahead = 0
    assert function.prepaid.wanted(0.03) == BudgetRequest()


class Watched(Function):
    """A function under watch, in a process whose end is only noted."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, room_nusd: int | None, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        rates = Rates(price_profile("aws-lambda-x86"), 1769)
        super().__init__(rates, rates.function_nusd(3.0), with_servers=False, clock=clock)
        self.log = MemoryCoordinator(MemoryHub())
        self.log.create(cap_nusd=room_nusd, reserved_nusd=0)
        self.called, self.bought, self.exited, self.looked, self._released = (threading.Event() for _ in range(5))
        self.answers = threading.Event()
        self.answers.set()
        self._was_asked = False
        monkeypatch.setattr(os, "_exit", self._exit)
        self._before = set(threading.enumerate())
        self.prepaid.learn(*self._money())
        GrantWatch(self.prepaid, self._reserve, self.called.set, self._money)

    def _exit(self, code: int) -> None:
        self.exited.set()
        self._released.wait(PATIENCE_S)

    def _money(self) -> tuple[int | None, int]:
        self.answers.wait(PATIENCE_S)
        if self._was_asked:  # so the first answer was heard
            self.looked.set()
        self._was_asked = True
        return self.log.money()

    def _reserve(self, nusd: int, least_nusd: int, request_id: str) -> int:
        self.answers.wait(PATIENCE_S)
        granted = self.log.reserve(nusd, least_nusd, request_id)
        if granted:
            self.bought.set()
        return granted

    def end(self) -> None:
        """End it; the watch ends with it."""
        self.prepaid.end()
        self._released.set()
        self.answers.set()
        deadline = time.monotonic() + PATIENCE_S
        while (left := set(threading.enumerate()) - self._before) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not left


def test_a_function_that_hangs_ends_itself_before_its_money_does(monkeypatch: pytest.MonkeyPatch) -> None:
    function = Watched(monkeypatch, room_nusd=0)
    try:
        function.now_s = 3.0 - 0.8 * LAST_CALL_S
        assert function.called.wait(PATIENCE_S)
        assert not function.exited.is_set()
        assert function.prepaid.spent_nusd <= function.prepaid.granted_nusd
        function.now_s = 3.0
        assert function.exited.wait(PATIENCE_S)
        assert function.prepaid.spent_nusd <= function.prepaid.granted_nusd
    finally:
        function.end()


def test_a_function_that_is_woken_late_ends_itself_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    for clock, ends in ((lambda: 0.0, False), (itertools.count(0.0, 10.0).__next__, True)):
        function = Watched(monkeypatch, room_nusd=0, clock=clock)
        try:
            assert function.looked.wait(PATIENCE_S)
            kept_s = function.prepaid.exit_s - function.prepaid.plain_exit_s
            assert kept_s == (LATE_MOST_S if ends else 0.0)
            function.now_s = 3.0 - LATE_MOST_S / 2
            assert function.exited.wait(PATIENCE_S if ends else 0.3) == ends
            assert function.prepaid.spent_nusd < function.prepaid.granted_nusd
        finally:
            function.end()


def test_time_is_bought_for_a_function_that_is_held_up_while_the_budget_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    function = Watched(monkeypatch, room_nusd=10**8)
    try:
        function.now_s = 3.0 - 0.1
        assert function.bought.wait(PATIENCE_S)
    finally:
        function.end()
    assert not function.called.is_set()
    assert not function.exited.is_set()
    assert function.prepaid.granted_nusd == function.rates.function_nusd(3.0) + function.log.money()[1]
    assert function.prepaid.wanted(0.0) == BudgetRequest()


@pytest.mark.parametrize("room_nusd", [None, 10**8], ids=["no cap", "far from the cap"])
def test_a_function_that_stood_still_pays_late_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, room_nusd: int | None
) -> None:
    function = Watched(monkeypatch, room_nusd)
    try:
        assert function.looked.wait(PATIENCE_S)
        function.now_s = 30.0  # far beyond what was paid for, all at once
        assert function.bought.wait(PATIENCE_S)
    finally:
        function.end()
    assert not function.exited.is_set()
    assert not function.called.is_set()
    assert function.prepaid.spent_nusd <= function.prepaid.granted_nusd


def test_a_function_that_stood_still_beyond_the_cap_ends_itself_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    function = Watched(monkeypatch, room_nusd=0)
    try:
        assert function.looked.wait(PATIENCE_S)
        function.now_s = 30.0
        assert function.exited.wait(PATIENCE_S)
        assert function.called.is_set()
    finally:
        function.end()


def test_with_a_cap_nobody_waits_for_books_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    function = Watched(monkeypatch, room_nusd=10**8)
    try:
        assert function.looked.wait(PATIENCE_S)
        function.answers.clear()
        function.now_s = 30.0
        assert function.exited.wait(PATIENCE_S)
        assert not function.bought.is_set()
    finally:
        function.end()


@given(RATES, st.integers(1, 64), st.integers(0, 10**9), st.floats(0, 2))
def test_of_a_small_budget_less_is_kept_for_the_exit(
    rates: Rates, n_functions: int, cap_nusd: int, measured_s: float
) -> None:
    prepaid = Prepaid(rates, 0, lambda: 0.0, lambda: 0, n_functions=n_functions)
    run_nusd_s = NUSD * (n_functions * rates.function_usd_s + rates.servers_usd_s)
    assert prepaid.exit_s == EXIT_S
    prepaid.keep_for_exit(measured_s)
    prepaid.learn(cap_nusd, 0)
    plain_s = prepaid.exit_s - measured_s
    assert LEAST_EXIT_S - 1e-9 <= plain_s <= EXIT_S + 1e-9
    assert plain_s * run_nusd_s <= max(EXIT_SHARE * cap_nusd, LEAST_EXIT_S * run_nusd_s) * (1 + 1e-9)
    assert prepaid.is_scarce == (cap_nusd < SCARCE_S * run_nusd_s)
    prepaid.learn(None, 0)
    assert prepaid.exit_s == EXIT_S + measured_s
    assert not prepaid.is_scarce


def test_what_turned_out_not_to_be_needed_is_given_back_for_the_others() -> None:
    rates = Rates(price_profile("aws-lambda-x86"), 1769)
    function, returned = Function(rates, rates.function_nusd(30.0), with_servers=False), []
    prepaid = function.prepaid
    prepaid.return_surplus(lambda nusd, part: returned.append((nusd, part)))
    assert not returned  # before the first step nobody knows what that takes
    assert prepaid.wanted(0.1) == BudgetRequest()
    prepaid.return_surplus(lambda nusd, part: returned.append((nusd, part)))
    assert [part for _, part in returned] == [1]
    assert prepaid.granted_nusd == rates.function_nusd(30.0) - returned[0][0]
    assert prepaid.wanted(0.1) == BudgetRequest()
    function.now_s += SLICE_S / 2
    prepaid.return_surplus(lambda nusd, part: returned.append((nusd, part)))
    assert len(returned) == 1


def test_who_is_on_its_way_out_takes_what_is_left() -> None:
    rates = Rates(price_profile("aws-lambda-x86"), 1769)
    function = Function(rates, rates.function_nusd(1.0), with_servers=False)
    function.prepaid.keep_for_exit(10.0)
    function.now_s = 0.95
    log = MemoryCoordinator(MemoryHub())
    room = rates.function_nusd(1.3) - rates.function_nusd(1.0)
    log.create(cap_nusd=room, reserved_nusd=0)
    assert not function.prepaid.buy(0.0, log.reserve)
    assert function.prepaid.hold_out(log.reserve)
    assert function.prepaid.left_s > BUY_AHEAD_S - 0.01
    function.now_s = 1.5
    assert not function.prepaid.hold_out(log.reserve)


def test_the_watch_ends_with_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    function = Watched(monkeypatch, room_nusd=0)
    function.end()
    function.now_s = 100.0
    assert not function.exited.is_set()
    assert not function.called.is_set()


def test_a_request_that_was_not_answered_is_paid_for_once() -> None:
    """The server took the money and its answer was lost: the repeat is told of the same money."""
    rates = Rates(price_profile("aws-lambda-x86"), 1769)
    function = Function(rates, rates.function_nusd(0.1), with_servers=False)
    log = MemoryCoordinator(MemoryHub())
    log.create(cap_nusd=NUSD, reserved_nusd=0)
    asked: list[str] = []

    def lose_answers(nusd: int, least_nusd: int, request_id: str) -> int:
        asked.append(request_id)
        granted = log.reserve(nusd, least_nusd, request_id)
        if len(asked) < 4:
            raise ConnectionError("the answer was lost")
        return granted

    granted_before = function.prepaid.granted_nusd
    for _ in range(3):
        with pytest.raises(ConnectionError):
            function.prepaid.buy(0.1, lose_answers)
    assert function.prepaid.buy(0.1, lose_answers)
    assert len(set(asked)) == 1
    assert function.prepaid.granted_nusd - granted_before == log.money()[1] > 0


def test_requests_to_the_frame_store_are_prepaid_for_the_next_steps_and_for_the_end() -> None:
    rates, spent = Rates(price_profile("aws-lambda-x86"), 1769), [0]

    def prepaid(**store: int) -> Prepaid:
        return Prepaid(rates, 0, lambda: 1.0, lambda: spent[0], store_nusd=lambda: spent[0], **store)

    plain, keeps = prepaid(), prepaid(store_end_nusd=5000)
    assert keeps.wanted(0.0).least_nusd == plain.wanted(0.0).least_nusd + 5000
    for cost in (0, 300, 700, 200):  # nano-dollars of a step
        before = keeps.wanted(0.0).least_nusd
        spent[0] += cost
        # What a step costs is paid from what was kept, until the step is noted.
        assert keeps.wanted(0.0).least_nusd == before
        for one in (plain, keeps):
            one.note_step()
    assert keeps.wanted(0.0).least_nusd - plain.wanted(0.0).least_nusd == 5000
    idle = Prepaid(rates, 0, lambda: 1.0, lambda: spent[0])
    assert plain.wanted(0.0).least_nusd - idle.wanted(0.0).least_nusd == plain.steps_to_end * 700
    spent[0] += 9000
    assert keeps.wanted(0.0).least_nusd == plain.wanted(0.0).least_nusd  # the end has begun
