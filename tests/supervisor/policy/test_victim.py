"""Who leaves: by quality, then by slowness; and what a person may ask for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.exchange.step_report import Report
from mlless_nb.supervisor.policy.victim import asked_to_leave, worst_worker


def report(loss: float | None, seconds: float) -> Report:
    """A worker's report."""
    quality = (2 * loss, 2.0) if loss is not None else (0.0, 0.0)
    return Report(0.0, 0.0, 0.0, 0.0, *quality, compute_s=seconds, wait_s=9 - seconds)


def test_the_worst_replica_leaves() -> None:
    assert worst_worker({0: report(0.5, 1), 1: report(0.7, 0.1), 2: report(0.6, 3)}, [0, 1, 2]) == 1
    assert worst_worker({0: report(0.5, 1), 1: report(0.7, 0.1), 2: report(0.6, 3)}, [0, 2]) == 2


def test_among_equals_and_unknowns_the_slowest_leaves() -> None:
    assert worst_worker({0: report(0.5, 1), 1: report(0.5, 3), 2: report(0.5, 2)}, [0, 1, 2]) == 1
    assert worst_worker({0: report(0.9, 1), 1: report(None, 3), 2: report(0.5, 2)}, [0, 1, 2]) == 1
    assert worst_worker({}, [0, 1, 2]) == 2


def test_what_a_person_asks_is_checked_in_one_line() -> None:
    assert asked_to_leave([], 2, 4, {}) == [2, 3]
    assert asked_to_leave([], 1, 4, {3: 7}) == [2]
    assert asked_to_leave([1], 0, 4, {}) == [1]
    assert asked_to_leave([9], 0, 4, {}) == "there is no worker 9: they are 0 to 3"
    assert asked_to_leave([3], 0, 4, {3: 7}) == "worker 3 has left or is leaving already"
    assert asked_to_leave([], 4, 4, {}) == "workers 0, 1, 2, 3 are in the run, and at least one must stay"


@given(
    st.lists(st.integers(-2, 9), max_size=5), st.integers(-2, 9), st.dictionaries(st.integers(0, 3), st.integers(1, 9))
)
def test_somebody_stays_whatever_is_asked(slots: list[int], count: int, leaves: dict[int, int]) -> None:
    chosen = asked_to_leave(slots, count, 4, leaves)
    if isinstance(chosen, list):
        staying = {0, 1, 2, 3} - leaves.keys()
        assert set(chosen) < staying
        assert chosen
    else:
        assert "\n" not in chosen
