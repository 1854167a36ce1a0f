"""Chaos in short: jobs under several faults each, in real processes. `make chaos` has all kinds of jobs and faults.

The seed is printed; ``MLLESS_CHAOS_SEED`` chooses another one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest
from chaos.cases import DEFAULT, MODELS, ON_RABBITMQ, ON_REDIS, SYNCS, WORKERS, Case, draw
from chaos.cases import PLACES as SERVERS
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


def test_the_campaign_covers_everything_several_times() -> None:
    """More than 500 faults, over at least 60 jobs, of each model, number of workers, protocol, pattern and server."""
    seed, n_cases, n_faults, _ = map(int, DEFAULT.split(":"))
    cases = draw(seed, n_cases, n_faults)
    assert len(cases) >= 60
    assert sum(len(case.faults) for case in cases) >= 550  # some never come about
    wanted = {"model": MODELS, "workers": WORKERS, "sync": SYNCS, "place": SERVERS, "pattern": ("scatter-reduce",)}
    for what, values in (wanted | {"by_user": (True,), "by_lease": (True,), "evicts": (True,)}).items():
        counts = Counter(getattr(case, what) for case in cases)
        assert min(counts[value] for value in values) >= 4, (what, counts)


@pytest.mark.parametrize("case", [pytest.param(SHORT[0], marks=pytest.mark.long), SHORT[1]], ids=str)
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
