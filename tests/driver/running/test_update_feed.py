"""What the driver makes of the supervisor's updates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mlless_nb.bus.messages import Update
from mlless_nb.driver.running.update_feed import LOST_S, UpdateFeed
from mlless_nb.money import Rates, price_profile
from mlless_nb.telemetry.live import COLUMNS, Telemetry

RATES = Rates(price_profile("aws-lambda-x86"), 1769)


def fed(*updates: list[int], last_step: int = 0) -> tuple[list[int], list[str]]:
    """The steps of a history, and the events, after updates with the rows of these steps."""
    telemetry, commands = Telemetry(), SimpleNamespace(settle=lambda done: None)
    feed = UpdateFeed(telemetry, commands, None, RATES)  # type: ignore[arg-type]
    for steps in updates:
        rows: list[Any] = [[float(step), *[0.5] * (len(COLUMNS) - 1)] for step in steps]
        feed.take(Update(rows))
    feed.close(last_step)
    return [int(step) for step in telemetry.history()["step"]], [event.text for event in telemetry.state.events]


def test_rows_wait_for_those_before_them_that_a_server_has_lost() -> None:
    """A Redis that lost its data between two messages of an update lost 500 rows of the history for ever."""
    telemetry, now_s = Telemetry(), 0.0
    commands: Any = SimpleNamespace(settle=lambda done: None)
    feed = UpdateFeed(telemetry, commands, None, RATES, lambda: now_s)

    def take(after: int, *steps: int) -> list[int]:
        rows: list[Any] = [[float(step), *[0.5] * (len(COLUMNS) - 1)] for step in steps]
        feed.take(Update(rows, after=float(after)))
        return [int(step) for step in telemetry.history()["step"]]

    assert take(2, 3) == []  # the first ones are lost
    assert take(0, 1, 2) == [1, 2, 3]
    assert take(4, 5, 6) == [1, 2, 3]
    assert take(6, 7) == [1, 2, 3]
    now_s += 2 * LOST_S
    assert take(0, 1, 2, 3) == [1, 2, 3]  # the first part of what is sent again: they wait for the second one
    assert take(3, 4) == [1, 2, 3, 4, 5, 6, 7]
    assert take(5, 6, 7, 8)[-1] == 8
    assert not telemetry.state.events
    take(9, 10)
    assert take(0, 13, 14)[-1] == 8  # earlier ones are not kept any more by who sends again
    take(10, 11, 12, 13)
    now_s += 2 * LOST_S
    assert take(14, 15)[-7:] == [8, 10, 11, 12, 13, 14, 15]  # nobody sends it again
    take(16, 17)
    feed.close(0)
    assert [int(step) for step in telemetry.history()["step"]][-2:] == [15, 17]
    assert [event.text[:16] for event in telemetry.state.events] == ["Step 9 is missin", "Step 16 is missi"]


def test_rows_that_are_sent_again_are_skipped_and_whole_histories_are_not_spoken_of() -> None:
    assert fed([1, 2], [], [1, 2, 3], [3], [4]) == ([1, 2, 3, 4], [])


def test_the_run_tells_which_steps_its_history_lacks() -> None:
    """It had a gap, and nothing said so."""
    steps, told = fed([2, 3], [1], [7, 9], [10])
    assert steps == [2, 3, 7, 9, 10]
    why = "not every worker took them, or the supervisor could not read their reports in time"
    first, second = "Step 1 is missing in the history", "Steps 4 to 6 are missing in the history, 4 steps so far"
    in_all = "5 steps in all are missing in the history"  # step 8, too
    assert told == [f"{steps}: {why}; the model is not affected" for steps in (first, second, in_all)]
    _, told = fed(*([step] for step in range(2, 2002, 2)))
    assert len(told) == 11  # of 1,000 gaps
    assert told[-1] == f"1000 steps in all are missing in the history: {why}; the model is not affected"


def test_the_run_tells_that_its_history_lacks_the_last_steps() -> None:
    """Their reports were lost with the data of a Redis that was killed as the run ended, and nothing said so."""
    _, told = fed([1, 2], last_step=5)
    assert [text.split(":")[0] for text in told] == ["The run's last steps are missing in its history after step 2"]
    assert fed([1, 2], last_step=2) == ([1, 2], [])
