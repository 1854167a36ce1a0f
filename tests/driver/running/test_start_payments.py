"""Money for functions that start late: each is paid from its own invocation on, until it has started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.driver.running.start_payments import SLICE_S, StartPayments
from mlless_nb.exchange import MemoryCoordinator, MemoryHub
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import EXIT_S
from mlless_nb.money.start import StartingMoney

RATES = Rates(price_profile("aws-lambda-x86"), 1769)
MONEY = StartingMoney(RATES, 3, True)


def payments(reserved: dict[int, int], *, is_refused: bool = False) -> StartPayments:
    """Payments that are noted in ``reserved`` by slot."""

    def reserve_start(amounts: dict[int, int], _: str) -> bool:
        for slot, nusd in amounts.items():
            reserved[slot] = reserved.get(slot, 0) + nusd
        return not is_refused

    log: Any = SimpleNamespace(reserve_start=reserve_start)
    return StartPayments(MONEY, log)


@given(looks=st.lists(st.floats(0.01, 0.19), min_size=1, max_size=60), invoked_s=st.floats(0.0, 1000.0))
def test_a_replaced_function_is_paid_for_like_one_of_the_launch(looks: list[float], invoked_s: float) -> None:
    of_launch: dict[int, int] = {}
    of_later: dict[int, int] = {}
    first, later = payments(of_launch), payments(of_later)
    first.begin([-1, 2], 0.0)
    later.begin([-1, 2], invoked_s)
    age_s = 0.0
    for pause_s in looks:
        age_s += pause_s
        assert first.pay(age_s, ())
        assert later.pay(invoked_s + age_s, ())
        for slot, paid in ((2, MONEY.worker_nusd(2)), (-1, MONEY.supervisor_nusd)):
            needed = RATES.function_nusd(age_s) + (RATES.servers_nusd(age_s) if slot < 0 else 0)
            assert paid + of_launch.get(slot, 0) >= needed
            assert paid + of_later.get(slot, 0) >= needed


def test_one_that_has_started_is_not_paid_for() -> None:
    reserved: dict[int, int] = {}
    paying = payments(reserved)
    paying.begin([0, 1], 0.0)
    late_s = MONEY.start_s + EXIT_S
    assert paying.pay(late_s - 1.5 * SLICE_S, [0])
    assert not reserved
    assert paying.pay(late_s, [0])
    assert set(reserved) == {1}
    paying.begin([0], late_s)  # it was lost, and replaced
    assert paying.pay(2 * late_s, [])
    assert set(reserved) == {0, 1}


def test_a_refusal_is_told() -> None:
    paying = payments({}, is_refused=True)
    paying.begin([0], 0.0)
    assert paying.pay(0.0, ())
    assert not paying.pay(60.0, ())


def test_a_request_whose_answer_is_lost_is_repeated_and_counts_once() -> None:
    hub = MemoryHub()
    log: Any = MemoryCoordinator(hub)
    log.create(cap_nusd=10**9, reserved_nusd=0)
    paying, plain = StartPayments(MONEY, log), log.reserve_start
    paying.begin([0, 1], 0.0)

    def lost(*given: Any) -> bool:
        plain(*given)
        log.reserve_start = plain
        raise redis.ConnectionError("the connection was lost")

    log.reserve_start = lost
    late_s = MONEY.start_s + EXIT_S
    with pytest.raises(redis.ConnectionError):
        paying.pay(late_s, ())
    once = hub.reserved
    assert once > 0
    assert paying.pay(late_s + 0.1, ())
    assert hub.reserved == once
    assert paying.pay(late_s + 0.1, ())  # and nothing is forgotten: what has passed since is paid
    assert hub.reserved > once
    assert paying.pay(late_s + 0.1, ())
    paid = sum(MONEY.slice_nusd(late_s, 0.1 + SLICE_S)[slot] for slot in (0, 1))
    assert hub.reserved >= paid
