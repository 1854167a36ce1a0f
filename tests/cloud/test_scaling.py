"""Workers that leave, and caps, on the emulated AWS Lambda: by the box's own bill."""

from __future__ import annotations

from typing import Any

import pytest
from cloud.conftest import billed_usd, busy, least_usd, settled, slow_links, trained

pytestmark = pytest.mark.long

#: Over links of so many megabits a second most of these steps are still to be done when a worker leaves.
STEPS, MEGABIT = 600, 30.0
#: A budget that a run without another end uses up, US dollars.
CAP_USD = 0.003
#: That of a run beside busy loops: functions that start in 20 s instead of 2 cost most of the one above.
BUSY_CAP_USD = 0.006
#: The token bucket of one link may run out before that of another: its worker is slower, and would get a duplicate.
PLAIN = {"speculation": "off"}


def call_of(worker: int) -> list[str]:
    """The calls of a worker's function: the supervisor has the first one."""
    return [f"{worker + 1:05d}"]


def test_a_worker_that_a_user_removes_is_billed_no_longer(box: Any) -> None:
    with slow_links(box, MEGABIT):
        run = trained(box, **PLAIN, steps=STEPS, says_step=1, removes=2)
    assert (run.get("status"), run.get("steps"), run.get("n_workers")) == ("finished", STEPS, [3, 2]), run
    ended = settled(box)
    print("removed", run["time_s"], run["functions_usd"] / billed_usd(box), run["told"], ended)
    assert [each["error"] for each in ended] == [None] * 4
    removed, *others = ended  # in the order of their ends
    assert removed["calls"] == call_of(2)
    assert removed["usd"] < min(each["usd"] for each in others)
    assert 0.95 * billed_usd(box) <= run["functions_usd"] <= 1.05 * billed_usd(box)


def test_the_tuner_removes_workers_and_the_cap_holds(box: Any) -> None:
    with slow_links(box, MEGABIT):
        run = trained(box, **PLAIN, steps=1_000_000, tuned=True, budget=CAP_USD)
    ended = settled(box)
    print("capped", run.get("time_s"), run.get("functions_usd", 0) / billed_usd(box), run.get("told"), ended)
    assert run.get("status") == "capped", run
    assert [each["error"] for each in ended] == [None] * 4
    removed = [int(text.split()[3]) for text in run["told"] if " Removed worker " in text]
    assert removed
    assert run["n_workers"] == [3, 3 - len(removed)]
    first = ended[: len(removed)]  # in the order of their ends
    assert sorted(each["calls"] for each in first) == sorted(map(call_of, removed))
    assert run["functions_usd"] >= least_usd(box)
    servers = sum(run["cost"].values()) - run["functions_usd"]
    assert max(billed_usd(box), run["functions_usd"]) + servers <= CAP_USD


def test_a_cap_holds_beside_busy_loops(box: Any) -> None:
    """Runtimes took twice as long to end as is estimated, and nothing was reserved for it."""
    with busy(box), busy(box):
        run = trained(box, steps=1_000_000, budget=BUSY_CAP_USD)
    print("capped", run.get("time_s"), run.get("functions_usd", 0) / billed_usd(box), run.get("told"))
    assert run.get("status") == "capped", run
    servers = sum(run["cost"].values()) - run["functions_usd"]
    assert billed_usd(box) + servers <= BUSY_CAP_USD
    assert sum(run["cost"].values()) > 0.8 * BUSY_CAP_USD


@pytest.mark.parametrize("execution", ["map-reduce", "events"])
def test_functions_that_live_for_a_part_of_a_step_are_billed_beside_busy_loops(box: Any, execution: str) -> None:
    """From the call that asks for one, which is more than its runtime takes longer to end than is estimated."""
    with busy(box), busy(box):
        run = trained(box, steps=4, execution=execution)
    ended = settled(box)
    assert run.get("status") == "finished", run
    functions_usd = run["cost"]["workers"] + run["cost"]["reducers"]
    print(execution, run["time_s"], len(ended), functions_usd / billed_usd(box), run["cost"])
    assert [each["error"] for each in ended] == [None] * len(ended)
    assert functions_usd >= billed_usd(box)
