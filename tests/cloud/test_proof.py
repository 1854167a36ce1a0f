"""What the emulated AWS Lambda is asked for in large: ten runs beside a busy loop, and a minute of short lifetimes."""

from __future__ import annotations

from typing import Any

import pytest
from cloud.conftest import Unbroken, billed_usd, busy, least_usd, settled, trained
from cloud.test_outlasting import LIFETIME_S, STEPS, outlasting

pytestmark = pytest.mark.proof

N_RUNS = 10
#: The run is to last for so long, seconds: over the same links, whose pace decides it.
LONG_S = 60.0


def test_ten_of_ten_runs_with_a_third_of_a_core_finish_beside_a_busy_loop(box: Any, unbroken: Unbroken) -> None:
    for number in range(N_RUNS):
        box.ask(forget=True)  # a cold start is what eats a function's time
        box.n_before = len(box.invocations())
        with busy(box):
            run = trained(box, steps=200, memory_mb=512)
        ended = settled(box)
        print(number, run["time_s"], run["functions_usd"] / billed_usd(box), run["told"])
        assert (run.get("status"), run.get("digest")) == ("finished", unbroken(200)["digest"]), (number, run)
        assert [(each["error"], each["attempt"]) for each in ended] == [(None, 0)] * 4  # nobody was replaced
        assert run["functions_usd"] >= least_usd(box)


def test_a_minute_of_training_with_lifetimes_of_twenty_seconds_gives_the_unbroken_model(
    box: Any, unbroken: Unbroken
) -> None:
    steps = STEPS
    while (run := outlasting(box, steps))["time_s"] <= LONG_S:
        steps = int(steps * 1.2 * LONG_S / run["time_s"])
    assert run["digest"] == unbroken(steps)["digest"]
    assert len(settled(box)) >= 4 * LONG_S / LIFETIME_S
