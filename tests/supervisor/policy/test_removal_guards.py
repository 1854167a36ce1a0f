"""Why nobody is removed: one guard a reason, each told once until another is."""

from __future__ import annotations

from typing import Any

import pytest
from supervisor.policy.curves import hyperbola, rows

from mlless_nb.supervisor.policy.decision import Refusal, Refusals
from mlless_nb.supervisor.policy.loss_history import History
from mlless_nb.supervisor.policy.removal_guards import END_GUARDS, LOSS_GUARDS, Limits, refusal_of


@pytest.fixture
def history() -> History:
    made = History()
    for row in rows([hyperbola(step) for step in range(1, 4)]):
        made.append(row)
    return made


def test_a_reason_is_told_once_whatever_its_figures(history: History) -> None:
    refusals = Refusals()
    told = [
        refusals.report(refusal, history, 8, {"s": 0.5})
        for refusal in (
            Refusal("saves_too_little", "one worker less would save 0.2 %"),
            Refusal("saves_too_little", "one worker less would save 0.4 %"),
            Refusal("loss_worse", "the projected loss is 3.00 % worse than with 8 workers"),
            Refusal("saves_too_little", "one worker less would save 0.4 %"),
        )
    ]
    assert [len(decisions) for decisions in told] == [1, 0, 1, 1]
    decision = told[0][0]
    assert (decision.kind, decision.step, decision.numbers) == ("keep", 3, {"s": 0.5})
    assert decision.text == "All 8 workers stay for now: one worker less would save 0.2 %"
    refusals.reset()
    assert refusals.report(Refusal("saves_too_little", "again"), history, 7, {})


def test_reasons_that_begin_alike_are_different(history: History) -> None:
    refusals = Refusals()
    assert refusals.report(Refusal("target_lost", "the loss curve no longer reaches the target"), history, 4, {})
    assert refusals.report(Refusal("target_far", "the target is still far off"), history, 4, {})


def test_the_first_guard_that_refuses_decides() -> None:
    asked: list[str] = []

    def guard(name: str, reason: str) -> Any:
        def refuses(estimate: Any, limits: Limits) -> str:
            asked.append(name)
            return reason

        refuses.__name__ = name
        return refuses

    guards = [guard("passes", ""), guard("refuses", "no"), guard("is_not_asked", "never")]
    limits = Limits(threshold=0.01, least_saving=0.01, saw_target=False)
    nothing: Any = None
    assert refusal_of(guards, nothing, limits) == Refusal("refuses", "no")
    assert asked == ["passes", "refuses"]
    assert refusal_of(guards[:1], nothing, limits) is None


def test_codes_are_unique() -> None:
    codes = [guard.__name__ for guard in (*LOSS_GUARDS, *END_GUARDS)]
    assert len(set(codes)) == len(codes) == 15
