"""Nothing is invoked that is not paid as a whole, and a run that cannot go on waits for nobody who is dead."""

from __future__ import annotations

from typing import Any

import pytest
from driver.recovery.test_recovery import begin, heard, of_three

from mlless_nb.driver.recovery.unrecoverable import Unrecoverable
from mlless_nb.errors import ServiceError
from mlless_nb.exchange import SUPERVISOR, MemoryCoordinator
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.start import StartingMoney

RATES = Rates(price_profile("aws-lambda-x86"), 1769)
#: What the start of a supervisor takes of a budget, and of a worker, nano-dollars.
SUPERVISOR_NUSD = StartingMoney(RATES, 3, True).supervisor_nusd
WORKER_NUSD = StartingMoney(RATES, 3, True).worker_nusd(0)


def handler_of(room_nusd: int, dead: set[int]) -> tuple[Any, Any, list[int]]:
    """As `of_three`, with so much left of the budget; the processes ``dead`` have died, of 9 (the supervisor) to 12."""
    handler, hub, invoked = of_three(is_local=True)
    hub.cap = hub.reserved + room_nusd
    for slot, log in zip((SUPERVISOR, 0, 1, 2), begin(hub, SUPERVISOR, 0, 1, 2), strict=True):
        log.renew("supervisor" if slot == SUPERVISOR else str(slot), 60.0)
    assert handler.handle(is_due=True) is None
    handler._services.launcher.has_died = dead.__contains__
    return handler, hub, invoked


@pytest.mark.parametrize("n_workers_paid", [0, 1, 2])
@pytest.mark.parametrize("are_all_gone", [True, False])
def test_a_supervisor_is_not_invoked_for_workers_that_the_budget_does_not_pay_for(
    are_all_gone: bool, n_workers_paid: int
) -> None:
    room_nusd = SUPERVISOR_NUSD + n_workers_paid * WORKER_NUSD + WORKER_NUSD // 2
    handler, hub, invoked = handler_of(room_nusd, {9, 10, 11, 12})
    over = handler.revive() if are_all_gone else handler.handle(is_due=True)
    assert over is not None
    assert (over.status, invoked) == ("capped", [])
    assert hub.aborted == ("capped", over.reason)


@pytest.mark.parametrize("are_all_gone", [True, False])
def test_all_are_invoked_again_once_all_are_paid(are_all_gone: bool) -> None:
    handler, _, invoked = handler_of(10 * (SUPERVISOR_NUSD + 3 * WORKER_NUSD), {9, 10, 11, 12})
    assert (handler.revive() if are_all_gone else handler.handle(is_due=True)) is None
    assert sorted(invoked) == [SUPERVISOR, 0, 1, 2]


@pytest.mark.parametrize("is_announced", [True, False])
def test_a_run_that_was_over_before_all_were_lost_ends_as_its_plan_says(is_announced: bool) -> None:
    """The budget did not pay for reading the steps: it had "failed", though it had come to its cap."""
    handler, hub, invoked = handler_of(0, {9, 10, 11, 12})
    if is_announced:
        hub.announce(stop_after=1, stop_status="capped", stop_reason="the budget is used up")
    for slot in range(3):
        MemoryCoordinator(hub, f"{10 + slot}-a").refund(0, slot)
    over = handler.revive()
    assert over == (("the budget is used up", "capped") if is_announced else (over.reason, "failed"))
    assert not invoked


def test_a_supervisor_that_concludes_does_not_wait_for_the_leases_of_workers_that_have_died() -> None:
    handler, hub, invoked = handler_of(0, {10, 12})
    assert handler.handle(is_due=True) is None  # the supervisor concludes
    assert (invoked, hub.aborted[0]) == ([], "capped")
    assert handler._services.log.alive(["supervisor", "0", "1", "2"]) == [True, False, True, False]


def test_a_function_that_was_invoked_in_the_place_of_a_dead_one_is_not_taken_for_dead() -> None:
    """Its lease was ended, and the driver concluded a run whose supervisor was about to."""
    handler, hub, invoked = handler_of(2 * (SUPERVISOR_NUSD + WORKER_NUSD), {9, 10})
    roll_back = hub.roll_back

    def refused(*given: Any) -> Any:
        MemoryCoordinator(hub, "20-b").claim(SUPERVISOR)
        MemoryCoordinator(hub, "20-b").renew("supervisor", 60.0)
        roll_back(*given)
        return roll_back(*given)  # somebody else restarts the run

    hub.roll_back = refused  # type: ignore[method-assign]
    assert handler.handle(is_due=True) is None  # the new supervisor concludes
    assert (invoked, hub.aborted[0]) == ([SUPERVISOR], "failed")
    assert handler._services.log.alive(["supervisor", "0", "1"]) == [True, False, True]


def test_a_message_that_cannot_be_sent_is_no_restart_without_progress() -> None:
    handler, _, invoked = handler_of(10 * (SUPERVISOR_NUSD + 3 * WORKER_NUSD), {9, 10, 11, 12})
    send, refused = handler._services.bus.send, iter(range(5))

    def sent(*given: Any) -> None:
        if next(refused, None) is not None:
            raise ServiceError("the mailbox is full")
        send(*given)

    handler._services.bus.send = sent
    for _ in range(5):
        with pytest.raises(ServiceError):
            handler.revive()
    assert handler.revive() is None
    assert sorted(invoked) == [SUPERVISOR, 0, 1, 2]


@pytest.mark.parametrize("can_pay", [True, False])
def test_nobody_is_told_of_functions_that_are_not_invoked_for_lost_data(can_pay: bool) -> None:
    """The lost ones were billed until then, after the run's end: the budget did not pay for the supervisor."""
    handler, hub, invoked = handler_of(10 * (SUPERVISOR_NUSD + WORKER_NUSD), {9, 10, 11, 12})
    said = heard(handler)
    recovery = handler._recovery
    handler._telemetry.update(budget_usd=None)
    hub.lose()
    if not can_pay:
        recovery.payments.reserve_supervisor = refused_supervisor
    assert (handler.handle(is_due=True) is None) is can_pay
    assert sorted(invoked) == ([SUPERVISOR, 0, 1, 2] if can_pay else [])
    assert [slots for _, _, slots in said if slots] == ([[0, 1, 2], [SUPERVISOR]] if can_pay else [])


def refused_supervisor(*_: float) -> int:
    """What a budget says that does not pay for a supervisor."""
    raise Unrecoverable("the budget does not pay for invoking the supervisor again", "capped")
