"""The chaos campaign, `make chaos`: not among the tests, since it takes half an hour.

``MLLESS_CHAOS=seed:jobs:faults`` chooses another seed, fewer jobs, or other numbers of faults.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from chaos.cases import Case, draw
from chaos.runner import Outcome, play
from chaos.scene import Servers

SEED, N_JOBS, N_FAULTS = map(int, os.environ.get("MLLESS_CHAOS", "2026:66:8").split(":"))
ONLY = os.environ.get("MLLESS_CHAOS_CASE")


def cases() -> list[Case]:
    """Those of the campaign."""
    drawn = draw(SEED, N_JOBS, N_FAULTS)
    return [drawn[int(number)] for number in ONLY.split(",")] if ONLY else drawn


@pytest.mark.parametrize("case", cases(), ids=lambda case: str(case.number))
def test_case(case: Case, servers: Callable[[str], Servers], outcomes: list[Outcome]) -> None:
    outcome = play(case, servers(case.place))
    outcomes.append(outcome)
    assert not outcome.wrong, outcome.wrong


@pytest.fixture(scope="session")
def outcomes() -> list[Outcome]:
    """Those of all jobs."""
    return []
