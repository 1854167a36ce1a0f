"""Runs of the real driver, supervisor and workers on a virtual clock, with faults and commands drawn from seeds."""

from __future__ import annotations

import itertools
import re
import threading
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("greenlet")

from seeds.check import check, run, run_seeds
from seeds.clock import Process
from seeds.scenario import HURRIED, Fault, Problem, Scenario, scenario_of
from seeds.servers import SimBus
from seeds.world import World, simulate

from mlless_nb.bus.messages import Left, Message

#: Seeds in `make test`, and in `make test-long`.
FEW, MANY = 100, 1_250
#: And of those whose functions live for a few steps.
FEW_HURRIED, MANY_HURRIED = 4, 100


def hold(first: int, end: int) -> None:
    """All that must hold does so after each seed."""
    failed = run_seeds(range(first, end))
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("first", [0, 50])
def test_all_that_must_hold_does_so_after_each_seed(first: int) -> None:
    hold(first, first + 50)


@pytest.mark.long
@pytest.mark.parametrize("first", range(FEW, MANY, 230))
def test_and_after_many_seeds(first: int) -> None:
    hold(first, first + 230)


def test_functions_that_live_for_a_few_steps_only() -> None:
    n_twice = 0
    for seed in range(HURRIED, HURRIED + FEW_HURRIED):
        _, outcome = run(scenario_of(seed), traces=True)
        handed_over: dict[str, list[int]] = {}
        for slot, step in re.findall(r"Worker (\d+) handed over after step (\d+)", "\n".join(outcome.told)):
            handed_over.setdefault(slot, []).append(int(step))
        n_twice += any(after - step <= 4 for steps in handed_over.values() for step, after in pairwise(steps))
    assert n_twice  # what is looked for here: a successor has a successor within four steps


@pytest.mark.long
def test_many_functions_that_live_for_a_few_steps_only() -> None:
    hold(HURRIED + FEW_HURRIED, HURRIED + MANY_HURRIED)


#: Each failed once, in a way of its own, see docs/reliability.md.
MENDED = (
    469,
    832,
    944,
    1007,
    1168,
    1726,
    1925,
    2255,
    2356,
    2408,
    2613,
    3335,
    3581,
    3610,
    7165,
    8448,
    9068,
    20379,
    1_020_051,
    1_020_053,
)


@pytest.mark.parametrize("seed", MENDED)
def test_seeds_that_failed_once(seed: int) -> None:
    failed = run_seeds([seed])
    assert not failed, "\n".join(failed)


def test_no_thread_of_the_machine_is_started() -> None:
    """One that watched the start of a lost function ended the tests themselves, where they took a few seconds."""
    before = threading.active_count()
    run(scenario_of(1106))
    assert threading.active_count() == before


def test_a_seed_gives_the_same_run_again() -> None:
    for seed in (3, 30):
        traces, models = [], []
        for _ in range(2):
            world, outcome = run(scenario_of(seed), traces=True)
            # Invocations, requests and commands have names that are never used again; lines may end within one.
            traces.append([re.sub(r"[0-9a-f]{12,32}|[0-9a-f]+(?=\.\.\.)", "", line) for line in world.trace])
            models.append(outcome.params)
        assert traces[0] == traces[1]
        assert models[0] == models[1]
        assert len(traces[0]) > 100


# -- what seeds found once

SMALL = Problem("logistic", "BSP", 2, 12)


@pytest.mark.parametrize("at_s", [0.2 + 0.06 * number for number in range(20)])
def test_data_that_is_lost_at_any_time(at_s: float) -> None:
    """A driver that restored it was taken for gone; or the run failed while functions started."""
    for room_s in (None, 20.0):
        emptied = Fault("emptied", at_s)
        assert run(Scenario(2, SMALL, (emptied,), latency_s=5e-3, room_s=room_s))[1].status == "finished"


def test_a_storage_that_fails_while_the_model_is_stored() -> None:
    """One refused request ended the run as failed."""
    throttled = Fault("storage fails", 0.8, 0, 2.0)
    assert run(Scenario(4, SMALL, (throttled,)))[1].status == "finished"


@pytest.mark.parametrize(("kind", "is_local"), [("never starts", False), ("kill at", False), ("kill at", True)])
def test_a_run_whose_functions_all_fail_as_they_start_is_given_up(kind: str, is_local: bool) -> None:
    """On a cloud the supervisor was invoked again and again: nobody else misses workers."""
    fault = Fault(kind, 0.0, request="claim", nth=1)
    faults = [replace(fault, slot=slot, nth=n) for slot in (-1, 0, 1) for n in range(1, 13)]
    world = World(Scenario(5, SMALL, tuple(faults), is_local=is_local))
    outcome = simulate(world)
    assert outcome.status == "failed"
    assert "never heard" in outcome.reason or "the run is no further than step 0" in outcome.reason
    assert len(world.processes) <= 12
    assert world.clock.now < 450.0


LEAVING = Problem("pmf", "SSP", 3, 25)


@pytest.mark.parametrize(("nth", "after"), [(5, True), (6, False)])
def test_a_leaver_that_is_lost_before_it_has_handed_over_is_missed(nth: int, after: bool) -> None:
    """On a cloud, under bounded staleness, it counted as done: the run failed in the round that waited for it."""
    fault = Fault("kill at", 0.0, 1, request="publish", nth=nth, after=after)
    made = Scenario(7, LEAVING, (fault,), ((0.9, "remove", 0.5),), is_local=False, lease_s=3.0)
    world, outcome = run(made, traces=True)
    assert any("dies at" in line for line in world.trace)
    assert outcome.status == "finished"
    assert any("training goes on from" in text for text in outcome.told)


@pytest.mark.parametrize("sync", ["BSP", "SSP"])
@pytest.mark.parametrize(("request_", "nth"), [("send", 2), ("refund", 1)])
def test_a_leaver_that_is_lost_after_it_has_handed_over_costs_no_restart(sync: str, request_: str, nth: int) -> None:
    """On this machine all went back to the newest checkpoint, here to the start."""
    fault = Fault("kill at", 0.0, 1, request=request_, nth=nth)
    world, outcome = run(Scenario(7, replace(LEAVING, sync=sync), (fault,), ((0.9, "remove", 0.5),)), traces=True)
    assert any("dies at" in line for line in world.trace)
    assert outcome.status == "finished"
    assert not any("training goes on from" in text for text in outcome.told)


@pytest.mark.parametrize("sync", ["BSP", "SSP"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_leaver_that_is_lost_before_it_says_so_is_let_go_by_the_driver_if_a_checkpoint_has_its_work(
    sync: str, is_restarted: bool
) -> None:
    """On a cloud, after any restart, it was waited for until the supervisor ended the run, four leases later."""
    faults = (Fault("kill", 1.5, 0),) if is_restarted else ()
    fault = Fault("kill at", 0.0, 1, request="send", nth=2 + is_restarted)
    problem = Problem("pmf", sync, 3, 1500 if is_restarted else 400, checkpoint_every=10)
    made = Scenario(7, problem, (*faults, fault), ((12.5, "remove", 0.5),), is_local=False, lease_s=3.0, step_s=0.05)
    world, outcome = run(made, traces=True)
    assert any("dies at" in line for line in world.trace)
    assert outcome.status == "finished"
    assert sum("training goes on from" in text for text in outcome.told) == is_restarted


def test_a_leaver_whose_last_message_is_lost_after_a_restart_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had settled its money itself, so that the supervisor waited for it, and ended the run four leases later."""
    send, lost = SimBus.send, list[Left]()

    def losing(self: SimBus, topic: str, body: bytes) -> None:
        message = Message.decode(body)
        if isinstance(message, Left) and message.slot == 1:
            lost.append(message)
        else:
            send(self, topic, body)

    monkeypatch.setattr(SimBus, "send", losing)
    problem = Problem("pmf", "SSP", 3, 700, checkpoint_every=10)
    made = Scenario(7, problem, (Fault("kill", 1.5, 0),), ((12.5, "remove", 0.5),), False, lease_s=3.0, step_s=0.05)
    outcome = run(made, traces=True)[1]
    assert [message.status for message in lost] == ["left"]
    assert outcome.status == "finished"
    assert sum("training goes on from" in text for text in outcome.told) == 1


def test_a_supervisor_that_takes_over_misses_a_leaver_that_has_not_heard_of_a_restart() -> None:
    """It took it for one that had left: a round of step 22 did not complete within 120 s."""
    problem = Problem("pmf", "SSP", 4, 200, checkpoint_every=40)
    fault = Fault("kill", 9.2, -1)
    world = World(Scenario(7, problem, (fault,), ((3.0, "remove", 0.3),), False, lease_s=3.0, step_s=0.05), traces=True)
    on_request, clock = world._on_request, world.clock

    n_sent = itertools.count(1)

    def held_up(process: Process, name: str, arguments: tuple[Any, ...]) -> str:
        """Worker 1 is held up before it says that it leaves, and worker 0 dies in that moment."""
        is_by_it = name == "send" and process in world.invocations and world.invocations[process].slot == 1
        if is_by_it and next(n_sent) == 2:
            clock.at(clock.now, world.inflict, Fault("kill", 0.0, 0))
            clock.at(clock.now, process.freeze, 6.0)
        return on_request(process, name, arguments)

    world.network.on_request = held_up
    outcome = simulate(world)
    check(world, outcome)
    assert outcome.status == "finished"
    assert [text for text in outcome.told if "Worker 1 was lost" in text and "worker 1 replaced" in text]


def test_a_removal_that_a_lost_supervisor_has_carried_out_is_not_carried_out_again() -> None:
    """The driver repeats what was not acknowledged: a second worker was removed."""
    world = World(Scenario(7, Problem("pmf", "BSP", 4, 250)), traces=True)
    on_request, n_sent = world._on_request, itertools.count(1)

    def dies(process: Process, name: str, arguments: tuple[Any, ...]) -> str:
        """The first supervisor dies once the removal is announced, before it says so."""
        if name == "announce_leave" and next(n_sent) == 1:
            return "after"
        return on_request(process, name, arguments)

    world.network.on_request = dies
    world.clock.at(3.0, lambda: world.driver_process.spawn(lambda: world.run.scale_in(1)))
    outcome = simulate(world)
    check(world, outcome)
    assert (outcome.status, next(n_sent)) == ("finished", 3)  # the second one was asked, too
    assert len(outcome.plan.leaves) == 1
    assert world.run.telemetry.state.refusal == ""


@pytest.mark.parametrize("slot", [-1, 0])
def test_a_function_that_is_lost_again_before_it_has_claimed_its_slot_is_replaced_at_once(slot: int) -> None:
    """Nobody saw that on this machine: it was missed after six leases, and the run was over by then."""
    world = World(Scenario(7, Problem("logistic", "BSP", 2, 200), (Fault("kill", 3.0, slot),)), traces=True)
    on_request, n_claims = world._on_request, itertools.count(1)

    def dies(process: Process, name: str, arguments: tuple[Any, ...]) -> str:
        """The function that was invoked first in the place of the lost one dies as it starts."""
        made = world.invocations.get(process)
        if name == "claim" and made is not None and made.slot == slot and made.invoked_s and next(n_claims) == 1:
            return "before"
        return on_request(process, name, arguments)

    world.network.on_request = dies
    outcome = simulate(world)
    check(world, outcome)
    who = "The supervisor was lost" if slot < 0 else "Worker 0 was lost"
    assert (outcome.status, sum(who in text for text in outcome.told)) == ("finished", 2)
    assert outcome.virtual_s < 90.0  # six leases


def test_one_of_two_replacements_that_is_lost_before_it_has_claimed_its_slot_is_replaced_after_half_a_lease() -> None:
    """Only the end of both was seen, and one that lived on hid the other's end for six leases."""
    faults = Fault("kill", 3.0, 0), Fault("kill", 3.0, 1)
    world = World(Scenario(7, Problem("logistic", "BSP", 2, 200), faults), traces=True)
    on_request, died = world._on_request, list[Process]()

    def dies(process: Process, name: str, arguments: tuple[Any, ...]) -> str:
        made = world.invocations.get(process)
        if name == "claim" and made is not None and made.slot == 0 and made.invoked_s and not died:
            died.append(process)
            return "before"
        return on_request(process, name, arguments)

    world.network.on_request = dies
    outcome = simulate(world)
    check(world, outcome)
    assert died
    assert outcome.status == "finished"
    assert outcome.virtual_s < 60.0  # six leases are 90 s


def test_the_bill_of_a_run_with_a_broker_that_the_driver_concludes_has_all_functions() -> None:
    """It lacked those whose replacement the lost supervisor had heard of, a fifth of some bills."""
    problem, n_concluded = Problem("logistic", "BSP", 2, 100, checkpoint_every=10), 0
    for at_s in (10.35, 10.4, 10.45, 10.5):
        faults = Fault("kill", 3.0, 0), Fault("kill", at_s, -1)
        world, outcome = run(Scenario(7, problem, faults, keeps_messages=False), traces=True)
        n_concluded += not any("The supervisor was lost and invoked again" in text for text in outcome.told)
        assert (outcome.status, outcome.billed_s >= world.lived_s) == ("finished", True)
    assert n_concluded


def test_a_worker_that_was_paused_leaves_no_model_that_it_stores_after_the_run_has_ended() -> None:
    """Seed 5828: nobody removed it."""
    world, outcome = run(
        Scenario(
            5828,
            Problem("logistic", "BSP", 1, 11, pattern="scatter-reduce", checkpoint_every=5),
            (Fault("pause", 0.9258747169794629, 0, span_s=25.0),),
            ((0.46549786333654075, "stop", 0.9271639922029258),),
            is_local=False,
            keeps_messages=False,
            latency_s=0.0038493360523256404,
            step_s=0.023279093048284835,
            start_s=0.7665913007023388,
            lease_s=15.0,
        )
    )
    assert outcome.status == "stopped"
    assert world.clock.now > 25.0
