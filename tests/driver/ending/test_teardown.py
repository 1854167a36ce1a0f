"""The end of a run that the supervisor said nothing of: what it is billed, and that functions are waited for."""

from __future__ import annotations

import dataclasses
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mlless_nb.bus.messages import Ended
from mlless_nb.driver.backends.exits import Exits
from mlless_nb.driver.ending import last_functions, teardown
from mlless_nb.errors import ServiceError
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.meter import NUSD
from mlless_nb.storage.checkpoint import encode
from mlless_nb.telemetry.live import RunState

RATES = Rates(price_profile("aws-lambda-x86"), 1769)


def services(reserved_nusd: int | None, **log: Any) -> Any:
    """Services whose books hold ``reserved_nusd``; None: they do not answer."""

    def money() -> tuple[int | None, int]:
        if reserved_nusd is None:
            raise ServiceError("Redis is gone")
        return None, reserved_nusd

    objects = SimpleNamespace(gets=10, puts=2)
    launcher = SimpleNamespace(objects=objects, has_ended=lambda: False, is_local=False, exits=Exits(list))
    return SimpleNamespace(launcher=launcher, log=SimpleNamespace(money=money, **log))


def test_every_function_is_billed_to_now_with_the_requests_last_told_of() -> None:
    told = 5 * RATES.function_nusd(8.0) + RATES.servers_nusd(8.0) + 777_000
    state = RunState(time_s=8.0, spent_usd=told / NUSD)
    costs, _ = teardown.estimate_bill_nusd(services(10**12), RATES, 4, 100.0, 10.0, state)
    function, servers = RATES.function_nusd(10.0), RATES.servers_nusd(10.0)
    assert costs == {
        "workers": 4 * function,
        "supervisor": function,
        "redis": servers,
        "broker": 0,
        "storage": 777_000,
    }


def test_the_bill_is_never_above_what_is_reserved() -> None:
    whole, most = teardown.estimate_bill_nusd(services(None), RATES, 4, 100.0, 10.0, RunState())
    assert most is None
    assert whole["storage"] == RATES.requests_nusd(10, 2)
    total = sum(whole.values())
    for over in (1, whole["workers"], whole["workers"] + 5, total):
        costs, _ = teardown.estimate_bill_nusd(services(total - over), RATES, 4, 100.0, 10.0, RunState())
        assert sum(costs.values()) == total - over
        assert all(0 <= nusd <= whole[component] for component, nusd in costs.items())
        # The supervisor, who may have been lost before anybody missed it, is reduced first.
        assert costs["supervisor"] == max(whole["supervisor"] - over, 0)
        assert costs["workers"] == max(whole["workers"] - max(over - whole["supervisor"], 0), 0)


def test_the_cap_holds_where_the_books_are_gone() -> None:
    costs, most = teardown.estimate_bill_nusd(services(None), RATES, 4, 100.0, 10.0, RunState(budget_usd=1e-4))
    assert sum(costs.values()) == most == 100_000


def test_a_run_whose_functions_were_never_there_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine functions that have not come look like ones that have not ended."""
    here = services(0, abort=lambda *_: None)
    here.launcher.is_local, here.launcher.gone_at, here.redis_urls = True, None, ["redis://here"]
    said = Ended("failed", "the backend refused", 0, None, None, {}, 0.0)
    pauses: list[float] = []
    monkeypatch.setattr(last_functions, "time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic))
    ended = teardown.failure(here, RATES, 4, RunState(), said, 100.0, 0, is_launched=False)
    assert ended.costs_nusd == {"storage": RATES.requests_nusd(10, 2)}
    assert pauses == []


def test_who_had_which_slot_is_looked_up_before_the_bill() -> None:
    """Else all functions that nobody has seen in their slots are billed to the exit of the last one."""
    claims, exited_at = {-1: "7-a-0.0", 0: "8-b-0.0"}, {-1: 108.0, 0: 103.0}
    noted: dict[int, str] = {}
    here = services(10**12, abort=lambda *_: None, at_work=lambda slots: claims)
    here.launcher.exits = SimpleNamespace(
        began_at=100.0, note=noted.update, at=lambda slot: exited_at[slot] if slot in noted else max(exited_at.values())
    )
    here.launcher.is_local, here.launcher.gone_at, here.launcher.has_ended = True, 109.0, lambda: True
    here.redis_urls = []
    said = Ended("failed", "the backend refused", 0, None, None, {}, 0.0)
    ended = teardown.failure(here, RATES, 1, RunState(), said, 100.0, 0, is_launched=True)
    assert ended.time_s == 8.0
    assert ended.costs_nusd["workers"] == RATES.lost_nusd(3.0)
    assert ended.costs_nusd["supervisor"] == RATES.lost_nusd(8.0)


@pytest.mark.parametrize("n_failures", [0, 2, 3])
def test_a_model_is_asked_for_three_times(n_failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teardown, "FETCH_PAUSE_S", 0.0)
    tries: list[int] = []

    def fetch() -> Any:
        tries.append(1)
        if len(tries) <= n_failures:
            raise ServiceError("no answer")
        return "model", "; of step 3"

    found = teardown.fetch_with_retries(fetch, "the bucket")
    assert len(tries) == min(n_failures + 1, 3)
    if n_failures < 3:
        assert found == ("model", "; of step 3")
    else:
        assert found == (None, "; the model could not be read (ServiceError: no answer) and is left in the bucket")


def test_of_a_cap_it_is_told_what_was_left_and_why() -> None:
    costs = {"workers": 1_900_000, "redis": 90_000}
    said = teardown.unspent(0.002, sum(costs.values()), RATES)
    assert said.startswith("; $0.000010 of $0.002 is left, ")
    assert "less than a second of the servers ($0.000043)" in said
    assert "second" not in teardown.unspent(0.004, sum(costs.values()), RATES)


@pytest.mark.parametrize("n_failures", [0, 2, 3])
def test_a_last_model_is_asked_for_three_times_and_told_of(n_failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teardown, "FETCH_PAUSE_S", 0.0)
    failures, blob = iter(range(n_failures)), encode(np.ones((2, 3), np.float32), 7)

    def get(key: str) -> bytes:
        if next(failures, None) is not None:
            raise ServiceError(f"reading {key!r} failed")
        return blob

    ended = Ended("finished", "", 7, "model", None, {}, 1.0, "last")
    last, note = teardown.fetch_last(SimpleNamespace(get=get), ended)  # type: ignore[arg-type]
    if n_failures < 3:
        assert (last is not None and last.step, note) == (7, "")
    else:
        assert (last, note) == (None, "; the last model could not be read (ServiceError: reading 'last' failed)")
    assert teardown.fetch_last(SimpleNamespace(), dataclasses.replace(ended, last_key=None)) == (None, "")  # type: ignore[arg-type]
