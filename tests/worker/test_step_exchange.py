"""A worker that waits for a round: how often it looks whether anybody is there, and for how long it waits."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from engine.threads import Job

from mlless_nb import BSP, PMF, SGD
from mlless_nb.exchange import WAIT_POLL_S, Aborted
from mlless_nb.worker.step_exchange import StepExchange

#: The limit of a round, seconds, of virtual time.
LIMIT_S = 120.0


class Waiting:
    """A worker in a round; ``there`` are the roles that have a lease."""

    def __init__(self) -> None:
        self.now, self.n_looks, self.there = 1000.0, 0, {"supervisor", "driver"}
        invocation = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 5, "mean", {}).invocation(0)
        log: Any = SimpleNamespace(alive=self._alive, reserve=None)
        prepaid: Any = SimpleNamespace(buy=lambda *_: True, wanted=lambda *_: None)
        membership: Any = SimpleNamespace(plan=SimpleNamespace(version=0))
        checkpoints: Any = SimpleNamespace(most_behind=lambda step: step)
        self.exchange = StepExchange(
            dataclasses.replace(invocation, round_timeout_s=LIMIT_S),
            log,
            prepaid,
            membership,
            lambda: self.now,
            lambda: 0.0,
            prefetch=lambda: None,
            report=lambda _: None,  # type: ignore[arg-type, return-value]
            is_last=lambda: False,
            checkpoints=checkpoints,
        )
        self.begin()

    def begin(self) -> None:
        """Enter a round."""
        self.exchange.round("1", [0, 1], [0, 1], b"")
        self.n_looks = 0

    def _alive(self, roles: list[str]) -> list[bool]:
        self.n_looks += 1
        return [role in self.there for role in roles]

    def wait(self, seconds: float) -> None:
        """Wait in the round as a coordinator lets a worker wait."""
        end_at = self.now + seconds
        while self.now < end_at:
            self.now += WAIT_POLL_S
            self.exchange.pay()


def test_a_round_of_two_minutes_is_looked_at_some_twenty_times_and_not_with_every_poll() -> None:
    """On the object storage each look is two billed requests; with every poll they were 900."""
    waiting = Waiting()
    waiting.wait(LIMIT_S / 4 - 1.0)
    assert waiting.n_looks == 0
    waiting.wait(LIMIT_S * 3 / 4)
    assert 10 <= waiting.n_looks <= 20
    with pytest.raises(Aborted, match="a round of step 0 did not complete within 120 s"):
        waiting.wait(2.0)
    assert waiting.n_looks <= 21


def test_a_round_without_a_supervisor_is_waited_for_and_its_limit_begins_when_there_is_one() -> None:
    waiting = Waiting()
    waiting.there = {"driver"}
    waiting.wait(10 * LIMIT_S)
    assert waiting.n_looks <= 24 * 10
    waiting.there = {"driver", "supervisor"}
    waiting.wait(0.7 * LIMIT_S)
    with pytest.raises(Aborted):
        waiting.wait(0.1 * LIMIT_S)


def test_the_next_round_has_its_own_limit() -> None:
    waiting = Waiting()
    waiting.wait(LIMIT_S - 1.0)
    waiting.begin()
    waiting.wait(LIMIT_S / 4 - 1.0)
    assert waiting.n_looks == 0
    waiting.wait(LIMIT_S / 24 + 2.0)
    assert waiting.n_looks >= 1


def test_a_driver_that_is_gone_as_well_lets_the_limit_count() -> None:
    waiting = Waiting()
    waiting.there = set()
    with pytest.raises(Aborted):
        waiting.wait(LIMIT_S + 1.0)


def test_money_that_was_granted_in_a_round_that_is_aborted_is_the_workers() -> None:
    """It returned none of it: 0.5 % of a run's cap stayed reserved, and was not spent."""
    waiting, added = Waiting(), list[int]()

    def aborted(*_: Any) -> Any:
        error = Aborted("enough", "capped")
        error.keep_grant(100)
        raise error

    waiting.exchange._log.exchange, waiting.exchange._prepaid.add = aborted, added.append  # type: ignore[method-assign]
    with pytest.raises(Aborted, match="enough"):
        waiting.exchange.exchange(waiting.exchange.round("1", [0, 1], [0, 1], b""))
    assert added == [100]
