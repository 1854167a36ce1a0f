"""The servers' time while a supervisor reserves nothing for it, because it is lost and not missed yet."""

from __future__ import annotations

import time

import pytest
from driver.recovery.test_recovery import RATES, of_three

from mlless_nb.driver.recovery.recovery_payments import PAID_AHEAD_S, RecoveryPayments
from mlless_nb.driver.recovery.unrecoverable import Unrecoverable
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.start import StartingMoney

TEN_S = RATES.servers_nusd(10.0) - RATES.servers_nusd(0.0)


@pytest.mark.parametrize(("is_local", "ends"), [(False, True), (True, False)])
def test_a_run_ends_before_the_servers_have_passed_its_cap(is_local: bool, ends: bool) -> None:
    """On a cloud a lost supervisor is missed after 15 to 90 s; nobody paid for them, and the cap was passed."""
    handler, hub, invoked = of_three(is_local=is_local, silence_s=PAID_AHEAD_S + 10.0)
    hub.leases["supervisor"] = time.monotonic() + 1e6  # it may be lost all the same, and is not waited for
    hub.cap = 900 + TEN_S
    assert handler.handle(is_due=True) is None
    assert hub.aborted is None
    hub.cap -= 1
    over = handler.handle(is_due=True)
    assert (over is not None, hub.aborted is not None, invoked) == (ends, ends, [])
    if over is not None:
        assert (over.status, hub.reserved) == ("capped", hub.cap)  # what is spent is in the books


@pytest.mark.parametrize(
    ("cap_nusd", "reserved_nusd", "paid_nusd"),
    [(None, 900, TEN_S), (10**9, 900, TEN_S), (900, 900, 0), (900, 1200, 0)],  # reserved may be above the cap
)
def test_the_time_is_paid_once_as_far_as_the_cap_allows(
    cap_nusd: int | None, reserved_nusd: int, paid_nusd: int
) -> None:
    handler, hub, _ = of_three(is_local=False, silence_s=PAID_AHEAD_S + 10.0)
    hub.cap, hub.reserved = cap_nusd, reserved_nusd
    for _ in range(2):
        handler._end(Unrecoverable("gone"))
    assert hub.reserved == reserved_nusd + paid_nusd


def test_the_start_of_servers_is_not_paid_again() -> None:
    """Two minutes of a frame store's server were reserved for each moment of silence."""
    handler, hub, _ = of_three(is_local=False)
    rates = Rates(price_profile("aws-lambda-x86"), 1769, store_servers=("memcached", 1))
    payments = RecoveryPayments(handler._services, StartingMoney(rates, 3, False), rates, 3)
    hub.cap = 900 + rates.servers_nusd(11.0) - rates.servers_nusd(0.0)
    assert not payments.are_used_up(PAID_AHEAD_S + 10.0, is_starting=False)
    assert payments.are_used_up(PAID_AHEAD_S + 12.0, is_starting=False)


@pytest.mark.parametrize(("room_s", "status"), [(9.0, "capped"), (11.0, "")])
def test_a_run_does_not_wait_for_servers_that_its_budget_does_not_pay_for(room_s: float, status: str) -> None:
    """They may be away for two minutes; the supervisor ends at once, and nobody reserved what they cost."""
    handler, hub, invoked = of_three(is_local=False, silence_s=PAID_AHEAD_S + 10.0)
    handler._contact.unanswered = lambda: False  # type: ignore[method-assign]
    hub.lose()
    room = RATES.servers_nusd(room_s) - RATES.servers_nusd(0.0)
    handler._telemetry.update(budget_usd=None)
    assert handler.unanswered("refused") is None  # no budget is known of
    handler._telemetry.update(budget_usd=(900 + room) / 1e9, committed_usd=900 / 1e9)
    over = handler.unanswered("refused")
    assert (over.status if over is not None else "") == status
    assert over is None or "did not answer: refused" in over.reason
    handler._contact.unanswered = lambda: True  # type: ignore[method-assign]
    over = handler.unanswered("refused")
    assert over is not None
    assert (over.reason, over.status, invoked) == ("the run's servers do not answer: refused", "failed", [])
