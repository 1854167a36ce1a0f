"""Functions near the end of their lifetimes hand over to successors, some of which are late, or lost."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("greenlet")

from seeds.check import check, run
from seeds.clock import Process
from seeds.scenario import Fault, Problem, Scenario
from seeds.world import World, simulate

from mlless_nb import ServiceError
from mlless_nb.bus.messages import Invocation, Message
from mlless_nb.supervisor import checkpoint_times


@pytest.mark.parametrize("keeps_messages", [True, False])
def test_a_run_of_several_lifetimes(keeps_messages: bool) -> None:
    """With RabbitMQ, a supervisor that took over took all workers for as old as the run, and stopped it."""
    problem = Problem("logistic", "BSP", 2, 600)
    limited: dict[str, Any] = {"lifetime_s": 10.0, "lease_s": 1.0, "is_local": False}
    world, outcome = run(Scenario(7, problem, keeps_messages=keeps_messages, **limited))
    assert world.clock.now > 3 * limited["lifetime_s"]
    assert (outcome.status, outcome.last_step) == ("finished", problem.steps)


class Refusing(World):
    """A run on a cloud that loses, or refuses to invoke, the first ``n`` successors of a slot."""

    def __init__(self, scenario: Scenario, slot: int, n: int, *, refuses: bool) -> None:
        super().__init__(scenario, traces=True)
        self._slot, self._n, self._refuses = slot, n, refuses

    def invoke(self, payload: str) -> None:
        invocation = Message.decode(payload)
        assert isinstance(invocation, Invocation)
        if not invocation.is_successor or invocation.slot != self._slot or not self._n:
            super().invoke(payload)
            return
        self._n -= 1
        if self._refuses:
            raise ServiceError("backend: the functions could not be invoked: 429")


@pytest.mark.parametrize("slot", [-1, 0])
@pytest.mark.parametrize(("n", "refuses"), [(1, False), pytest.param(2, False, marks=pytest.mark.long), (2, True)])
def test_a_successor_that_does_not_start_is_asked_for_again(slot: int, n: int, refuses: bool) -> None:
    """The run was stopped, "the functions' lifetime of 60 s is nearly over"; one refusal failed it."""
    scenario = Scenario(7, Problem("logistic", "BSP", 2, 1300), is_local=False, lifetime_s=60.0, lease_s=1.0)
    outcome = simulate(world := Refusing(replace(scenario, room_s=200.0), slot, n, refuses=refuses))
    check(world, outcome)
    assert (outcome.status, outcome.last_step) == ("finished", 1300)
    who = "the supervisor" if slot < 0 else f"worker {slot}"
    again = f"The successor of {who} did not start; another one was invoked" if not refuses else "429; asked again in"
    assert sum(again in text for text in outcome.told) == n


def test_successors_that_never_start_are_asked_for_at_most_three_times_by_each_supervisor() -> None:
    """The one that took over took the third for the function that has the slot, which lived on until it was lost."""
    scenario = Scenario(7, Problem("logistic", "BSP", 2, 1300), is_local=False, lifetime_s=60.0, lease_s=1.0)
    outcome = simulate(world := Refusing(scenario, 0, 9, refuses=False))
    check(world, replace(outcome, status="capped"))  # the lifetime has stopped it
    assert outcome.status == "stopped"
    assert world._n == 9 - 3 - 2  # for the supervisor that takes over the third one of the first is its first
    assert not any("training goes on from" in text for text in outcome.told)
    assert "lifetime of 60 s is nearly over" in outcome.reason


@pytest.mark.parametrize("keeps_messages", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_supervisor_that_takes_over_does_not_ask_again_for_successors_that_start(keeps_messages: bool) -> None:
    """It asked for another one for a worker whose successor the one before it had asked for in its last second."""
    problem, n_overlapping = Problem("logistic", "BSP", 2, 400), 0
    limited: dict[str, Any] = {"lifetime_s": 20.0, "lease_s": 2.0, "start_s": 1.0}
    for tenth in range(36, 50, 2):
        killed = Fault("kill", tenth / 10, 0)
        made = Scenario(7, problem, (killed,), keeps_messages=keeps_messages, **limited)
        world, outcome = run(made, traces=True)
        assert outcome.status == "finished"
        invoked = [
            (float(time_s), slot)
            for time_s, slot in re.findall(
                r"^ *([\d.]+)  invoked (\w+)\.\d+ .*successor=True", "\n".join(world.trace), re.MULTILINE
            )
        ]
        for (before_s, before), (after_s, after) in itertools.combinations(invoked, 2):
            assert before != after or after_s - before_s > 4.0, invoked
        n_overlapping += any(
            before == "s" and after == "0" and after_s - before_s < 1.0
            for (before_s, before), (after_s, after) in itertools.combinations(invoked, 2)
        )
    assert n_overlapping  # what is looked for here


class Dying(World):
    """A run on a cloud whose first successor of worker 0 dies a while after it has said that it waits."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario, traces=True)
        on_request, n_asked = self._on_request, itertools.count(1)

        def dies(process: Process, name: str, arguments: tuple[Any, ...]) -> str:
            invocation = self.invocations.get(process)
            is_by_it = name == "claim" and invocation is not None and invocation.is_successor and invocation.slot == 0
            return "before" if is_by_it and next(n_asked) == 25 else on_request(process, name, arguments)

        self.network.on_request = dies


@pytest.mark.parametrize("keeps_messages", [True, False])
def test_a_successor_that_dies_while_it_waits_is_asked_for_again(keeps_messages: bool) -> None:
    """Nobody missed it: the function before it lived up to its lifetime, was lost, and all went back."""
    problem = Problem("logistic", "BSP", 2, 70)
    limited: dict[str, Any] = {"lifetime_s": 60.0, "lease_s": 0.5, "step_s": 1.0, "is_local": False}
    outcome = simulate(world := Dying(Scenario(7, problem, keeps_messages=keeps_messages, **limited)))
    check(world, outcome)
    assert outcome.status == "finished"
    assert sum("The successor of worker 0 was lost; another one was invoked" in text for text in outcome.told) == 1
    assert not any("training goes on from" in text for text in outcome.told)


@pytest.mark.parametrize("keeps_messages", [True, False])
def test_a_successor_that_a_lost_supervisor_has_asked_for_and_that_does_not_start_is_asked_for_again(
    keeps_messages: bool,
) -> None:
    """The next supervisor took it for the function that has the slot, which lived up to its lifetime and was lost."""
    limited: dict[str, Any] = {"is_local": False, "lifetime_s": 60.0, "lease_s": 1.0}
    killed = Fault("kill", 35.5, -1)  # it has asked for the successor of worker 0 at 35.1 s
    scenario = Scenario(7, Problem("logistic", "BSP", 2, 900), (killed,), keeps_messages=keeps_messages, **limited)
    outcome = simulate(world := Refusing(scenario, 0, 1, refuses=False))
    check(world, outcome)
    assert (outcome.status, world._n) == ("finished", 0)
    assert any("The supervisor was lost" in text for text in outcome.told)
    assert sum("The successor of worker 0 did not start; another one" in text for text in outcome.told) == 1
    assert not any("training goes on from" in text for text in outcome.told)


@pytest.mark.long
def test_a_backend_that_refuses_functions_does_not_keep_the_driver_from_its_work() -> None:
    """It heard nothing until they were invoked, for up to 13 seconds, and commands stayed pending."""
    scenario = Scenario(7, Problem("logistic", "BSP", 3, 900), is_local=False, lifetime_s=60.0, lease_s=1.0)
    world, seen = Refusing(scenario, 0, 3, refuses=True), list[tuple[int, int, tuple[str, ...]]]()

    def look() -> None:
        state = world.run.telemetry.state
        seen.append((world.run.telemetry.n_rows, state.n_workers, state.pending))

    # The successor of worker 0 is refused at about 35, 36 and 39 s, and asked for again at 48 s.
    world.clock.at(40.0, look)
    world.clock.at(41.0, lambda: world.driver_process.spawn(lambda: world.run.scale_in(1)))
    world.clock.at(46.0, look)
    outcome = simulate(world)
    check(world, outcome)
    assert (outcome.status, world._n) == ("finished", 0)
    (n_before, *before), (n_after, *after) = seen
    assert n_after > n_before + 20
    assert (before, after) == ([3, ()], [2, ()])


def test_a_successor_that_is_started_twice_waits_once() -> None:
    """Both waited, and the one in vain returned the money that the other one ran on: the cap could be passed."""
    limited: dict[str, Any] = {"is_local": False, "lifetime_s": 60.0, "lease_s": 1.0, "room_s": 200.0}
    world = World(Scenario(7, Problem("logistic", "BSP", 2, 900), **limited), traces=True)
    plain, successors = world.invoke, list[str]()

    def twice(payload: str) -> None:
        invocation = Message.decode(payload)
        assert isinstance(invocation, Invocation)
        plain(payload)
        if invocation.is_successor:
            successors.append(payload)
            plain(payload)

    world.invoke = twice  # type: ignore[method-assign]
    outcome = simulate(world)
    check(world, outcome)
    assert outcome.status == "finished"
    assert len(successors) == sum('"kind":"Ready"' in line for line in world.trace) > 2


def test_a_replacement_whose_slot_a_waiting_successor_has_taken_returns_its_money() -> None:
    """What it was granted stayed reserved until the end of the run."""
    limited: dict[str, Any] = {"is_local": False, "lifetime_s": 60.0, "lease_s": 0.5, "step_s": 1.0, "room_s": 200.0}
    killed = Fault("kill", 35.9, 0)  # its successor waits
    world, outcome = run(Scenario(7, Problem("logistic", "BSP", 2, 50), (killed,), **limited), traces=True)
    assert outcome.status == "finished"
    (replacement,) = (
        process.name
        for process, invocation in world.invocations.items()
        if invocation.slot == 0 and invocation.invoked_s and not invocation.is_successor
    )
    assert not any(f"{replacement}: publish" in line for line in world.trace)
    assert any(f"{replacement}: refund(" in line for line in world.trace)


@pytest.mark.long
def test_after_a_restart_a_hand_over_does_not_wait_for_a_checkpoint_that_was_planned_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The successors of worker 0 gave up one after the other: "the functions' lifetime of 900 s is nearly over"."""
    monkeypatch.setattr(checkpoint_times, "SHARE", 0.00031)  # as of a large model: the second one is due after 500 s
    killed = Fault("kill", 502.0, 1)  # before it has stored its part: all go back to step 2
    limited: dict[str, Any] = {"is_local": False, "lifetime_s": 900.0, "step_s": 3.0}
    _, outcome = run(Scenario(7, Problem("logistic", "BSP", 2, 150), (killed,), **limited), traces=True)
    assert (outcome.status, outcome.last_step) == ("finished", 150)
    assert any("training goes on from step 2" in text for text in outcome.told)
    assert any("Worker 0 handed over" in text for text in outcome.told)
    assert not any("successor of worker 0 was lost" in text for text in outcome.told)
