"""What functions say that their requests cost, where the state of the run is an object in the storage."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from exchange.test_coordinator import over

from mlless_nb.errors import DecodeError
from mlless_nb.exchange.storage.books import WORTH_NUSD
from mlless_nb.exchange.storage.coordinator import StorageCoordinator
from mlless_nb.exchange.storage.state import JobState
from mlless_nb.storage.objects import MemoryObjects

PUT, GET = 5000, 400


class Run:
    """A run that is coordinated in a storage in memory."""

    def __init__(self) -> None:
        self.blobs = MemoryObjects()
        self.driver = over(self.blobs, "told", "driver")
        self.driver.create(cap_nusd=10**9, reserved_nusd=10**6)

    def function(self, nonce: str) -> tuple[StorageCoordinator, MemoryObjects, Callable[[], int]]:
        """The coordinator of a function, its connection to the storage, and what its requests have cost so far."""
        objects = MemoryObjects()
        objects.blobs = self.blobs.blobs
        log = over(objects, "told", nonce)

        def cost(n_more: int = 0) -> int:
            return GET * objects.gets + PUT * (objects.puts + n_more)

        log.requested_nusd = lambda: cost(1)
        return log, objects, cost


def test_the_requests_of_all_functions_are_told_up_to_their_last_changes() -> None:
    run = Run()
    (first, _, first_cost), (second, objects, second_cost) = run.function("1-a"), run.function("2-b")
    first.reserve(100)
    second.reserve(100)
    objects.put("a minibatch", b"")
    second.refund(50, 1)
    first.refund(50, 0)  # the other one has changed the state since: this one reads it again
    assert first_cost() > 2 * PUT
    assert run.driver.hear_requests() == first_cost() + second_cost()
    objects.put("a last message", b"")  # of this nobody hears
    assert run.driver.hear_requests() == first_cost() + second_cost() - PUT


def test_who_changes_nothing_writes_nothing() -> None:
    run = Run()
    log, objects, _ = run.function("1-a")
    log.refund(50, 0)
    n_puts = objects.puts
    log.refund(50, 0)
    assert objects.puts == n_puts


def test_one_that_aborts_again_writes_only_if_there_is_much_to_tell() -> None:
    run = Run()
    (first, _, _), (second, objects, cost) = run.function("1-a"), run.function("2-b")
    second.reserve(100)
    first.abort("used up", 2, "capped")
    n_puts = objects.puts
    second.abort("used up, too", 2, "capped")
    assert objects.puts == n_puts + 1  # refused: it did not know of the first one
    second.abort("used up, too", 2, "capped")
    assert objects.puts == n_puts + 1
    n_puts = objects.puts
    for _ in range(WORTH_NUSD // PUT):
        objects.put("a frame", b"")
    second.abort("used up, too", 2, "capped")
    assert objects.puts == n_puts + WORTH_NUSD // PUT + 1
    assert run.driver.aborted() == ("capped", "used up")
    assert run.driver.hear_requests() >= cost()


def test_a_second_coordinator_of_a_function_speaks_for_it() -> None:
    run = Run()
    log, objects, cost = run.function("1-a")
    log.reserve(100)
    other = over(objects, "told", "")
    other.speak_for(log)
    other.abort("used up", 1, "capped")
    assert run.driver.hear_requests() == cost()


@pytest.mark.parametrize("told", [{"1-a": -1}, {"1-a": 0.5}, {"1-a": "5"}, {"1-a": float("nan")}, {"1-a": None}, [5]])
def test_amounts_that_are_none_are_refused(told: object) -> None:
    blob = json.dumps({**json.loads(JobState(generation="g").encode()), "told": told}).encode()
    with pytest.raises(DecodeError):
        JobState.decode(blob)
