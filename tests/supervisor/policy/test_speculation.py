"""Which workers get a duplicate: those that are slow for long, and nobody in a run that only has noise."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlless_nb.simulate.stragglers import Even, Pareto, ShiftedExponential, SlowWorkers, Stragglers
from mlless_nb.supervisor.policy import speculation as rule
from mlless_nb.supervisor.policy.speculation import LEAST_STEPS, SKIPPED_STEPS, Speculation, Straggler

FOREVER = math.inf


def asked(
    stragglers: Stragglers,
    *,
    n_workers: int = 4,
    n_steps: int = 400,
    step_s: float = 0.05,
    times: float = 3.0,
    start_s: float = 0.5,
    left_s: float = FOREVER,
    seed: int = 0,
    replaces: bool = False,
) -> list[tuple[int, Straggler]]:
    """Who is asked for after which step of a run in lockstep; if it ``replaces`` them, they are slow no more."""
    speculation, now, found = Speculation(times), 0.0, list[tuple[int, Straggler]]()
    draws = [random.Random(f"{seed} {slot}") for slot in range(n_workers)]
    quick: set[int] = set()
    for step in range(1, n_steps + 1):
        work = {
            slot: step_s * (1.0 if slot in quick else stragglers.factor(draws[slot], slot, step, now))
            for slot in range(n_workers)
        }
        now += max(work.values())
        speculation.note(now, work)
        straggler = speculation.ask(start_s, left_s, set())
        if straggler is not None:
            found.append((step, straggler))
            if replaces:
                quick.add(straggler.slot)
                speculation.forget()
    return found


@given(
    slot=st.integers(0, 7),
    factor=st.floats(3.5, 50.0),
    step_s=st.floats(0.002, 60.0),
    n_workers=st.sampled_from([2, 3, 4, 8]),
)
@settings(deadline=None, max_examples=40)
def test_a_worker_that_is_slow_from_the_start_is_found_once_and_not_in_the_first_steps(
    slot: int, factor: float, step_s: float, n_workers: int
) -> None:
    slot %= n_workers
    n_steps = min(int(4.0 / step_s / factor) + 40, 3000)
    found = asked(SlowWorkers({slot: factor}), n_workers=n_workers, step_s=step_s, n_steps=n_steps)
    assert [one.slot for _, one in found] == [slot]
    step, straggler = found[0]
    assert step >= SKIPPED_STEPS + LEAST_STEPS
    assert straggler.times == pytest.approx(factor, rel=0.01)
    assert straggler.lost_s >= 1.0


@given(factor=st.floats(1.0, 2.9), n_workers=st.integers(1, 8), step_s=st.floats(0.002, 60.0))
@settings(deadline=None, max_examples=40)
def test_a_worker_with_more_to_do_than_others_is_no_straggler(factor: float, n_workers: int, step_s: float) -> None:
    assert not asked(SlowWorkers({0: factor}), n_workers=n_workers, step_s=step_s)


@pytest.mark.parametrize("stragglers", [Even(), ShiftedExponential(0.5), ShiftedExponential(0.9), Pareto(2.5)])
@pytest.mark.parametrize(("n_workers", "step_s"), [(2, 0.005), (4, 0.1), (8, 1.0), (32, 0.2)])
def test_noise_is_no_straggler(stragglers: Stragglers, n_workers: int, step_s: float) -> None:
    assert not asked(stragglers, n_workers=n_workers, step_s=step_s, n_steps=600)


@given(pause_s=st.floats(0.1, 1000.0), step=st.integers(1, 100), step_s=st.floats(0.002, 1.0))
@settings(deadline=None, max_examples=40)
def test_one_pause_of_any_length_is_forgiven(pause_s: float, step: int, step_s: float) -> None:
    class Pause:
        def factor(self, draws: random.Random, slot: int, now: int, time_s: float) -> float:
            return 1.0 + pause_s / step_s * (slot == 1 and now == step)

    assert not asked(Pause(), n_steps=150, step_s=step_s)


def test_stalls_that_come_again_and_again_count_by_their_sum() -> None:
    """A process that may run for 20 ms of 200: most of its steps are quick, and every fourth takes 180 ms longer."""

    class Stalls:
        def factor(self, draws: random.Random, slot: int, step: int, time_s: float) -> float:
            return 37.0 if slot == 2 and draws.random() < 0.25 else 1.0

    assert [one.slot for _, one in asked(Stalls(), step_s=0.005)] == [2]


def test_a_worker_that_gets_slow_is_found_soon_and_its_duplicate_is_left_alone() -> None:
    from_s = 20.0
    found = asked(SlowWorkers({1: 5.0}, from_s), n_steps=1000, replaces=True)
    assert [one.slot for _, one in found] == [1]
    slow_s = 5 * 0.05 * (found[0][0] - from_s / 0.05)
    assert 1.0 <= slow_s <= 4.0


@pytest.mark.parametrize(
    "changes",
    [
        {"left_s": 2.0},
        {"times": 0.0},
        {"start_s": 500.0, "left_s": 600.0},
        {"n_workers": 1},
        {"n_steps": SKIPPED_STEPS + LEAST_STEPS - 1},
    ],
)
def test_what_would_not_pay_is_not_asked_for(changes: dict[str, float]) -> None:
    assert asked(SlowWorkers({0: 10.0}))
    assert not asked(SlowWorkers({0: 10.0}), **changes)  # type: ignore[arg-type]


def test_who_leaves_or_has_a_successor_gets_no_duplicate() -> None:
    speculation = Speculation(3.0)
    for step in range(100):
        speculation.note(0.5 * step, {0: 0.5, 1: 0.01, 2: 0.01})
    assert speculation.ask(1.0, FOREVER, {0}) is None
    assert speculation.ask(1.0, FOREVER, {1, 2}) is not None


def test_a_window_ends_where_the_workers_change() -> None:
    speculation = Speculation(3.0)
    for step in range(100):
        speculation.note(0.5 * step, {0: 0.5, 1: 0.01, 2: 0.01})
    speculation.note(50.0, {0: 0.5, 1: 0.01})
    assert speculation.ask(1.0, FOREVER, set()) is None


def test_a_window_in_which_nobody_lags_behind_is_looked_at_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor asks with every poll; a look takes as long as some hundred steps' reports."""
    looked, look = [], rule.straggler_of
    monkeypatch.setattr(rule, "straggler_of", lambda *window: looked.append(window) or look(*window))
    assert not asked(Even(), step_s=0.005, n_steps=1000)
    assert 4 <= len(looked) <= 6
