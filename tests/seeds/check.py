"""What must hold after every seed."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from unittest import mock

from mlless_nb.exchange import Past, Plan
from mlless_nb.function.entry import RESTORED_S
from mlless_nb.supervisor.lifetimes import END_SHARE, FIRST_SHARE

from .scenario import Problem, Scenario, scenario_of
from .servers import WrongError
from .world import Outcome, World, simulate

#: The command that replays a seed, with all that happened in it.
REPLAY = "(cd tests && ../.venv/bin/python -m seeds {})"
#: How a run may end that had faults or commands.
ENDS = ("finished", "stopped", "capped")
#: Faults after which the bill of a run that finishes has all that its functions have lived. Not among them: a frozen
#: process, of which nobody hears, and data that is lost with what functions had reported.
BILLED = {"kill", "kill at", "slow start", "never starts", "duplicate", "part lost", "part damaged", "storage fails"}
#: A hand-over may take this share of a lifetime, from when the first worker's successor is asked for until the end; a
#: run where it takes longer may be stopped in good order though nothing went wrong.
HAND_OVER_SHARE = END_SHARE - FIRST_SHARE
#: Longest time of the requests of a function that finds no run, seconds.
LATE_S = 0.5
#: Reasons of "failed" that are right: a run that gets no further is given up.
GIVEN_UP = ("restarts the run is no further than step",)


def check(world: World, outcome: Outcome) -> None:
    """Raise `WrongError` if an invariant does not hold after a run."""
    scenario, hub = world.scenario, world.hub
    if outcome.status not in ENDS and not any(why in outcome.reason for why in GIVEN_UP):
        raise WrongError(f"{outcome.status}: {outcome.reason}")
    may_stop = scenario.faults or scenario.commands or scenario.handing_over_s > HAND_OVER_SHARE * scenario.lifetime_s
    may_stop = may_stop or (outcome.is_unpaid and "lifetime" in outcome.reason)
    if outcome.status == "stopped" and not may_stop:
        raise WrongError(f"stopped, though nobody asked for it and nothing went wrong: {outcome.reason}")
    is_whole = bool(outcome.rows) and outcome.rows[-1] == scenario.problem.steps
    loses = any(fault.kind in ("emptied", "restarted") for fault in scenario.faults)
    if outcome.status == "finished" and not is_whole and not (loses and outcome.tells_of_gap):
        raise WrongError(f"finished with the rows {outcome.rows}")
    # A row that is on the bus when its Redis loses all data is lost.
    can_lack = scenario.keeps_messages and loses
    # So is one that the step log drops while no supervisor reads it.
    can_lack = can_lack or scenario.kept_steps < scenario.problem.steps
    # And so is one that a worker never took which was to leave after it, and its peers were past, as the run ended.
    can_lack = can_lack or (
        bool(outcome.plan.leaves) and scenario.problem.sync == "SSP" and outcome.status != "finished"
    )
    missing = sorted(set(range(1, max(outcome.rows, default=0))) - set(outcome.rows))
    if outcome.rows != sorted(set(outcome.rows)) or (missing and not can_lack):
        raise WrongError(f"the rows are {outcome.rows}")
    # Not each of many gaps is named, but all missing steps are counted in the end.
    if not set(outcome.told_missing) <= set(missing) or outcome.n_told_missing != len(missing):
        said = f"{outcome.n_told_missing}, {outcome.told_missing} among them"
        raise WrongError(f"the rows are {outcome.rows}, and the missing ones are said to be {said}")
    left = sorted(set(world.objects.blobs) - world.before)
    if left:
        raise WrongError(f"objects are left: {left}")
    if not hub.is_lost:
        raise WrongError("the coordinator's data is left")
    for name in ("frames", "arrivals", "grants", "answers", "started_late", "refunded", "steps"):
        if getattr(hub, name):
            raise WrongError(f"the coordinator's {name} are left: {getattr(hub, name)}")
    # What functions send that come back after the end expires within a day.
    if any(world.topics.messages.values()) and not world.outlived:
        raise WrongError(f"messages are left: {world.topics.messages}")
    is_billed = scenario.room_s is None and {one.kind for one in scenario.faults} <= BILLED
    if outcome.status == "finished" and is_billed and outcome.billed_s < 0.999 * world.lived_s:
        raise WrongError(f"{outcome.billed_s:.2f} s of functions are billed, and they have lived {world.lived_s:.2f} s")
    # Of a function that the platform starts once the run is over nobody hears: it ends by itself.
    can_pause = any(fault.kind == "pause" for fault in scenario.faults)
    if not can_pause and any(late_s > RESTORED_S + LATE_S for late_s in world.late_s):
        raise WrongError(f"functions that started after the run's end have lived {world.late_s} s")
    is_last = outcome.status == "finished" or (outcome.status == "stopped" and "the model is" not in outcome.reason)
    if is_last and scenario.problem.promises_bits and outcome.params is not None:
        # A run that is stopped while it goes on from a checkpoint ends before the newest step of its history.
        last_step = scenario.problem.steps
        if outcome.status == "stopped":
            # Who restored lost data may not have known of the stop.
            stop_after = outcome.plan.stop_after if outcome.plan.stop_after is not None else outcome.last_step
            last_step = min(stop_after, last_step)
        if outcome.params != undisturbed(scenario.problem, tuple(sorted(outcome.plan.leaves.items())), last_step):
            raise WrongError(f"{outcome.status} after step {last_step}, but the model is another one")


@functools.lru_cache(maxsize=4096)
def undisturbed(problem: Problem, leaves: tuple[tuple[int, int], ...], last_step: int) -> bytes | None:
    """The model's bytes of a run without faults whose workers leave as planned and which ends after ``last_step``."""
    stop_after = None if last_step == problem.steps else last_step
    plan = Plan(1, dict(leaves), stop_after, "stopped", "as planned")
    world = World(Scenario(0, problem, latency_s=1e-4, step_s=0.01, start_s=0.3))
    create = world.hub.create

    def planned(cap: int | None, reserved: int, _: Past) -> None:
        create(cap, reserved, Past(plan=plan))

    with mock.patch.object(world.hub, "create", planned):
        outcome = simulate(world)
    assert outcome.last_step == last_step, outcome
    return outcome.params


def run(scenario: Scenario, *, traces: bool = False) -> tuple[World, Outcome]:
    """Simulate a scenario and check it; raises `WrongError`, or whatever the code under test raised, with the trace."""
    world = World(scenario, traces=traces)
    try:
        outcome = simulate(world)
        check(world, outcome)
    except Exception as error:
        error.add_note("\n".join([*world.trace, str(scenario)]))
        raise
    return world, outcome


def run_seeds(seeds: Iterable[int]) -> list[str]:
    """Simulate seeds; returns a sentence for each that has failed, with the command that replays it."""
    failed = []
    for seed in seeds:
        try:
            run(scenario_of(seed))
        except Exception as error:
            failed.append(f"seed {seed}: {type(error).__name__}: {error}; to replay it: {REPLAY.format(seed)}")
    return failed
