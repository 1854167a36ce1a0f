"""A run that the driver concludes itself, since its supervisor sent no final message."""

from __future__ import annotations

import dataclasses
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from engine.threads import RATES, Job

from mlless_nb import BSP, PMF, SGD
from mlless_nb.bus import open_bus
from mlless_nb.bus.messages import Ended, Invocation
from mlless_nb.driver.backends.exits import Exits
from mlless_nb.driver.ending import teardown
from mlless_nb.errors import ServiceError
from mlless_nb.exchange import SUPERVISOR, MemoryCoordinator, MemoryHub, Plan
from mlless_nb.storage.objects import MemoryObjects

#: When the functions of these runs had ended, seconds after the launch.
ENDED_S = 10.0
#: What the driver says if there is no telling how the run ended.
FAILURE = Ended("failed", "the driver knows no more", 4, None, None, {"workers": 1}, ENDED_S)


class NotedExits(Exits):
    """Who was noted."""

    def __init__(self) -> None:
        super().__init__(list)
        self.noted: dict[int, str] = {}

    def note(self, at_work: Any) -> None:
        """See `Exits`."""
        self.noted |= at_work


def run_of_two(reserved_nusd: int) -> tuple[Any, MemoryHub, Invocation]:
    """The services of a run of two workers that is over, its data, and its supervisor's invocation."""
    worker = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    invocation = dataclasses.replace(worker, role="supervisor", slot=SUPERVISOR)
    hub, objects = MemoryHub(), MemoryObjects()
    log = MemoryCoordinator(hub, "9-d")
    log.create(cap_nusd=None, reserved_nusd=reserved_nusd)
    for slot in (SUPERVISOR, 0, 1):
        MemoryCoordinator(hub, f"{11 + slot}-a").claim(slot)
    launcher = SimpleNamespace(objects=objects, exits=NotedExits())
    bus = open_bus("memory://", uuid.uuid4().hex)
    return SimpleNamespace(log=log, launcher=launcher, bus=bus, dues=None, redis_urls=[]), hub, invocation


def concluded(services: Any, invocation: Invocation | None) -> Ended:
    """Its final message."""
    return teardown.conclude(services, RATES, 100.0, invocation, ("capped", "the cap"), FAILURE, Plan())


def test_all_are_billed_until_all_had_ended_at_most_what_was_reserved() -> None:
    each = RATES.function_nusd(ENDED_S)
    services, _, invocation = run_of_two(10 * each)
    ended = concluded(services, invocation)
    assert (ended.status, ended.reason, ended.time_s, ended.n_invoked) == ("capped", "the cap", ENDED_S, 0)
    assert (ended.costs_nusd["workers"], ended.costs_nusd["supervisor"]) == (2 * each, each)
    assert services.launcher.exits.noted == {SUPERVISOR: "10-a", 0: "11-a", 1: "12-a"}  # also those that nobody saw
    services, _, invocation = run_of_two(2 * each)
    assert sum(concluded(services, invocation).costs_nusd.values()) == 2 * each


def test_servers_that_have_lost_their_data_say_nothing_of_the_past() -> None:
    """What was told of it before counts then, see `ToldCosts.at_least`."""
    each = RATES.function_nusd(ENDED_S)
    services, hub, invocation = run_of_two(10 * each)
    hub.lose()
    ended = concluded(services, invocation)
    assert (ended.status, ended.n_invoked, ended.costs_nusd["workers"]) == ("capped", None, 2 * each)


def test_without_a_supervisor_or_servers_the_driver_says_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    services, _, invocation = run_of_two(0)
    assert concluded(services, None) is FAILURE

    def refused(*_: Any) -> None:
        raise ServiceError("no answer")

    monkeypatch.setattr(services.log, "read_steps", refused)
    assert concluded(services, invocation) is FAILURE


def test_a_budget_that_does_not_pay_for_reading_the_log_is_not_spent() -> None:
    services, _, invocation = run_of_two(0)
    asked: list[int] = []
    services.dues = SimpleNamespace(pay_end=lambda n: asked.append(n) or False)
    assert concluded(services, invocation) is FAILURE
    assert asked == [2 * FAILURE.step + 3 * teardown.MESSAGES]
