"""A function that returns what it has not spent, while its watch may still reserve more."""

from __future__ import annotations

import threading

import pytest

from mlless_nb.money import Rates, price_profile, questions
from mlless_nb.money.budget import BUY_AHEAD_S, Prepaid

RATES = Rates(price_profile("aws-lambda-x86"), 1769)
GRANTED, REQUEST = RATES.function_nusd(5.0), 100


class Settling:
    """A function of three seconds whose grant is raised by ``bought`` while it returns the rest."""

    def __init__(self, bought: int = 0, price: int = 0) -> None:
        self.requested, self.calls, self.elapsed_s = 0, list[tuple[int, int]](), 3.0
        self._bought, self._price = bought, price
        self.prepaid = Prepaid(RATES, GRANTED, lambda: self.elapsed_s, lambda: self.requested)

    def give_back(self, nusd: int, part: int) -> None:
        """Note it."""
        assert self.prepaid.is_settling
        self.calls.append((nusd, part))
        self.requested += self._price
        self.prepaid.add(self._bought)
        self._bought = 0


REST = GRANTED - RATES.function_nusd(3.0)


def test_the_rest_is_returned_once() -> None:
    function = Settling()
    function.prepaid.settle(function.give_back)
    assert function.calls == [(REST, 0)]


@pytest.mark.parametrize(("part", "second"), [(0, 1), (7, 8)])
def test_what_is_reserved_meanwhile_is_returned_too(part: int, second: int) -> None:
    function = Settling(bought=5000)
    function.prepaid.settle(function.give_back, part)
    assert function.calls == [(REST, part), (5000, second)]


def test_one_that_was_woken_late_keeps_what_a_late_exit_costs() -> None:
    function = Settling()
    function.prepaid.lateness.margin_s = RATES.tail_s  # it is billed so much after its return anyway
    function.prepaid.settle(function.give_back)
    assert function.calls == [(REST, 0)]
    late = Settling()
    late.prepaid.lateness.margin_s = RATES.tail_s + 0.2
    late.prepaid.settle(late.give_back)
    assert late.calls == [(GRANTED - RATES.function_nusd(3.2), 0)]


@pytest.mark.parametrize("left_nusd", [0, 10, -10])
def test_no_more_is_kept_for_a_late_exit_than_is_left(left_nusd: int) -> None:
    function = Settling()
    function.prepaid.granted_nusd = RATES.function_nusd(3.0) + left_nusd
    function.prepaid.lateness.margin_s = 0.5
    function.prepaid.settle(function.give_back)
    assert function.calls == [(min(left_nusd, 0), 0)]


@pytest.mark.parametrize(("part", "seconds"), [(0, 1), (7, 0)])
def test_a_supervisor_that_was_woken_late_keeps_the_second_of_the_servers_in_which_it_may_exit(
    part: int, seconds: int
) -> None:
    """One that hands over does not: its successor pays for the servers."""
    rates, returned = Rates(price_profile("aws-lambda-x86"), 1769, 1), list[int]()
    for late_s in (0.0, 0.2):
        prepaid = Prepaid(rates, 10 * GRANTED, lambda: 3.9, lambda: 0, with_servers=True)
        prepaid.lateness.margin_s = rates.tail_s + late_s
        prepaid.settle(lambda nusd, _: returned.append(nusd), part)
    second = rates.servers_nusd(5.0) - rates.servers_nusd(4.0)
    assert returned[0] - returned[1] == seconds * second + rates.function_nusd(4.1) - rates.function_nusd(3.9)


def test_the_second_call_is_paid_from_what_it_returns() -> None:
    function = Settling(bought=5000, price=REQUEST)
    function.prepaid.settle(function.give_back)
    assert function.calls == [(REST, 0), (5000 - REQUEST, 1)]
    little = Settling(bought=REQUEST, price=REQUEST)
    little.prepaid.settle(little.give_back)
    assert little.calls == [(REST, 0)]


def test_what_is_spent_meanwhile_is_kept() -> None:
    function = Settling(bought=RATES.function_nusd(1.0))

    def give_back(nusd: int, part: int) -> None:
        function.give_back(nusd, part)
        function.elapsed_s = 3.5

    function.prepaid.settle(give_back)
    assert sum(nusd for nusd, _ in function.calls) == function.prepaid.granted_nusd - RATES.function_nusd(3.5)


def test_a_run_that_is_over_by_then_is_no_error() -> None:
    function = Settling(bought=5000)

    def once(nusd: int, part: int) -> None:
        if function.calls:
            raise ConnectionError
        function.give_back(nusd, part)

    function.prepaid.settle(once)
    assert function.calls == [(REST, 0)]


def test_an_answer_that_is_on_its_way_is_waited_for() -> None:
    function, asked, answers = Settling(), threading.Event(), threading.Event()

    def reserve(nusd: int, least_nusd: int, request_id: str) -> int:
        asked.set()
        answers.wait(30.0)
        return nusd

    prepaid = function.prepaid
    prepaid.granted_nusd = RATES.function_nusd(3.0 + BUY_AHEAD_S / 2)
    buying = threading.Thread(target=prepaid.hold_out, args=(reserve,))
    buying.start()
    assert asked.wait(30.0)
    threading.Timer(0.02, answers.set).start()
    prepaid.settle(function.give_back)
    buying.join(30.0)
    assert sum(nusd for nusd, _ in function.calls) == prepaid.granted_nusd - RATES.function_nusd(3.0)


def test_no_surplus_is_returned_beside_the_rest() -> None:
    function = Settling()
    prepaid = function.prepaid
    prepaid.learn(10**12, 0)
    prepaid.wanted(0.01)
    prepaid.settle(function.give_back)
    prepaid.return_surplus(function.give_back)
    assert function.calls == [(REST, 0)]


def test_an_answer_that_comes_after_the_rest_was_returned_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function is held up between two requests, e.g. by other threads: the first one was refused."""
    function, asked, answers, wanted = Settling(), threading.Event(), threading.Event(), list[int]()

    def reserve(nusd: int, least_nusd: int, request_id: str) -> int:
        wanted.append(nusd)
        asked.set()
        answers.wait(30.0)
        return nusd if len(wanted) == 2 else 0

    def give_back(nusd: int, part: int) -> None:
        function.give_back(nusd, part)
        monkeypatch.setattr(questions, "ANSWERS_S", 30.0)  # the other thread may run late
        answers.set()

    prepaid = function.prepaid
    prepaid.granted_nusd = RATES.function_nusd(3.0 + BUY_AHEAD_S / 2)
    buying = threading.Thread(target=prepaid.hold_out, args=(reserve,))
    buying.start()
    assert asked.wait(30.0)
    prepaid.settle(give_back)
    buying.join(30.0)
    assert len(wanted) == 2
    assert sum(nusd for nusd, _ in function.calls) == prepaid.granted_nusd - RATES.function_nusd(3.0)


@pytest.mark.parametrize("is_late", [False, True])
def test_once_it_settles_only_one_whose_grant_is_used_up_asks_for_more(is_late: bool) -> None:
    function, wanted = Settling(), list[int]()

    def reserve(nusd: int, least_nusd: int, request_id: str) -> int:
        wanted.append(nusd)
        return nusd

    prepaid = function.prepaid
    prepaid.granted_nusd = RATES.function_nusd(3.0 + BUY_AHEAD_S / 2)
    prepaid.settle(function.give_back)
    assert prepaid.hold_out(reserve, is_late=is_late)
    assert bool(wanted) == is_late
