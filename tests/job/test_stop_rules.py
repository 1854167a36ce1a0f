"""When training ends, and that everybody who sees the same numbers ends at the same step."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb import Stop
from mlless_nb.job.stop_rules import EXPLODED, SMOOTHED_STEPS, StopRules, Verdict, lower


def rules(**stop: Any) -> StopRules:
    """Stop rules as a function is told of them."""
    return StopRules(dataclasses.asdict(Stop(**stop)), "RMSE")


def first_verdict(
    judge: StopRules, losses: list[float], held_out: dict[int, float] | None = None, per_epoch: int = 10
) -> tuple[int, Verdict] | None:
    """The step at which ``judge`` ends training, and how; ``held_out`` are the evaluations by step."""
    for step, loss in enumerate(losses, start=1):
        validation = held_out.get(step) if held_out is not None else None
        verdict = judge.observe(step, step / per_epoch, loss, validation, held_out is not None)
        if verdict is not None:
            return step, verdict
    return None


def test_steps_and_epochs_end_training_whichever_is_first() -> None:
    assert first_verdict(rules(steps=7), [1.0] * 20) == (7, Verdict("finished", "all 7 steps are done"))
    assert first_verdict(rules(epochs=1.5), [1.0] * 20) == (15, Verdict("finished", "all 1.5 epochs are done"))
    assert first_verdict(rules(steps=12, epochs=1), [1.0] * 20) == (10, Verdict("finished", "1 epoch is done"))
    assert first_verdict(rules(steps=1), [1.0]) == (1, Verdict("finished", "1 step is done"))
    assert first_verdict(rules(steps=9, epochs=1), [1.0] * 20) == (9, Verdict("finished", "all 9 steps are done"))


@given(st.integers(1, 500), st.integers(1, 60))
def test_whole_epochs_end_at_their_last_step(per_epoch: int, epochs: int) -> None:
    judge = rules(epochs=epochs)
    last = per_epoch * epochs
    assert judge.observe(last - 1, (last - 1) / per_epoch, 1.0, None, False) is None
    said = "1 epoch is done" if epochs == 1 else f"all {epochs} epochs are done"
    assert judge.observe(last, last / per_epoch, 1.0, None, False) == Verdict("finished", said)


def test_no_rule_never_ends() -> None:
    assert first_verdict(rules(), [1.0] * 200, dict.fromkeys(range(1, 200), 1.0)) is None


def test_time_is_not_judged_here() -> None:
    assert first_verdict(rules(time_s=1e-9), [1.0] * 30) is None


def test_the_target_is_judged_by_the_held_out_rows_alone() -> None:
    found = first_verdict(rules(target=0.9), [0.1] * 20, {5: 0.95, 10: 0.9, 15: 0.5})
    assert found == (10, Verdict("finished", "target reached: validation RMSE 0.9000 (target 0.9) at step 10"))


def test_a_target_may_be_asked_to_be_confirmed() -> None:
    held_out = {2: 0.8, 4: 0.95, 6: 0.9, 8: 0.85, 10: 0.8, 12: 0.7}
    found = first_verdict(rules(target=0.9, confirmations=3), [1.0] * 20, held_out)
    assert found == (10, Verdict("finished", "target reached: validation RMSE 0.8000 (target 0.9) at step 10"))
    assert first_verdict(rules(target=0.9, confirmations=5), [1.0] * 20, held_out) is None


def test_without_held_out_rows_the_target_is_judged_by_the_mean_of_the_last_steps() -> None:
    losses = [2.0] * 5 + [0.5] * 20
    step, verdict = first_verdict(rules(target=1.0), losses) or (0, None)
    assert verdict == Verdict("finished", f"target reached: training RMSE 0.9500 (target 1) at step {step}")
    means = [math.fsum(losses[end - SMOOTHED_STEPS : end]) / SMOOTHED_STEPS for end in range(SMOOTHED_STEPS, 25)]
    assert step == SMOOTHED_STEPS + next(index for index, mean in enumerate(means) if mean <= 1.0)
    # One lucky minibatch is not the target.
    assert first_verdict(rules(target=1.0), [2.0, 0.1] + [2.0] * 20) is None


@given(st.lists(st.floats(0.1, 5), min_size=1, max_size=30), st.integers(1, 5))
def test_patience_counts_evaluations_since_the_best(losses: list[float], patience: int) -> None:
    held_out = {2 * index: loss for index, loss in enumerate(losses, start=1)}
    found = first_verdict(rules(patience=patience), [1.0] * (2 * len(losses) + 5), held_out)
    expected = None
    best, since = math.inf, 0
    for step, loss in held_out.items():
        best, since = (loss, 0) if loss < best else (best, since + 1)
        if since == patience and expected is None:
            expected = step
    assert (found[0] if found else None) == expected
    if found:
        assert found[1].status == "finished"
        assert found[1].reason.endswith("in 1 evaluation" if patience == 1 else f"in {patience} evaluations")


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("step", [1, 4])
def test_a_loss_that_is_not_finite_fails_at_once(loss: float, step: int) -> None:
    found = first_verdict(rules(steps=100), [1.0] * (step - 1) + [loss])
    assert found is not None
    assert found[0] == step
    assert found[1].status == "failed"
    assert found[1].reason == f"the loss became {loss:.4g} at step {step}; lower the learning rate"


@pytest.mark.parametrize(
    ("rate", "named"), [(30.0, "10"), (29.0, "5"), (0.001, "0.0002"), (3e-5, "1e-05"), (1, "0.2"), (7.5, "2")]
)
def test_divergence_names_a_rate_to_try(rate: float, named: str) -> None:
    for loss, validation in ((math.nan, None), (1.0, math.nan)):
        verdict = StopRules({}, "RMSE", rate).observe(1, 0.1, loss, validation, True)
        assert verdict is not None
        assert verdict.reason.endswith(f"; lower the learning rate, e.g. to {named}")


@given(st.floats(1e-30, 1e30))
def test_the_rate_to_try_is_about_a_third(rate: float) -> None:
    assert rate / 8 <= lower(rate) <= rate / 3 * (1 + 1e-6)


def test_a_loss_that_explodes_fails_but_a_bad_start_does_not() -> None:
    assert first_verdict(rules(), [1e6, 1e6, 1e5]) is None
    assert first_verdict(rules(), [0.5, 0.5 * EXPLODED]) is None
    step, verdict = first_verdict(rules(), [0.5, 0.51 * EXPLODED]) or (0, None)
    assert step == 2
    assert verdict is not None
    assert verdict.status == "failed"


@pytest.mark.parametrize("first", [0.0, 1e-30])
def test_a_loss_of_nothing_at_the_start_makes_no_later_one_an_explosion(first: float) -> None:
    assert first_verdict(rules(), [first, 0.5, 0.6]) is None


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_held_out_rows_that_are_not_finite_fail(loss: float) -> None:
    found = first_verdict(rules(target=0.5, steps=100), [1.0] * 9, {4: loss})
    assert found is not None
    assert (found[0], found[1].status) == (4, "failed")
    assert "lower the learning rate" in found[1].reason


def test_a_failure_goes_before_every_other_rule() -> None:
    found = first_verdict(rules(target=100.0, steps=3), [1.0, 1.0, math.nan], {3: 0.1})
    assert found is not None
    assert found[1].status == "failed"


LOSSES = st.lists(st.floats(0.01, 3) | st.sampled_from([math.nan, 1e9]), min_size=1, max_size=40)
STOPS = st.fixed_dictionaries(
    {},
    optional={
        "target": st.floats(0.1, 2),
        "epochs": st.floats(0.1, 4),
        "steps": st.integers(1, 40),
        "patience": st.integers(1, 4),
    },
)


@given(STOPS, LOSSES, st.none() | st.dictionaries(st.integers(1, 40), st.floats(0.01, 3)))
def test_all_who_see_the_same_come_to_the_same(
    stop: dict[str, Any], losses: list[float], held_out: dict[int, float] | None
) -> None:
    verdicts = [first_verdict(rules(**stop), losses, held_out) for _ in range(3)]
    assert verdicts[0] == verdicts[1] == verdicts[2]
    if verdicts[0] is not None:
        assert verdicts[0][1].status in ("finished", "failed")
        assert verdicts[0][1].reason
    if "steps" in stop and len(losses) >= stop["steps"]:
        assert verdicts[0] is not None
        assert verdicts[0][0] <= stop["steps"]
