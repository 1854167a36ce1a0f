"""A notebook that reaches Redis by another way than the functions do, e.g. through a tunnel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from engine.jobs import finish, job
from servers import Relay

from mlless_nb.errors import JobError


def test_each_side_has_its_own_url(redis_url: str, relay: Callable[[int], Relay]) -> None:
    ways = {name: relay(urlsplit(redis_url).port or 0) for name in ("notebook", "functions")}
    urls = {name: f"redis://127.0.0.1:{way.port}/0" for name, way in ways.items()}
    run = finish(job(workers=2, redis=urls["notebook"], redis_for_functions=urls["functions"]))
    assert run.telemetry.state.status == "finished", run.reason
    assert all(way._pairs for way in ways.values())
    assert len(ways["functions"]._pairs) >= 3  # a supervisor and two workers


@pytest.mark.parametrize("given", ["rediss://:p@h:1", ["rediss://:p@h:1"] * 3, 5, []])
def test_one_url_is_given_for_each_server(given: Any) -> None:
    with pytest.raises(JobError, match=r"^redis_for_functions="):
        job(redis=["redis://a:1", "redis://b:1"], redis_for_functions=given)
