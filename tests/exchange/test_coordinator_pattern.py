"""The choice between broadcast and scatter-reduce, and the probe that it rests on."""

from __future__ import annotations

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb import ServiceError
from mlless_nb.exchange import choose_pattern, probe
from mlless_nb.exchange.pattern import broadcast_s, scatter_from, scatter_reduce_s

#: A server on this machine, and one behind a link of 100 Mbit/s.
LOCAL, SLOW = (50e-6, 3e9), (400e-6, 12.5e6)
TABLE = 818_664


def test_few_workers_and_small_updates_are_broadcast() -> None:
    assert choose_pattern(1, 419_000, TABLE, *LOCAL) == "broadcast"
    assert choose_pattern(2, 419_000, TABLE, *SLOW) == "broadcast"
    assert choose_pattern(8, 1_000, TABLE, *LOCAL) == "broadcast"
    assert choose_pattern(4, 26_000, TABLE, *LOCAL) == "broadcast"


def test_many_workers_with_large_updates_scatter() -> None:
    assert choose_pattern(8, 419_000, TABLE, *LOCAL) == "scatter-reduce"
    assert choose_pattern(24, 419_000, TABLE, *LOCAL) == "scatter-reduce"
    assert choose_pattern(8, 419_000, TABLE, *SLOW) == "scatter-reduce"


def test_where_bytes_are_dear_smaller_updates_scatter() -> None:
    assert choose_pattern(8, 60_000, 60_000, *LOCAL) == "broadcast"
    assert choose_pattern(8, 60_000, 60_000, *SLOW) == "scatter-reduce"


def test_updates_that_touch_the_same_rows_scatter_sooner() -> None:
    link = (24, 11_000, 400_000, 1.3e-3, 125e6)  # clicks over 1 Gbit/s: half of the rows are in another update, too
    assert choose_pattern(*link) == "broadcast"
    assert choose_pattern(*link, 0.77) == "scatter-reduce"
    assert scatter_from("auto", *link) == 0 < scatter_from("auto", *link, growth=0.77) <= 24
    costs = [scatter_reduce_s(*link, growth) for growth in (0.0, 0.5, 0.77, 1.0)]
    assert costs == sorted(costs)
    assert costs[-1] == scatter_reduce_s(*link)


@pytest.mark.parametrize("update_bytes", [1_000, 100_000, 419_000])
def test_as_workers_leave_updates_are_broadcast_again_where_that_is_quicker(update_bytes: int) -> None:
    link = (update_bytes, TABLE, *LOCAL)
    first = scatter_from("auto", 24, *link)
    for n_workers in range(1, 25):
        assert (choose_pattern(n_workers, *link) == "scatter-reduce") == (0 < first <= n_workers)
    assert scatter_from("broadcast", 24, *link) == 0
    assert scatter_from("scatter-reduce", 24, *link) == 2


@given(st.integers(3, 200), st.floats(1, 1e9), st.floats(1, 1e9), st.floats(1e-6, 1.0), st.floats(1e4, 1e11))
def test_the_choice_is_the_cheaper_and_costs_grow(
    n_workers: int, update_bytes: float, table_bytes: float, latency_s: float, bytes_per_s: float
) -> None:
    link = (latency_s, bytes_per_s)
    one = broadcast_s(n_workers, update_bytes, *link)
    other = scatter_reduce_s(n_workers, update_bytes, table_bytes, *link)
    chosen = choose_pattern(n_workers, update_bytes, table_bytes, *link)
    assert chosen == ("scatter-reduce" if other < one else "broadcast")
    assert 0 < one <= broadcast_s(n_workers + 1, update_bytes, *link)
    assert 0 < other <= scatter_reduce_s(n_workers + 1, update_bytes, table_bytes, *link)


@pytest.mark.redis
def test_the_probe_leaves_nothing(redis_url: str) -> None:
    latency_s, bytes_per_s = probe(redis_url, "mlless:some-job:")
    assert latency_s > 0
    assert bytes_per_s > 0
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0


def test_a_probe_without_a_server_says_so() -> None:
    with pytest.raises(ServiceError, match="probe"):
        probe("unix:///nowhere/redis.sock")
