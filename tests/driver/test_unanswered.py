"""A recovery whose servers fail meanwhile: what was asked for, or had begun, is done once they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from driver.test_recovery import begin, heard, of_three

from mlless_nb.bus.messages import Aged, Trouble
from mlless_nb.errors import ServiceError
from mlless_nb.exchange import SUPERVISOR


def failing_once(error: Exception, plain: Callable[..., Any]) -> Callable[..., Any]:
    """``plain``, whose first call fails."""
    errors = [error]

    def call(*given: Any, **named: Any) -> Any:
        if errors:
            raise errors.pop()
        return plain(*given, **named)

    return call


AWAY = redis.ConnectionError("Connection refused")
REFUSED = ServiceError("object storage: slow down (503)")


def test_successors_that_are_asked_for_while_a_server_is_away_are_invoked() -> None:
    """The supervisor asks once: the lifetime of the functions before them ended the run."""
    mending, hub, invoked = of_three(is_local=False)
    hub.cap = None
    log: Any = mending._services.log
    log.reserve = failing_once(AWAY, log.reserve)
    mending.aged.append(Aged([1, 2]))
    with pytest.raises(redis.ConnectionError):
        mending.mend(is_due=True)
    assert invoked == []
    for _ in range(2):
        assert mending.mend(is_due=True) is None
    assert (invoked, mending.aged) == ([1, 2], [])


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
    mending, hub, invoked = of_three(is_local=False)
    hub.cap, said = None, heard(mending)
    begin(hub, SUPERVISOR, 0, 1, 2)
    assert mending.mend(is_due=True) is None
    failing: Any = mending._services.log if server == "log" else mending._services.launcher.objects
    setattr(failing, request_, failing_once(error, getattr(failing, request_)))
    mending.troubles.append(Trouble(0, 0, "worker 0 was lost", is_lost=True))
    with pytest.raises(redis.ConnectionError):
        mending.mend(is_due=True)
    for _ in range(2):
        assert mending.mend(is_due=True) is None
    assert (invoked, said, mending.troubles) == ([0], [(1, 0, [0])], [])


def test_a_storage_that_refuses_again_and_again_does_not_count_as_a_worker_that_is_lost_again_and_again() -> None:
    mending, hub, invoked = of_three(is_local=False)
    hub.cap, objects = None, mending._services.launcher.objects
    begin(hub, SUPERVISOR, 0, 1, 2)
    assert mending.mend(is_due=True) is None
    mending.troubles.append(Trouble(0, 0, "worker 0 was lost", is_lost=True))
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
            mending.mend(is_due=True)
    assert mending.mend(is_due=True) is None
    assert invoked == [0]


@pytest.mark.parametrize(
    ("server", "request_", "error"),
    [("log", "delete", AWAY), ("log", "create", AWAY), ("log", "reserve", AWAY), ("objects", "list", REFUSED)],
)
def test_lost_data_is_restored_though_a_server_fails_meanwhile(server: str, request_: str, error: Exception) -> None:
    """After a half of it nobody went on: the functions that were lost were not invoked again."""
    mending, hub, invoked = of_three(is_local=True)
    mending._telemetry.update(budget_usd=None)
    hub.cap, said = None, heard(mending)
    begin(hub, SUPERVISOR, 0, 1, 2)
    assert mending.mend(is_due=True) is None
    mending._services.launcher.has_died = lambda pid: pid == 10  # type: ignore[method-assign, assignment]
    hub.lose()
    failing: Any = mending._services.log if server == "log" else mending._services.launcher.objects
    setattr(failing, request_, failing_once(error, getattr(failing, request_)))
    with pytest.raises(redis.ConnectionError):
        mending.mend(is_due=True)
    for _ in range(2):
        assert mending.mend(is_due=True) is None
    assert invoked == [0]
    assert said[-1] == (hub.restart.number, 0, [0])
