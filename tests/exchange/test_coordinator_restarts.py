"""One contract for restarts, checkpoints and hand-overs, run on every coordinator."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from exchange.test_coordinator import ALL, Make, copied, make, part, publish  # noqa: F401 - a fixture

from mlless_nb.exchange import (
    FROM_THE_START,
    Aborted,
    Coordinator,
    Fenced,
    LostData,
    Past,
    Plan,
    RedisCoordinator,
    Restart,
    Restarted,
    RoundEnded,
    StepEntry,
)
from mlless_nb.exchange.step_report import Report
from mlless_nb.money.request import BudgetRequest


def three(make: Make) -> list[Coordinator]:  # noqa: F811
    """The coordinators of three workers that have claimed their slots."""
    logs = [make(f"worker {slot}") for slot in ALL]
    for slot, log in enumerate(logs):
        assert log.claim(slot)
    return logs


def step(logs: list[Coordinator], number: int) -> None:
    """A whole step of all three."""
    for slot, log in enumerate(logs):
        publish(log, number, slot)
    for slot, log in enumerate(logs):
        log.wait(part(number, slot), lambda: None)
        assert copied(log.frames(part(number, slot))) == [f"{number} of {one}".encode() for one in ALL if one != slot]


def test_rounds_after_a_restart_are_other_rounds(make: Make) -> None:  # noqa: F811
    driver, logs = make("driver"), three(make)
    assert driver.restart() == FROM_THE_START
    step(logs, 1)
    step(logs, 2)
    publish(logs[0], 3, 0)
    restart = driver.roll_back(FROM_THE_START, 1, [2], 3)
    assert restart == Restart(1, 1) == driver.restart()
    # Who is in an earlier round learns of it, whatever it does there.
    with pytest.raises(Restarted) as news:
        publish(logs[1], 3, 1)
    assert news.value.restart == restart
    with pytest.raises(Restarted):
        logs[0].wait(part(3, 0), lambda: None)
    successor = make("successor of 2")
    assert successor.claim(2)
    logs[2] = successor
    for log in logs:
        log.join(restart)
    # The frames of the steps that come again are not those of before.
    fresh = [replace(part(2, slot), frame=f"again {slot}".encode()) for slot in ALL]
    for log, one in zip(logs, fresh, strict=True):
        log.publish(one)
    assert copied(logs[0].frames(fresh[0])) == [b"again 1", b"again 2"]
    step(logs, 3)


def test_a_function_that_comes_back_is_fenced(make: Make) -> None:  # noqa: F811
    driver, logs = make("driver"), three(make)
    step(logs, 1)
    restart = driver.roll_back(FROM_THE_START, 0, [1], 3)
    successor = make("successor of 1")
    assert successor.claim(1)
    logs[1].join(restart)
    assert not logs[1].claim(1)
    with pytest.raises(Fenced):
        publish(logs[1], 1, 1)


def test_a_waiting_worker_wakes_up_by_a_restart(make: Make) -> None:  # noqa: F811
    driver, logs = make("driver"), three(make)
    publish(logs[0], 1, 0)
    woken: list[Restart] = []

    def wait() -> None:
        try:
            logs[0].wait(part(1, 0, deadline_s=60.0), lambda: None)
        except Restarted as news:
            woken.append(news.restart)

    waiting = threading.Thread(target=wait)
    waiting.start()
    restart = driver.roll_back(FROM_THE_START, 0, [], 3)
    waiting.join(60.0)
    assert woken == [restart]


def test_only_one_of_two_restarts_from_the_same_state_counts(make: Make) -> None:  # noqa: F811
    driver = make("driver")
    three(make)
    first = driver.roll_back(FROM_THE_START, 0, [], 3)
    assert make("another").roll_back(FROM_THE_START, 5, [], 3) == first
    assert driver.roll_back(first, 7, [], 3, 1) == Restart(2, 7, 1) == driver.restart()


def test_grants_of_rounds_that_come_again_are_made_again(make: Make) -> None:  # noqa: F811
    driver, logs = make("driver"), three(make)
    asked = BudgetRequest(160, 100)
    first = publish(logs[0], 1, 0, asked).granted_nusd
    assert publish(logs[0], 1, 0, asked).granted_nusd == first
    restart = driver.roll_back(FROM_THE_START, 0, [], 3)
    logs[0].join(restart)
    second = publish(logs[0], 1, 0, asked).granted_nusd
    assert second > 0
    assert driver.money() == (1000, 100 + first + second)


@pytest.mark.parametrize("ends", ["aborted", "restarted", "lost"])
def test_a_grant_in_a_round_that_is_not_completed_is_told(make: Make, ends: str) -> None:  # noqa: F811
    driver, logs = make("driver"), three(make)

    def end() -> None:
        if ends == "aborted":
            driver.abort("enough", 3)
        elif ends == "restarted":
            driver.roll_back(FROM_THE_START, 0, [], 3)
        else:
            driver.delete()

    for slot in (0, 1):
        wanted = replace(part(1, slot), wanted=BudgetRequest(100, 100))
        with pytest.raises(RoundEnded) as ended:
            logs[slot].exchange(wanted, end)
        # After a restart nobody knows whether the data was restored meanwhile, without that reservation.
        assert ended.value.granted_nusd == (100 if ends == "aborted" and slot == 0 else 0)
        if slot == 0 and ends != "lost":
            assert driver.money()[1] == 200  # it stays reserved until the worker returns it


def test_an_aborted_run_is_not_restarted(make: Make) -> None:  # noqa: F811
    driver = make("driver")
    three(make)
    driver.abort("enough", 3)
    with pytest.raises(Aborted, match="enough"):
        driver.roll_back(FROM_THE_START, 0, [], 3)


def test_a_run_whose_data_is_lost_is_created_again(make: Make, request: pytest.FixtureRequest) -> None:  # noqa: F811
    driver, logs = make("driver"), three(make)
    step(logs, 1)
    driver.delete()
    with pytest.raises(LostData):
        driver.restart()
    with pytest.raises(LostData):
        publish(logs[0], 2, 0)
    plan, restart = Plan(version=3, leaves={2: 9}, checkpoint=1), Restart(4, 1, 2)
    known = [StepEntry(1, 1e9, {slot: Report(loss_sum=slot + 0.5) for slot in ALL})]
    driver.create(cap_nusd=500, reserved_nusd=200, past=Past(restart, plan, known))
    assert driver.money() == (500, 200)
    assert (driver.restart(), driver.read_plan()) == (restart, plan)
    for slot, log in enumerate(logs):
        log.join(restart)
        assert log.claim(slot)
    step(logs, 2)
    entries = make("supervisor").read_steps(1.0)
    assert entries[0] == known[0]
    assert [entry.step for entry in entries] == [1, 2]
    if isinstance(driver, RedisCoordinator):  # the workers knew the old keys, the new ones expire as well
        for shard in driver._shards:
            assert all(shard.pttl(key) != -1 for key in shard.scan_iter(match=driver._prefix + "*"))


def test_a_checkpoint_is_known_to_all_before_its_step_ends(make: Make) -> None:  # noqa: F811
    driver, logs = make("driver"), three(make)
    step(logs, 1)
    plan = driver.announce_checkpoint()
    assert plan.checkpoint > 1
    assert driver.announce_checkpoint() == plan  # until it was stored there is no other
    arrival = publish(logs[0], plan.checkpoint, 0)
    assert arrival.plan is not None
    assert arrival.plan.is_checkpoint(plan.checkpoint)
    # The others have not arrived: they must learn of the same steps.
    assert driver.announce_checkpoint() == plan
    handed = driver.announce_hand_over([1])
    publish(logs[0], handed.hand_overs[1], 0)
    assert driver.announce_hand_over([1]) == handed


@pytest.mark.parametrize("what", ["a checkpoint", "a hand-over"])
def test_after_a_restart_nothing_waits_for_a_checkpoint_that_was_planned_before_it(make: Make, what: str) -> None:  # noqa: F811
    """It may lie minutes ahead: a function that was to hand over after it came to the end of its lifetime before."""
    driver, logs = make("driver"), three(make)
    for number in range(1, 8):
        step(logs, number)
    planned = driver.announce_checkpoint().checkpoint
    restart = driver.roll_back(FROM_THE_START, 2, [], 3)
    for log in logs:
        log.join(restart)
    step(logs, 3)
    announce = driver.announce_checkpoint if what == "a checkpoint" else lambda: driver.announce_hand_over([1])
    plan = announce()
    assert 3 < plan.checkpoint < planned
    assert plan.hand_overs == ({} if what == "a checkpoint" else {1: plan.checkpoint})
    assert publish(logs[0], plan.checkpoint, 0).plan == plan  # in time
    assert announce() == plan  # the others have not arrived


def test_a_slot_is_handed_over(make: Make) -> None:  # noqa: F811
    driver, logs = make("driver"), three(make)
    step(logs, 1)
    successor = make("successor of 1")
    assert not successor.claim(1)
    plan = driver.announce_hand_over([1])
    last = plan.hand_overs[1]
    assert plan.is_checkpoint(last)
    logs[1].refund(0, 1, 1 << 30)
    assert successor.settled([1]) == set()
    logs[1].hand_over(1, last)
    assert successor.claim(1)
    logs[1].hand_over(1, last)  # a request that is carried out twice takes nothing from the successor
    assert successor.claim(1)
    assert driver.read_plan().handed_over == {1: last}
    assert successor.at_work([1]) != {}
    logs[1].join(FROM_THE_START)
    with pytest.raises(Fenced):
        publish(logs[1], last + 1, 1)
    # A restart forgets hand-overs: who is there goes on, whoever that is.
    driver.roll_back(FROM_THE_START, 1, [], 3)
    assert driver.read_plan().hand_overs == driver.read_plan().handed_over == {}


def test_where_a_run_stands_is_read_at_once(make: Make) -> None:  # noqa: F811
    driver, logs = make("driver"), three(make)
    before = driver.standing([])
    assert (before.plan, before.at_work, before.restart) == (driver.read_plan(), {}, FROM_THE_START)
    assert before.identities == make("another").standing([]).identities
    logs[0].refund(10, 0)
    driver.announce_stop("stopped", "enough")
    restart = driver.roll_back(FROM_THE_START, 0, [2], 3)
    standing = driver.standing([-1, *ALL])
    assert standing == (driver.read_plan(), {1: "worker 1"}, driver.money()[1], restart, before.identities)
    driver.delete()
    with pytest.raises(LostData):
        driver.standing(ALL)


def test_a_slot_whose_money_is_settled_is_at_work_no_more_until_it_is_released(make: Make) -> None:  # noqa: F811
    driver, logs = make("driver"), three(make)
    logs[0].refund(10, 0)
    assert driver.settled(ALL) == {0}
    assert driver.settled([]) == set()
    assert 0 not in driver.at_work(ALL)
    driver.release(0)
    assert driver.settled(ALL) == set()
    assert make("successor of 0").claim(0)
    assert 0 in driver.at_work(ALL)
