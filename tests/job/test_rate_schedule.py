"""The learning rate's schedule: a pure function of the validation losses."""

from __future__ import annotations

import pytest
from engine.jobs import finish, job

from mlless_nb import BSP, SGD, Stop, datasets
from mlless_nb.job.rate_schedule import CUT, CUTS, PATIENCE_STEPS, PLATEAU_PATIENCE, Schedule

pytestmark = pytest.mark.usefixtures("shared_runtime")


def follow(schedule: Schedule, losses: list[float], steps_apart: int = 50, steps_in_epoch: int = 50) -> list[float]:
    """The factor after each of ``losses``."""
    steps = [(number + 1) * steps_apart for number in range(len(losses))]
    return [schedule.observe(step, step / steps_in_epoch, loss) for step, loss in zip(steps, losses, strict=True)]


def test_the_rate_stays_while_the_loss_falls() -> None:
    schedule = Schedule("auto")
    assert set(follow(schedule, [0.99**k for k in range(200)])) == {1.0}
    assert not schedule.is_settled


def test_the_rate_is_cut_when_the_loss_has_not_fallen_for_two_epochs() -> None:
    schedule = Schedule("auto")
    assert follow(schedule, [1.0, 0.9, 0.91, 0.9, 0.8]) == [1.0, 1.0, 1.0, CUT, CUT]


def test_a_fall_that_is_too_small_does_not_count() -> None:
    assert follow(Schedule("auto"), [1.0, 0.99995, 0.99993])[-1] == CUT
    assert follow(Schedule("auto"), [1.0, 0.999, 0.998])[-1] == 1.0


def test_after_the_last_cut_it_has_settled() -> None:
    schedule = Schedule("auto")
    factors = follow(schedule, [1.0] + [1.1] * (2 * CUTS + 1))
    assert factors[-1] == pytest.approx(CUT**CUTS)
    assert not schedule.is_settled
    schedule.observe(10_000, 300.0, 1.1)
    assert schedule.is_settled
    assert schedule.factor == pytest.approx(CUT**CUTS)


@pytest.mark.parametrize(("steps_apart", "steps_in_epoch"), [(1, 5), (100, 1000), (400, 36)])
def test_it_waits_for_an_epoch_for_steps_and_for_evaluations(steps_apart: int, steps_in_epoch: int) -> None:
    schedule = Schedule("auto")
    factors = follow(schedule, [1.0] * 200, steps_apart, steps_in_epoch)
    n = factors.index(CUT)
    assert n >= 2
    assert n * steps_apart >= PATIENCE_STEPS
    assert n * steps_apart >= 2 * steps_in_epoch
    assert (n - 1) * steps_apart < max(PATIENCE_STEPS, 2 * steps_in_epoch, 2 * steps_apart)


def test_a_constant_rate_settles_later_and_stays() -> None:
    schedule = Schedule("constant")
    assert set(follow(schedule, [1.0] * 10)) == {1.0}
    assert not schedule.is_settled
    follow(schedule, [1.0] * 20)
    assert schedule.factor == 1.0
    assert schedule.is_settled


def test_the_same_losses_give_the_same_rates() -> None:
    losses = [1.0, 0.8, 0.83, 0.79, 0.82, 0.81, 0.84, 0.7, 0.71, 0.72, 0.73]
    assert follow(Schedule("auto"), losses) == follow(Schedule("auto"), losses)


def test_on_a_plateau_before_factors_have_emerged_it_waits_for_much_longer() -> None:
    schedule = Schedule("auto")
    losses = [1.0] * (2 * PLATEAU_PATIENCE + 1)
    factors = [schedule.observe(50 * k, float(k), loss, has_emerged=False) for k, loss in enumerate(losses, 1)]
    assert factors == [1.0] * (len(losses) - 1) + [CUT]


@pytest.mark.parametrize(
    ("rate", "seed"),
    [
        (0.3, 1),
        pytest.param(2.0, 1, marks=pytest.mark.long),
        pytest.param(0.3, 2, marks=pytest.mark.long),
        pytest.param(2.0, 3, marks=pytest.mark.long),
    ],
)
def test_a_rate_is_not_cut_before_the_main_descent_of_a_factorisation(rate: float, seed: int) -> None:
    """The loss may rise for a while when factors emerge, before it falls."""
    data = datasets.synthetic_ratings(200, 100, 4000, rank=4, seed=seed)
    found = {}
    for schedule in ("auto", "constant"):
        optimizer = SGD(rate, momentum=0.9)
        run = finish(job(data=data, optimizer=optimizer, stop=Stop(steps=700), sync=BSP(), schedule=schedule))
        assert run.status == "finished", run.reason
        assert run.best is not None
        found[schedule] = run.best.loss
    assert found["auto"] < 1.02 * found["constant"]


def test_a_rate_that_was_cut_is_gone_on_with() -> None:
    schedule = Schedule("auto", CUT**2)
    assert schedule.factor == CUT**2
    assert follow(schedule, [1.0] + [1.1] * 20)[-1] == pytest.approx(CUT**CUTS)
    assert schedule.is_settled
    assert Schedule("constant", CUT).factor == 1.0
