"""The step log on Redis is read on by who comes late."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from mlless_nb.exchange.redis.step_log import AT_ONCE, StepLogReader
from mlless_nb.exchange.step_report import Report


@contextlib.contextmanager
def of_steps(url: str, n: int) -> Iterator[tuple[redis.Redis, StepLogReader]]:
    """A client, and the reader of a log of ``n`` steps."""
    with contextlib.closing(redis.Redis.from_url(url)) as client:
        adding = client.pipeline()
        for step in range(1, n + 1):
            adding.xadd("late:steps", {"at": "1.0", "step": step, "0": Report(1.0, 1.0).encode()})
        adding.execute()
        yield client, StepLogReader(client, "late:steps")
        client.delete("late:steps")


def test_a_reader_that_comes_late_reads_all_at_once(redis_url: str) -> None:
    """It read 500 steps in 0.2 s, of which a quick worker took 700: what it had not read was lost with the server."""
    n_steps = 2 * AT_ONCE + 7
    with of_steps(redis_url, n_steps) as (_, reader):
        assert [entry.step for entry in reader.read(0.001)] == list(range(1, n_steps + 1))
        assert reader.read(0.001) == []


def test_what_was_read_before_the_server_failed_is_not_lost(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    n_steps = 2 * AT_ONCE + 7
    with of_steps(redis_url, n_steps) as (client, reader):
        reads, n_read = client.xread, 0

        def fails(*request: Any, **options: Any) -> Any:
            nonlocal n_read
            n_read += 1
            if n_read == 2:
                raise redis.ConnectionError("connection closed by server")
            return reads(*request, **options)

        monkeypatch.setattr(client, "xread", fails)
        with pytest.raises(redis.ConnectionError):
            reader.read(0.001)
        assert [entry.step for entry in reader.read(0.001)] == list(range(1, n_steps + 1))
