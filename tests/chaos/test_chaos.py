"""Chaos in short: jobs under several faults each, in real processes. `make chaos` has all kinds of jobs and faults.

The seed is printed; ``MLLESS_CHAOS_SEED`` chooses another one.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable

import pytest
from chaos.cases import DEFAULT, MODELS, ON_RABBITMQ, ON_REDIS, SYNCS, WORKERS, Case, draw
from chaos.cases import PLACES as SERVERS
from chaos.faults import FAULTS
from chaos.gates import Gate, gates
from chaos.report import report
from chaos.runner import LEASE_S, Outcome, play
from chaos.scene import Followed, Servers

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


def missed(outcomes: list[Outcome], n_wrong: int = 0) -> list[str]:
    """The gates that outcomes miss."""
    return [gate.what for gate in gates(outcomes, 1, n_wrong, is_whole=False) if not gate.is_kept]


def after(*followed: Followed, sync: str = "BSP", by_lease: bool = False) -> Outcome:
    """A case with a checkpoint every 144 steps."""
    case = dataclasses.replace(SHORT[1], workers=1, sync=sync, by_lease=by_lease, faults=("worker killed",) * 10)
    assert case.checkpoint_every == 144
    return Outcome(case, [*followed], 1.0, [])


def killed(again: int = 0, leases: float = 0.5, what: str = "worker 0 killed") -> Followed:
    """A worker was killed."""
    return Followed("worker killed", what, 1000, 1.0, {0: leases * LEASE_S}, again)


def test_a_campaign_misses_a_gate_that_is_not_kept() -> None:
    """One interval, two leases in half of all cases and four in any; nothing is wrong."""
    assert not missed([after(killed(100), killed(144), killed(10, leases=3.9)), after(killed(), by_lease=True)])
    assert missed([after(killed())], 1) == ["runs that were lost, hung or wrong"]
    (late,) = missed([after(killed(), killed(), killed(leases=4.1))])
    assert late.endswith("the driver sees die are replaced, max")
    (usual,) = missed([after(killed(leases=2.1), by_lease=True)])
    assert usual.endswith("as on a cloud are replaced, p50")
    (again,) = missed([after(killed(10), killed(10), killed(145))])
    assert again.endswith("again after a restart, max")


def test_steps_again_are_bounded_whatever_the_fault_and_the_protocol() -> None:
    """A damaged checkpoint costs an interval; nothing else does."""
    damaged = "checkpoint-000000576-0/0 damaged, worker 0 killed: a byte flipped"
    emptied = [Followed("Redis emptied", "Redis emptied", 900, 1.0, recomputed=again) for again in (144, 145)]
    late = [after(killed(again), sync="DBW") for again in (144, 145)]
    assert not missed([after(killed(288, what=damaged)), after(emptied[0], killed(144)), late[0]])
    for one in (after(killed(289, what=damaged)), after(emptied[1]), after(emptied[0], killed(145)), late[1]):
        assert len(missed([one])) == 1


def test_the_report_says_which_gates_are_missed() -> None:
    text = report(
        1, [after(killed(900))], [], [Gate("faults", 3, 500, is_least=True), Gate("jobs", 61, 60, is_least=True)]
    )
    assert "- gate: faults: 3, at least 500: MISSED" in text
    assert "- gate: jobs: 61, at least 60: kept" in text
    assert "max 6.25 checkpoint intervals (1 restart, bounded by 1)" in text


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
