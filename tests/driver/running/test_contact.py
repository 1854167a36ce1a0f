"""When a driver takes its supervisor for lost, and its servers for gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mlless_nb.driver.running import contact
from mlless_nb.driver.running.contact import LONGEST_OUTAGE_S, SILENCE_LEASES, SILENCE_S, Contact
from mlless_nb.exchange import MemoryCoordinator, MemoryHub
from mlless_nb.exchange.protocol import START_LEASES

LEASE_S = 10.0


class Run:
    """A contact under a clock of its own; whether the supervisor has a lease is said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, has_broker: bool = False) -> None:
        self.now = 1000.0
        monkeypatch.setattr(contact.time, "monotonic", lambda: self.now)
        self.log = MemoryCoordinator(MemoryHub())
        services: Any = SimpleNamespace(log=self.log, has_broker=has_broker, embedded=None)
        self.contact = Contact(services, LEASE_S)

    def silent_after(self, seconds: float) -> float | None:
        """After how many of ``seconds`` the supervisor counts as lost."""
        began = self.now
        while self.now < began + seconds:
            self.now += 0.5
            if self.contact.is_silent():
                return self.now - began
        return None


def test_a_supervisor_without_a_lease_is_lost_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    assert run.silent_after(200.0) == pytest.approx(START_LEASES * LEASE_S, abs=1.0)  # it may start slowly
    run.contact.invoked()
    run.contact.heard()
    assert run.silent_after(200.0) == pytest.approx(SILENCE_LEASES * LEASE_S, abs=1.0)


@pytest.mark.parametrize("has_broker", [False, True])
def test_one_with_a_lease_that_says_nothing_is_lost_late(has_broker: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, has_broker=has_broker)
    run.contact.heard()
    run.log.renew("supervisor", 1e6)
    # RabbitMQ may be away: then nothing is heard, and it is at work.
    assert run.silent_after(1000.0) == (None if has_broker else pytest.approx(SILENCE_S, abs=1.0))


def test_a_driver_that_was_held_up_has_heard_nothing_and_knows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    run.contact.heard()
    assert run.silent_after(5.0) is None
    run.now += 30.0  # Redis did not answer
    assert not run.contact.is_silent()
    assert run.silent_after(50.0) == pytest.approx(SILENCE_LEASES * LEASE_S - 5.0, abs=1.0)


def test_a_driver_that_listens_while_it_waits_for_a_backend_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    run.contact.heard()
    for _ in range(26):
        run.now += 0.5
        run.contact.listen()
    assert run.contact.is_silent()


def test_servers_may_be_away_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    assert not run.contact.unanswered()
    run.now += LONGEST_OUTAGE_S - 1.0
    assert not run.contact.unanswered()
    run.contact.answered()
    run.now += LONGEST_OUTAGE_S
    assert not run.contact.unanswered()
    run.now += LONGEST_OUTAGE_S + 1.0
    assert run.contact.unanswered()


def test_an_outage_is_no_silence_and_the_servers_cost_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage a lost supervisor was missed later by as much again, and nobody paid for all that time."""
    run = Run(monkeypatch)
    run.contact.heard()
    for _ in range(60):
        run.now += 0.5
        run.contact.unanswered()
    assert (run.contact.silence_s, run.contact.unpaid_s) == (0.0, 30.0)
    run.contact.answered()
    assert run.silent_after(50.0) == pytest.approx(SILENCE_LEASES * LEASE_S, abs=1.0)
    assert run.contact.unpaid_s == 30.0 + run.contact.silence_s
    run.contact.heard()
    assert run.contact.unpaid_s == 0.0
