"""The step log on Redis is read on by who comes late."""

from __future__ import annotations

import contextlib

import redis

from mlless_nb.exchange.redis.step_log import AT_ONCE, StepLogReader
from mlless_nb.exchange.step_report import Report


def test_a_reader_that_comes_late_reads_all_at_once(redis_url: str) -> None:
    """It read 500 steps in 0.2 s, of which a quick worker took 700: what it had not read was lost with the server."""
    report, n_steps = Report(1.0, 1.0).encode(), 2 * AT_ONCE + 7
    with contextlib.closing(redis.Redis.from_url(redis_url)) as client:
        adding = client.pipeline()
        for step in range(1, n_steps + 1):
            adding.xadd("late:steps", {"at": "1.0", "step": step, "0": report})
        adding.execute()
        reader = StepLogReader(client, "late:steps")
        assert [entry.step for entry in reader.read(0.001)] == list(range(1, n_steps + 1))
        assert reader.read(0.001) == []
        client.delete("late:steps")
