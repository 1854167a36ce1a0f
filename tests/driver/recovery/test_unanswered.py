"""A recovery whose servers fail meanwhile: what was asked for, or had begun, is done once they answer."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from driver.recovery.test_recovery import RATES, begin, heard, of_three

from mlless_nb.bus.messages import Aged, Invoked, Trouble
from mlless_nb.driver.recovery import invoking
from mlless_nb.driver.servers.request_dues import RequestDues
from mlless_nb.errors import ServiceError
from mlless_nb.exchange import SUPERVISOR, MemoryCoordinator, MemoryHub
from mlless_nb.money.start import StartingMoney
from mlless_nb.storage.objects import MemoryObjects


def failing_once(error: Exception, plain: Callable[..., Any], *, is_done: bool = False) -> Callable[..., Any]:
    """``plain``, whose first call fails, after it ``is_done`` or before."""
    errors = [error]

    def call(*given: Any, **named: Any) -> Any:
        if not errors:
            return plain(*given, **named)
        if is_done:
            plain(*given, **named)
        raise errors.pop()

    return call


AWAY = redis.ConnectionError("Connection refused")
REFUSED = ServiceError("object storage: slow down (503)")


def test_successors_that_are_asked_for_while_a_server_is_away_are_invoked() -> None:
    """The supervisor asks once: the lifetime of the functions before them ended the run."""
    handler, hub, invoked = of_three(is_local=False)
    hub.cap = None
    log: Any = handler._services.log
    log.reserve = failing_once(AWAY, log.reserve)
    handler.aged.append(Aged([1, 2]))
    with pytest.raises(redis.ConnectionError):
        handler.handle(is_due=True)
    assert invoked == []
    for _ in range(2):
        assert handler.handle(is_due=True) is None
    assert (invoked, handler.aged) == ([1, 2], [])


@pytest.mark.parametrize(
    ("server", "request_", "error"),
    [
        ("log", "roll_back", AWAY),
        ("log", "reserve", AWAY),
        ("log", "settled", AWAY),
        ("objects", "list", REFUSED),
    ],
)
def test_a_lost_worker_that_is_reported_while_a_server_fails_is_replaced(
    server: str, request_: str, error: Exception
) -> None:
    """Nobody reports it again: the supervisor ended the run. A storage that refused a request ended it at once."""
    handler, hub, invoked = of_three(is_local=False)
    hub.cap, said = None, heard(handler)
    begin(hub, SUPERVISOR, 0, 1, 2)
    assert handler.handle(is_due=True) is None
    failing: Any = handler._services.log if server == "log" else handler._services.launcher.objects
    setattr(failing, request_, failing_once(error, getattr(failing, request_)))
    handler.troubles.append(Trouble(0, 0, "worker 0 was lost", is_lost=True))
    with pytest.raises(redis.ConnectionError):
        handler.handle(is_due=True)
    for _ in range(2):
        assert handler.handle(is_due=True) is None
    assert (invoked, said, handler.troubles) == ([0], [(1, 0, [0])], [])


@pytest.mark.parametrize("is_done", [True, False])
def test_a_supervisor_that_cannot_be_told_of_a_restart_is_told_later(is_done: bool) -> None:
    """It was not told at all, and ended the run for the worker that it still missed."""
    handler, hub, invoked = of_three(is_local=False)
    hub.cap, said = None, heard(handler)
    _, _, _, leaver = begin(hub, SUPERVISOR, 0, 1, 2)
    bus: Any = handler._services.bus
    bus.send = failing_once(ServiceError("the control bus has been away for 10 s"), bus.send, is_done=is_done)
    roll_back = hub.roll_back

    def late(*given: Any) -> None:
        leaver.refund(0, 2)
        roll_back(*given)

    hub.roll_back = late  # type: ignore[method-assign]
    handler.troubles.append(Trouble(0, 0, "worker 0 was lost", is_lost=True))
    for _ in range(2):
        assert handler.handle(is_due=True) is None
    # Neither is the one forgotten that ended in the same moment.
    news = [(1, 0, [0]), (2, 0, [2])]
    assert (invoked, said) == ([0, 2], [*news[:is_done], *news])


def test_functions_are_invoked_though_a_server_fails_once_the_restart_is_decided() -> None:
    """Who has asked for the restart was done, and so nobody invoked them: the supervisor ended the run."""
    handler, hub, invoked = of_three(is_local=False)
    hub.cap, said = None, heard(handler)
    begin(hub, SUPERVISOR, 0, 1, 2)
    log: Any = handler._services.log
    roll_back = log.roll_back

    def then_away(*given: Any) -> Any:
        log.settled = failing_once(AWAY, log.settled)
        return roll_back(*given)

    log.roll_back = then_away
    handler.troubles.append(Trouble(0, 0, "worker 0 was lost", is_lost=True))
    for _ in range(2):
        assert handler.handle(is_due=True) is None
    assert (invoked, said) == ([0], [(1, 0, [0])])


def test_a_storage_that_refuses_again_and_again_does_not_count_as_a_worker_that_is_lost_again_and_again() -> None:
    handler, hub, invoked = of_three(is_local=False)
    hub.cap, objects = None, handler._services.launcher.objects
    begin(hub, SUPERVISOR, 0, 1, 2)
    assert handler.handle(is_due=True) is None
    handler.troubles.append(Trouble(0, 0, "worker 0 was lost", is_lost=True))
    listed: Any = objects.list
    refusals = [False, True] * 5  # whether the model is stored is answered, which checkpoints there are is not

    def refusing(prefix: str) -> list[str]:
        if refusals and refusals.pop(0):
            raise REFUSED
        found: list[str] = listed(prefix)
        return found

    objects.list = refusing  # type: ignore[method-assign]
    for _ in range(5):
        with pytest.raises(redis.ConnectionError):
            handler.handle(is_due=True)
    assert handler.handle(is_due=True) is None
    assert invoked == [0]


@pytest.mark.parametrize(
    ("server", "request_", "error"),
    [("log", "delete", AWAY), ("log", "create", AWAY), ("log", "reserve", AWAY), ("objects", "list", REFUSED)],
)
def test_lost_data_is_restored_though_a_server_fails_meanwhile(server: str, request_: str, error: Exception) -> None:
    """After a half of it nobody went on: the functions that were lost were not invoked again."""
    handler, hub, invoked = of_three(is_local=True)
    handler._telemetry.update(budget_usd=None)
    hub.cap, said = None, heard(handler)
    begin(hub, SUPERVISOR, 0, 1, 2)
    assert handler.handle(is_due=True) is None
    handler._services.launcher.has_died = lambda pid: pid == 10  # type: ignore[method-assign, assignment]
    hub.lose()
    failing: Any = handler._services.log if server == "log" else handler._services.launcher.objects
    setattr(failing, request_, failing_once(error, getattr(failing, request_)))
    with pytest.raises(redis.ConnectionError):
        handler.handle(is_due=True)
    for _ in range(2):
        assert handler.handle(is_due=True) is None
    assert invoked == [0]
    assert said[-1] == (hub.restart.number, 0, [0])


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize(
    ("what", "request_"),
    [
        ("worker", "reserve"),
        ("worker", "roll_back"),
        ("supervisor", "reserve"),
        ("supervisor", "release"),
        ("successor", "reserve"),
    ],
)
def test_the_money_for_a_start_is_reserved_once_though_a_server_fails_meanwhile(
    what: str, request_: str, is_done: bool
) -> None:
    """One whose answer was lost was made again under another name, and so was one before a request that failed."""
    handler, hub, invoked = of_three(is_local=False, is_silent=what == "supervisor")
    hub.cap = None
    begin(hub, SUPERVISOR, 0, 1, 2)
    if what == "worker":
        handler.troubles.append(Trouble(0, 0, "worker 0 was lost", is_lost=True))
    elif what == "successor":
        handler.aged.append(Aged([0]))
    log: Any = handler._services.log
    setattr(log, request_, failing_once(AWAY, getattr(log, request_), is_done=is_done))
    with pytest.raises(redis.ConnectionError):
        handler.handle(is_due=False)
    assert (handler.handle(is_due=False), invoked) == (None, [SUPERVISOR if what == "supervisor" else 0])
    money = StartingMoney(RATES, 3, is_local=False)
    once = money.supervisor_nusd if what == "supervisor" else money.worker_nusd(0)
    # Beside it, requests of the driver are paid, and a moment without a supervisor.
    assert once <= hub.reserved - 900 < 1.5 * once


def test_the_drivers_own_requests_are_paid_once_though_an_answer_is_lost() -> None:
    hub = MemoryHub()
    log: Any = MemoryCoordinator(hub)
    log.create(cap_nusd=10**9, reserved_nusd=0)
    objects = MemoryObjects()
    objects.count(gets=100, puts=100)
    dues = RequestDues(objects, log, RATES, 0, (0, 0))
    log.reserve = failing_once(AWAY, log.reserve, is_done=True)
    with pytest.raises(redis.ConnectionError):
        dues.pay()
    once = hub.reserved
    assert once >= dues.made_nusd
    dues.pay()
    assert hub.reserved == once


def test_successors_are_not_invoked_again_while_others_start_unless_these_are_late() -> None:
    """A supervisor that takes over does not know what the one before it has asked for."""
    handler, hub, invoked = of_three(is_local=False)
    hub.cap = None
    begin(hub, SUPERVISOR, 0, 1, 2)
    steps: list[tuple[Aged, list[int]]] = [
        (Aged([0, 1]), [0, 1]),
        (Aged([0, 2]), [2]),
        (Aged([0], "The successor of worker 0 did not start", is_late=True), [0]),
        (Aged([0, 1]), []),
    ]
    for aged, expected in steps:
        handler.aged.append(aged)
        invoked.clear()
        assert handler.handle(is_due=False) is None
        assert invoked == expected
    told = [event.text for event in handler._telemetry.state.events]
    assert told == ["The successor of worker 0 did not start; another one was invoked"]
    hub.claims[0] = "20-b"  # the successor has taken over
    handler.aged.append(Aged([0]))
    assert handler.handle(is_due=False) is None
    assert invoked == [0]


@pytest.mark.parametrize("n", [1, 4])
def test_a_backend_that_refuses_a_successor_is_asked_again_and_its_money_is_kept(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ended."""
    handler, hub, invoked = of_three(is_local=False)
    hub.cap, said = None, list[Invoked]()
    begin(hub, SUPERVISOR, 0, 1, 2)
    pauses: list[float] = []
    monkeypatch.setattr(invoking, "time", SimpleNamespace(sleep=pauses.append))  # other threads sleep, too
    successors: Any = handler._recovery._successors
    plain, refusals = successors._invoke, [ServiceError("backend: 429")] * n

    def refusing(those: list[Any]) -> None:
        if refusals:
            raise refusals.pop()
        plain(those)

    successors._invoke = refusing
    handler._services.bus.send = lambda _, body: said.append(Invoked.decode(body))  # type: ignore[method-assign]
    for _ in range(2 if n == 4 else 1):
        handler.aged.append(Aged([0]))
        assert handler.handle(is_due=False) is None
    assert invoked == [0]
    assert hub.reserved - 900 == StartingMoney(RATES, 3, is_local=False).worker_nusd(0)
    assert pauses == [*invoking.PAUSES_S][:n]
    refused = [] if n == 1 else [(0, True), (1, False)]
    assert [(one.number, one.is_refused) for one in said] == [(1, False), *refused]


def test_a_backend_that_refuses_a_replacement_is_asked_again_and_then_the_run_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for n, is_over in ((2, False), (9, True)):
        handler, hub, invoked = of_three(is_local=False)
        hub.cap, recovery = None, handler._recovery
        begin(hub, SUPERVISOR, 0, 1, 2)
        monkeypatch.setattr(invoking, "time", SimpleNamespace(sleep=lambda _: None))
        plain, refusals = recovery._invoke_once, [ServiceError("backend: 429")] * n

        def refusing(those: list[Any], plain: Any = plain, refusals: list[ServiceError] = refusals) -> None:
            if refusals:
                raise refusals.pop()
            plain(those)

        recovery._invoke_once = refusing
        handler.troubles.append(Trouble(0, 0, "worker 0 was lost", is_lost=True))
        over = handler.handle(is_due=False)
        assert (over is not None, invoked) == (is_over, [] if is_over else [0])
        if over is not None:
            assert over == ("backend: 429", "failed")
