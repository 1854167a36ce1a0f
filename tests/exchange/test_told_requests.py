"""What functions say that their requests cost, where the state of the run is an object in the storage."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from engine.threads import Job
from exchange.test_coordinator import over, part

from mlless_nb import BSP, PMF, SGD
from mlless_nb.bus.storage import StorageBus
from mlless_nb.errors import DecodeError
from mlless_nb.exchange.restarts import FROM_THE_START
from mlless_nb.exchange.slots import UNUSED
from mlless_nb.exchange.step_report import Report
from mlless_nb.exchange.storage.coordinator import StorageCoordinator
from mlless_nb.exchange.storage.state import LOOKS_S, MOST_UNREAD, STARTING, UNTOLD, JobState
from mlless_nb.exchange.storage.step_log import MOST_READ
from mlless_nb.function import second_start
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import Prepaid
from mlless_nb.storage.conditional import conditional
from mlless_nb.storage.objects import MemoryObjects

PUT, GET = 5000, 400


def price(gets: int, puts: int) -> int:
    """Of requests, nano-dollars."""
    return GET * gets + PUT * puts


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
            return price(objects.gets, objects.puts + n_more)

        log.requested_nusd = lambda: cost(1)
        return log, objects, cost

    def heard(self, *slots: int) -> int:
        """What the driver hears."""
        return self.driver.hear_requests(slots, price)


def test_the_requests_of_all_functions_are_told_up_to_their_last_changes() -> None:
    run = Run()
    (first, _, first_cost), (second, objects, second_cost) = run.function("1-a"), run.function("2-b")
    first.reserve(100)
    second.reserve(100)
    objects.put("a minibatch", b"")
    second.refund(50, 1)
    second.refund(50, 0)
    first.refund(50, 0)  # the other one has changed the state since: this one reads it again
    assert first_cost() > 2 * PUT
    assert run.heard() == first_cost() + second_cost()
    objects.put("a last message", b"")  # of this nobody hears
    assert run.heard() == first_cost() + second_cost() - PUT


def test_what_a_killed_function_has_not_told_is_estimated() -> None:
    run = Run()
    (worker, _, worker_cost), (other, _, other_cost) = run.function("1-a"), run.function("2-b")
    assert worker.claim(0)
    assert run.heard(-1, 0, 1) == price(*STARTING)  # it has its slot, and has said nothing
    worker.reserve(100)
    assert run.heard(-1, 0, 1) == worker_cost() + price(*UNTOLD)
    assert other.claim(1)
    other.refund(50, 1, UNUSED)  # it leaves in vain
    assert run.heard(-1, 0, 1) == worker_cost() + price(*UNTOLD) + other_cost()
    worker.refund(50, 0)
    assert run.heard(-1, 0, 1) == worker_cost() + other_cost()


def test_one_that_was_replaced_before_it_said_a_word_is_not_forgotten() -> None:
    run = Run()
    lost, _, _ = run.function("1-a")
    assert lost.claim(0)
    assert run.driver.at_work([0]) == {0: "1-a"}
    run.driver.roll_back(FROM_THE_START, 0, [0], 1)
    supervisor, _, _ = run.function("2-b")
    assert supervisor.claim(-1)
    assert run.driver.at_work([-1]) == {-1: "2-b"}
    run.driver.release(-1)
    for slot, nonce in ((0, "3-c"), (-1, "4-d")):
        successor, _, cost = run.function(nonce)
        assert successor.claim(slot)
        successor.refund(50, slot)
    assert run.heard(-1, 0) == 2 * price(*STARTING) + 2 * cost()


def take_step(step: int, logs: list[StorageCoordinator], told: list[int]) -> None:
    """Take a step together; ``told`` is what the reports say of requests, with two last writes."""
    slots = list(range(len(logs)))
    for slot, log in enumerate(logs):
        report = Report(position=step, storage_nusd=told[slot])
        log.publish(replace(part(step, slot), publishers=slots, waiters=slots, report=report))


def test_the_newest_step_tells_of_workers_that_were_killed() -> None:
    run = Run()
    (first, _, first_cost), (second, _, second_cost) = run.function("1-a"), run.function("2-b")
    logs = [first, second]
    assert all(log.claim(slot) for slot, log in enumerate(logs))
    take_step(1, logs, [0, 0])
    take_step(2, logs, [first_cost() + 2 * PUT, 10**6 + second_cost() + 2 * PUT])
    told = 10**6 + second_cost() - PUT  # the update was written meanwhile, and the step
    assert run.heard(0, 1) == pytest.approx(first_cost() + told + 2 * price(*UNTOLD), abs=2 * price(5, 1))
    second.refund(50, 1)
    assert run.heard(0, 1) == pytest.approx(first_cost() + second_cost() + price(*UNTOLD), abs=price(5, 1))


def test_a_step_of_a_slot_s_earlier_function_does_not_tell_of_its_present_one() -> None:
    run = Run()
    lost, _, _ = run.function("1-a")
    assert lost.claim(0)
    take_step(1, [lost], [10**6])
    take_step(2, [lost], [10**6])
    assert run.heard(0) == 10**6 - PUT + price(*UNTOLD)
    assert run.driver.at_work([0]) == {0: "1-a"}
    run.driver.roll_back(FROM_THE_START, 1, [0], 1)
    assert run.heard(0) == 10**6 - PUT + price(*UNTOLD)
    successor, _, cost = run.function("2-b")
    assert successor.claim(0)
    successor.reserve(100)
    assert run.heard(0) == 10**6 - PUT + cost() + 2 * price(*UNTOLD)


def test_a_killed_supervisor_has_read_the_steps_until_its_last_look() -> None:
    run = Run()
    (worker, _, _), (supervisor, _, cost) = run.function("1-a"), run.function("2-b")
    worker.requested_nusd = None  # of this one nothing is asked here
    now_s = [1.0]
    worker._storage.now_s = lambda: now_s[0]  # type: ignore[method-assign]
    assert worker.claim(0)
    assert supervisor.claim(-1)

    def take_steps(first: int, end: int) -> None:
        for step in range(first, end):
            now_s[0] += LOOKS_S / 4
            take_step(step, [worker], [0])

    for first in (1, 5):
        take_steps(first, first + 4)
        assert len(supervisor.read_steps(1.0)) == 4
    supervisor.reserve(100)
    told = cost() + price(*UNTOLD)
    assert run.heard(-1) == told
    take_steps(9, 12)
    assert run.heard(-1) == told  # it may not have looked again
    take_steps(12, 20)
    assert run.heard(-1) == told + price(8, 0)
    run.driver.release(-1)
    assert run.heard(-1) == told + price(8, 0)
    successor, _, successor_cost = run.function("3-c")
    assert successor.claim(-1)
    assert run.heard(-1) == told + price(8, 0) + price(19, 0) + price(*STARTING)
    successor.reserve(100)  # it has not read what its predecessor had
    of_successor = successor_cost() + price(19, 0) + price(*UNTOLD)
    assert run.heard(-1) == told + price(8, 0) + of_successor
    supervisor.reserve(100)  # it was not dead
    assert run.heard(-1) == cost() + price(*UNTOLD) + of_successor
    take_steps(20, 2000)  # for long without any
    assert run.heard(-1) == cost() + price(*UNTOLD) + of_successor + price(MOST_UNREAD - 19, 0)
    assert len(successor.read_steps(1.0)) == MOST_READ
    successor.reserve(100)
    supervisor.refund(50, -1, UNUSED)  # its last word comes after its successor's
    assert run.heard(-1) == cost() + successor_cost() + price(*UNTOLD) + price(MOST_UNREAD, 0)


def test_steps_from_before_a_restart_do_not_hide_those_after_it() -> None:
    run = Run()
    worker, _, _ = run.function("1-a")
    worker.requested_nusd = None
    assert worker.claim(0)
    for step in range(1, 8):
        take_step(step, [worker], [2 * 10**6])
    restart = run.driver.roll_back(FROM_THE_START, 3, [0], 1)
    lost = run.heard(0)
    successor, _, _ = run.function("2-b")
    successor.requested_nusd = None
    assert successor.claim(0)
    successor.join(restart)
    take_step(4, [successor], [10**6])
    successor.publish(replace(part(5, 0), publishers=[0, 1], waiters=[0, 1]))  # nobody completes it
    assert run.heard(0) == lost + 10**6 - PUT + price(*UNTOLD)


def test_the_newest_step_is_found_behind_many_that_nobody_has_completed() -> None:
    run = Run()
    worker, _, _ = run.function("1-a")
    assert worker.claim(0)
    take_step(1, [worker], [0])
    take_step(2, [worker], [10**6])
    worker.publish(replace(part(40, 0), publishers=[0, 1], waiters=[0, 1]))  # far ahead, under bounded staleness
    assert run.heard(0) == 10**6 - PUT + price(*UNTOLD)


def test_what_a_worker_has_told_by_steps_counts_if_the_driver_settles_its_money() -> None:
    run = Run()
    worker, _, _ = run.function("1-a")
    worker.requested_nusd = None
    assert worker.claim(0)
    take_step(1, [worker], [10**6])
    assert run.driver.at_work([0]) == {0: "1-a"}
    run.driver.refund(0, 0)
    assert run.heard(0) == 10**6 - PUT + price(*UNTOLD)


def test_a_report_without_an_amount_leaves_the_state_readable() -> None:
    run = Run()
    worker, _, _ = run.function("1-a")
    assert worker.claim(0)
    take_step(1, [worker], [-5])
    assert run.driver.at_work([0]) == {0: "1-a"}
    run.driver.roll_back(FROM_THE_START, 0, [0], 1)
    assert run.function("2-b")[0].claim(0)
    assert run.heard(0) < 10**5


def test_a_step_that_cannot_be_read_keeps_nobody_from_being_replaced() -> None:
    run = Run()
    worker, objects, _ = run.function("1-a")
    assert worker.claim(0)
    take_step(1, [worker], [10**6])
    (key,) = [key for key in objects.blobs if key.endswith("steps/1")]
    objects.put(key, b"torn")
    assert run.driver.at_work([0]) == {0: "1-a"}
    assert run.driver.roll_back(FROM_THE_START, 0, [0], 1).number == 1
    assert run.heard(0) < 10**6


def test_a_step_before_a_hand_over_does_not_tell_of_the_successor() -> None:
    run = Run()
    first, _, _ = run.function("1-a")
    assert first.claim(0)
    first.announce_hand_over([0])
    take_step(1, [first], [10**6])
    first.hand_over(0, 1)
    successor, _, _ = run.function("2-b")
    assert successor.claim(0)
    assert run.heard(0) < 10**6


def test_one_that_is_started_twice_tells_what_its_word_will_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its word comes after its last change of the state: 12,000 nano-dollars were missing."""
    run, rates = Run(), Rates(price_profile("aws-lambda-x86"), 1769)
    mail = StorageBus(conditional(run.blobs), "told/")
    for body in (b"1", b"2", b"3", b"4"):
        mail.send("supervisor", body)
    log, objects, cost = run.function("1-a")
    first = Job(PMF(rank=2), SGD(0.2), BSP(), 2, 12, "mean", {}).invocation(0)
    prepaid = Prepaid(rates, 10**9, lambda: 2.0, lambda: cost(2))
    monkeypatch.setattr(second_start, "open_bus", lambda *_, **__: StorageBus(conditional(objects), "told/"))
    second_start.book(replace(first, redis_urls=[]), log, prepaid, objects, "1-a")
    assert len(mail.receive("supervisor", 1.0)) == 5
    assert run.heard() == cost()
    assert run.driver.money()[1] == pytest.approx(10**6 + rates.function_nusd(2.0) + cost(), abs=GET)


def test_one_that_handed_over_has_told_everything() -> None:
    run = Run()
    first, _, cost = run.function("1-a")
    assert first.claim(0)
    first.announce_hand_over([0])
    first.hand_over(0, 5)
    assert run.heard() == cost()


def test_who_changes_nothing_writes_nothing() -> None:
    run = Run()
    log, objects, _ = run.function("1-a")
    log.refund(50, 0)
    n_puts = objects.puts
    log.refund(50, 0)
    assert objects.puts == n_puts


def test_one_that_aborts_again_writes_only_if_it_is_its_last_call() -> None:
    run = Run()
    (first, _, first_cost), (second, objects, cost) = run.function("1-a"), run.function("2-b")
    second.reserve(100)
    first.abort("a worker failed", 2)
    told = cost()
    second.money()
    n_puts = objects.puts
    second.abort("the same", 2)
    assert objects.puts == n_puts
    assert run.heard() == first_cost() + told + 2 * price(*UNTOLD)  # both go on
    for n_frames in (0, 600, 1):
        for _ in range(n_frames):
            objects.put("a frame", b"")
        last = over(objects, "told", "")
        last.speak_for(second)
        last.abort("used up", 2, "capped")
        told = told if n_frames == 1 else cost()  # of the last frame nobody needs to hear
    assert objects.puts == n_puts + 1 + 601 + 1
    assert run.heard() == first_cost() + price(*UNTOLD) + told
    assert run.driver.aborted() == ("failed", "a worker failed")


def test_a_second_coordinator_of_a_function_speaks_for_it() -> None:
    run = Run()
    log, objects, cost = run.function("1-a")
    log.reserve(100)
    other = over(objects, "told", "")
    other.speak_for(log)
    other.abort("used up", 1, "capped")
    assert run.heard() == cost()


@pytest.mark.parametrize("field", ["told", "reported", "unread"])
@pytest.mark.parametrize("told", [{"1-a": -1}, {"1-a": 0.5}, {"1-a": "5"}, {"1-a": float("nan")}, {"1-a": None}, [5]])
def test_amounts_that_are_none_are_refused(field: str, told: object) -> None:
    blob = json.dumps({**json.loads(JobState(generation="g").encode()), field: told}).encode()
    with pytest.raises(DecodeError):
        JobState.decode(blob)
