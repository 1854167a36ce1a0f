"""A few trials of the proof that no run spends more than its cap; ``make budget-proof`` does hundreds of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from budget.proof import SUPERVISOR, Plan, drawn, prove, tried
from servers import RedisProcess

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")


@pytest.fixture
def server(redis_program: str, tmp_path: Path) -> Iterator[RedisProcess]:
    """A Redis to be killed and paused."""
    one = RedisProcess(redis_program, tmp_path)
    one.start()
    yield one
    one.kill()


def test_plans_follow_from_the_seed() -> None:
    plans = [drawn(7, number) for number in range(200)]
    assert plans == [drawn(7, number) for number in range(200)]
    assert plans != [drawn(8, number) for number in range(200)]
    struck = {what for plan in plans for _, what in plan.faults}
    assert struck >= {"0", "1", "2", "3", SUPERVISOR, "everybody", "driver", "redis restart", "redis pause"}
    assert any(plan.raised for plan in plans)
    assert any(plan.skew_s for plan in plans)
    assert any(plan.times_least == 1.0 for plan in plans)


@pytest.mark.long
def test_a_run_whose_functions_are_killed_and_whose_clocks_are_off_keeps_its_cap(server: RedisProcess) -> None:
    plan = Plan(0, 2, "ISP", 4.0, (50, 1.5), 3600.0, ((0.5, "1"), (1.5, SUPERVISOR)))
    outcome = tried(plan, server)
    assert outcome.is_kept, outcome
    assert outcome.spent > 0


@pytest.mark.proof
def test_caps_are_kept_in_random_trials(server: RedisProcess) -> None:
    assert all(outcome.is_kept for outcome in prove(20, range(12), server))
