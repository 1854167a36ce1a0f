"""Chaos in short: jobs under several faults each, in real processes. `make chaos` has all kinds of jobs and faults.

The seed is printed; ``MLLESS_CHAOS_SEED`` chooses another one.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from chaos.cases import ON_RABBITMQ, ON_REDIS, Case, draw
from chaos.faults import FAULTS
from chaos.runner import play
from chaos.scene import Servers

SEED = int(os.environ.get("MLLESS_CHAOS_SEED", "1"))
SEVERAL = ("worker killed", "Redis restarted from an older file", "checkpoint part with a flipped byte")
#: Where a fault is possible, if not on the private Redis.
PLACES = dict.fromkeys(ON_REDIS, "redis") | dict.fromkeys(ON_RABBITMQ, "redis+rabbitmq") | {"storage throttled": "s3"}
SHORT = (
    Case(0, f"{SEED}.a", "PMF", "default", "ISP", 3, "redis", "scatter-reduce", True, False, False, SEVERAL),
    Case(1, f"{SEED}.b", "SVM", "default", "BSP", 3, "embedded", "broadcast", False, False, False, ("all killed",)),
)


@pytest.mark.parametrize("case", SHORT, ids=str)
def test_a_job_under_faults(case: Case, servers: Callable[[str], Servers]) -> None:
    print(f"seed {case.seed}")
    outcome = play(case, servers(case.place))
    assert len(outcome.followed) == len(case.faults)
    assert not outcome.wrong, outcome


@pytest.mark.proof
@pytest.mark.parametrize("case", draw(SEED, 5, 5), ids=lambda case: str(case.number))
def test_a_drawn_job_under_faults(case: Case, servers: Callable[[str], Servers]) -> None:
    print(f"seed {case.seed}")
    outcome = play(case, servers(case.place))
    assert outcome.followed
    assert not outcome.wrong, outcome


@pytest.mark.proof
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_alone(kind: str, servers: Callable[[str], Servers]) -> None:
    place, evicts = PLACES.get(kind, "embedded"), "eviction" in kind
    case = Case(2, f"{SEED}.c", "PMF", "default", "ISP", 3, place, "broadcast", False, False, evicts, (kind,) * 2)
    outcome = play(case, servers(place))
    assert outcome.followed
    assert not outcome.wrong, outcome
