"""The driver's lease is kept while the driver waits for a cloud."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mlless_nb.driver import driver
from mlless_nb.driver.running import driver_lease
from mlless_nb.driver.running.driver_lease import DRIVER_LEASE_S, kept
from mlless_nb.errors import ServiceError


class Log:
    """Whose lease was renewed; the first time without an answer."""

    def __init__(self) -> None:
        self.renewed, self.is_twice = list[tuple[str, float]](), threading.Event()

    def renew(self, role: str, lease_s: float) -> None:
        self.renewed.append((role, lease_s))
        if len(self.renewed) == 1:
            raise ConnectionError
        self.is_twice.set()


def test_the_lease_is_renewed_until_the_wait_is_over_whatever_ends_it() -> None:
    log: Any = Log()

    def wait() -> None:
        assert log.is_twice.wait(60)
        raise ServiceError("no room")

    with pytest.raises(ServiceError), kept(log, 0.001):
        wait()
    assert set(log.renewed) == {("driver", DRIVER_LEASE_S)}
    assert not [thread for thread in threading.enumerate() if thread.name == "mlless-lease"]


def test_a_driver_that_waits_for_a_cluster_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    log: Any = Log()
    monkeypatch.setattr(driver, "kept", lambda log: driver_lease.kept(log, 0.001))
    waited: list[bool] = []
    one: Any = object.__new__(driver.Driver)
    one._services = SimpleNamespace(
        log=log,
        launcher=SimpleNamespace(newest="job"),
        invoke_functions=lambda *_: waited.append(log.is_twice.wait(60)),
    )
    one._unreported, one._causes = SimpleNamespace(note=lambda _: None), SimpleNamespace(invoked=lambda *_: None)
    one.run = SimpleNamespace(id="run")
    one._invoke([SimpleNamespace(role="worker", slot=0, encode=lambda: b"{}")])
    assert waited == [True]
