"""Who invokes whom, and what happens if a function cannot invoke others."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from engine.threads import Job
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb import BSP, PMF, SGD, ServiceError
from mlless_nb.bus import open_bus
from mlless_nb.bus.messages import Invocation, Trouble
from mlless_nb.driver.backends.exits import Exits
from mlless_nb.driver.backends.lithops_config import can_functions_invoke
from mlless_nb.driver.launch.fan_out import MOST_INVOKED, fanned_out, inviter_of, n_inviters
from mlless_nb.driver.recovery.fault_handling import FaultHandler
from mlless_nb.driver.recovery.recovery import Recovery
from mlless_nb.exchange import FROM_THE_START, SUPERVISOR
from mlless_nb.exchange.plan import NO_PLAN
from mlless_nb.exchange.standing import Standing
from mlless_nb.function import inviting
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.start import StartingMoney
from mlless_nb.stateless import nested
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.telemetry.live import Telemetry

RATES = Rates(price_profile("aws-lambda-x86"), 1769)
WORKER = Job(PMF(rank=2), SGD(0.2), BSP(), 4, 5, "mean", {}).invocation(0)


def invocations(n_workers: int) -> list[Invocation]:
    """The supervisor's, and that of each worker, with different grants."""
    slots = [SUPERVISOR, *range(n_workers)]
    return [dataclasses.replace(WORKER, slot=slot, granted_nusd=1000 + slot, n_workers=n_workers) for slot in slots]


@given(st.integers(1, 3000), st.booleans())
def test_each_function_is_invoked_once_and_nobody_invokes_many(n_workers: int, can_invoke: bool) -> None:
    n = n_inviters(n_workers, can_invoke=can_invoke)
    assert (n > 0) == (can_invoke and n_workers > MOST_INVOKED)
    if n_workers > 300:
        return  # to make the invocations takes long; the arithmetic is the same
    first = fanned_out(all_of := invocations(n_workers), n)
    invoked = [(one.slot, one.granted_nusd) for one in first]
    invoked += [(slot, nusd) for one in first for slot, nusd in one.invites]
    assert sorted(invoked) == [(one.slot, one.granted_nusd) for one in all_of]
    assert len(first) == 1 + (n or n_workers)
    assert all(len(one.invites) <= n for one in first)
    assert all(inviter_of(slot, n) == one.slot for one in first for slot, _ in one.invites)
    assert [one for one in first if one.slot == SUPERVISOR and not one.invites]


def test_who_invokes_others_has_the_money_for_it() -> None:
    each = RATES.requests_nusd(nested.GETS, nested.PUTS)
    flat, money = StartingMoney(RATES, 200, False), StartingMoney(RATES, 200, False, n_inviters=15, inviting_nusd=each)
    assert [money.worker_nusd(slot) - flat.worker_nusd(slot) for slot in (0, 14, 15, 199)] == [each, each, 0, 0]
    assert money.least_nusd(0) == flat.least_nusd(0) + 15 * each


@pytest.mark.parametrize(
    ("section", "can"),
    [({"region": "a"}, True), ({"access_key_id": "a", "secret_access_key": "b"}, False)],
)
def test_functions_without_the_keys_of_the_backend_invoke_nobody(section: dict[str, str], can: bool) -> None:
    config = {"lithops": {"backend": "aws_lambda", "storage": "aws_s3"}, "aws_lambda": section, "aws_s3": {"k": "v"}}
    assert can_functions_invoke(config) == can
    assert not can_functions_invoke({"lithops": {"backend": "k8s", "storage": "aws_s3"}, "k8s": section})


def test_a_failure_to_invoke_others_is_reported_with_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ServiceError("too many requests")

    monkeypatch.setattr(nested, "invoke", refuse)
    objects = MemoryObjects()
    inviter = dataclasses.replace(WORKER, slot=1, job_id="inviting", invites=[[3, 50], [5, 60]])
    bus = open_bus("memory://", "inviting")
    thread = inviting.invite(inviter, objects, lambda: None)
    assert thread is not None
    thread.join()
    (body,) = bus.receive("driver", 10.0)
    reason = "worker 1 could not invoke others: ServiceError: too many requests"
    assert Trouble.decode(body) == Trouble(3, 0, reason, is_lost=True, others=[5])
    assert (objects.gets, objects.puts) == (nested.GETS, nested.PUTS)
    assert inviting.invite(WORKER, objects, lambda: None) is None


def replaced(
    n_inviters: int, at_work: dict[int, str], lost: list[int], troubles: list[Trouble]
) -> tuple[list[int], str]:
    """The slots that the driver invokes in a run of four workers, and what it tells."""
    invoked: list[Invocation] = []
    log: Any = SimpleNamespace(
        identities=list,
        standing=lambda slots: Standing(NO_PLAN, log.at_work(slots), 0, FROM_THE_START, []),
        restart=lambda: FROM_THE_START,
        reserve=lambda nusd, *_: nusd,
        reserve_start=lambda nusd, request_id: True,
        money=lambda: (None, 0),
        settled=lambda slots: set(),
        at_work=lambda slots: {slot: nonce for slot, nonce in at_work.items() if slot in slots},
        roll_back=lambda known, step, replaced, n_workers, origin: known._replace(number=known.number + 1),
    )
    known = {"objects": MemoryObjects(), "newest": "M000", "exits": Exits(list)}
    launcher = SimpleNamespace(has_died=lambda pid: pid in lost, is_local=True, **known)
    bus = SimpleNamespace(send=lambda *_: None)
    services: Any = SimpleNamespace(log=log, launcher=launcher, bus=bus, dues=None)
    money, telemetry = StartingMoney(RATES, 4, True, n_inviters=n_inviters), Telemetry()
    recovery = Recovery(services, invocations(4), money, RATES, telemetry, 0.0, invoked.extend)
    contact: Any = SimpleNamespace(
        is_silent=lambda: False, n_unheard=1, silence_s=0.0, is_starting=False, listen=lambda: None
    )
    handler = FaultHandler(services, recovery, contact, telemetry, 4, 0)
    handler.troubles = troubles
    assert handler.handle(is_due=True) is None
    return [one.slot for one in invoked], telemetry.state.events[-1].text


def test_who_was_to_be_invoked_by_a_lost_function_and_is_not_there_is_replaced_with_it() -> None:
    at_work = {SUPERVISOR: "10-a", 0: "11-b", 1: "12-c", 2: "13-d"}
    assert replaced(2, at_work, [12], [])[0] == [1, 3]
    assert replaced(0, at_work, [12], [])[0] == [1]
    at_work[3] = "14-e"
    assert replaced(2, at_work, [12], [])[0] == [1]


def test_all_that_could_not_be_invoked_are_invoked_at_once() -> None:
    at_work = {SUPERVISOR: "10-a", 0: "11-b"}
    trouble = Trouble(1, 0, "worker 0 could not invoke others: no", is_lost=True, others=[2, 3])
    slots, told = replaced(1, at_work, [], [trouble])
    assert slots == [1, 2, 3]
    assert told.startswith("Worker 0 could not invoke others: no; workers 1, 2, 3 replaced")
