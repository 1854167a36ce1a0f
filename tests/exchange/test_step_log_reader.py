"""The step log on Redis is read on by who comes late."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from mlless_nb.exchange import LostData
from mlless_nb.exchange.redis import step_log
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


def add(client: redis.Redis, *steps: int) -> None:
    """Add ``steps`` to the log, in another millisecond than those before: a server takes longer to restart."""
    time.sleep(0.002)
    for step in steps:
        client.xadd("late:steps", {"at": "1.0", "step": step, "0": Report(1.0, 1.0).encode()})


def steps_of(reader: StepLogReader) -> list[int]:
    return [entry.step for entry in reader.read(0.001)]


def test_steps_that_a_restarted_server_has_lost_are_taken_again_and_read_then(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were missing in the history: workers went on until they heard of the restart, and what they did was read."""
    with of_steps(redis_url, 3) as (client, reader):
        older = client.dump("late:steps")
        add(client, 4, 5)
        assert steps_of(reader) == [1, 2, 3, 4, 5]
        client.delete("late:steps")
        client.restore("late:steps", 0, older)  # it came back with the data of step 3; nobody had read 6 to 8
        add(client, 9, 10)
        for _ in range(2):
            with pytest.raises(LostData):
                reader.read(0.001)
        client.delete("late:steps")  # the driver restores the run from step 4
        assert steps_of(reader) == []
        add(client, 5, 6, 7)
        assert steps_of(reader) == [5, 6, 7]
        add(client, 8, 9, 10)
        assert steps_of(reader) == [8, 9, 10]
        client.delete("late:steps")
        client.restore("late:steps", 0, older)
        add(client, 13)
        monkeypatch.setattr(step_log, "RESTORED_S", 0.0)  # nobody restores it
        assert steps_of(reader) == [13]


def test_steps_that_the_log_has_dropped_are_not_waited_for(redis_url: str) -> None:
    with of_steps(redis_url, 3) as (client, reader):
        assert steps_of(reader) == [1, 2, 3]
        add(client, *range(4, 10))
        client.xtrim("late:steps", maxlen=2, approximate=False)
        assert steps_of(reader) == [8, 9]
