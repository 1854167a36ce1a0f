"""What a seed stands for: a small job, the platform that it runs on, and what goes wrong."""

from __future__ import annotations

import dataclasses
import functools
import random
from typing import Any

import numpy as np

from mlless_nb import BSP, ISP, PMF, SGD, SSP, Adam, LogisticRegression, ScaleIn, Stop, TrainingJob, datasets
from mlless_nb.data.dataset import Dataset

#: The faults, each with how often it is drawn.
FAULTS = {
    "kill": 6,
    "kill at": 6,
    "pause": 4,
    "duplicate": 2,
    "slow start": 2,
    "never starts": 1,
    "emptied": 2,
    "restarted": 1,
    "away": 2,
    "part lost": 2,
    "part damaged": 2,
    "storage fails": 2,
    "kill all": 1,
}
#: Seeds from here on are of functions that live for a few steps only.
HURRIED = 1_000_000
#: The users' commands.
COMMANDS = ("stop", "remove", "budget")
#: Requests at which functions are killed, before they are sent or after they were carried out.
KILLED_AT = ("publish", "frames", "put", "get", "claim", "release", "refund", "reserve", "send", "remove", "restart")


@dataclasses.dataclass(frozen=True)
class Problem:
    """A job, but for its data and budget.

    Attributes
    ----------
    kind : str
        "pmf" or "logistic".
    sync : str
        "BSP", "ISP" or "SSP".
    """

    kind: str
    sync: str
    workers: int
    steps: int
    pattern: str = "broadcast"
    checkpoint_every: int = 0
    has_held_out: bool = False

    @property
    def promises_bits(self) -> bool:
        """Whether faults do not change a bit of the model."""
        return self.sync != "SSP"

    def job(self, budget: float | None = None) -> TrainingJob:
        """The job."""
        sync = {"BSP": BSP(), "ISP": ISP(0.7), "SSP": SSP(2)}[self.sync]
        fields: dict[str, Any] = {
            "sync": sync,
            "workers": self.workers,
            "stop": Stop(steps=self.steps),
            "pattern": self.pattern if self.sync != "SSP" else "auto",
            "checkpoint_every": self.checkpoint_every or None,
            "scale_in": ScaleIn.off(),
            "minibatch": 8,
            "budget": budget,
        }
        if not self.has_held_out:
            fields["validation"] = None
        if self.kind == "pmf":
            optimizer: Any = SGD(learning_rate=0.1, momentum=0.9, nesterov=True)
            model: Any = PMF(rank=2, l2=0.02, init_scale=0.1)
        else:
            optimizer, model = Adam(learning_rate=0.05), LogisticRegression()
        return TrainingJob(model=model, optimizer=optimizer, data=data_of(self.kind), **fields)


@functools.cache
def data_of(kind: str) -> Dataset:
    """A table of a few rows."""
    if kind == "pmf":
        return datasets.synthetic_ratings(12, 9, 60, rank=2, seed=1)
    draws = np.random.default_rng(2)
    rows = draws.normal(size=(64, 5)).astype(np.float32)
    return datasets.csr(rows, (rows @ draws.normal(size=5) > 0).astype(np.float32))


@dataclasses.dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    Attributes
    ----------
    at_s : float
        When, seconds after the launch.
    slot : int
        Whom it hits, if it hits a function: -1 is the supervisor.
    span_s : float
        For how long.
    request, nth, after
        "kill at": the request of which the function dies, and whether the server has carried it out by then.
    """

    kind: str
    at_s: float
    slot: int = 0
    span_s: float = 0.0
    request: str = ""
    nth: int = 0
    after: bool = False


#: One step in many takes so many times as long as others.
SLOW = 8
#: Requests to the storage, one after the other, of a hand-over: the part of the checkpoint is written once the one
#: before is, then the successor reads the parts of up to four workers, what it trains on, and lists.
HAND_OVER_REQUESTS = 10


@dataclasses.dataclass(frozen=True)
class Scenario:
    """All that a seed decides but for the latencies.

    Attributes
    ----------
    seed : int
        Of the latencies.
    is_local, lifetime_s
        Whether functions are processes that the driver sees, or out of its sight; and how long one may live.
    keeps_messages : bool
        As of `servers.Topics`.
    latency_s, repeats
        As of `servers.Network`.
    step_s, start_s : float
        Means of a step's computation and of a function's start, seconds.
    lease_s : float
        Leases of functions, seconds.
    storage_s : float
        Most seconds of a request to the object storage, beside the network's.
    kept_steps : int
        As of `MemoryHub`.
    room_s : float or None
        Seconds of the run that the budget pays for beside the start; None: there is no budget.
    commands : tuple of (float, str, float)
        Seconds after the launch, one of `COMMANDS`, and a number from 0 to 1 that says which worker or how much.
    """

    seed: int
    problem: Problem
    faults: tuple[Fault, ...] = ()
    commands: tuple[tuple[float, str, float], ...] = ()
    is_local: bool = True
    keeps_messages: bool = True
    lifetime_s: float = 7 * 86_400.0
    latency_s: float = 1e-3
    step_s: float = 0.05
    start_s: float = 0.5
    lease_s: float = 15.0
    repeats: float = 0.0
    room_s: float | None = None
    storage_s: float = 0.0
    kept_steps: int = 10_000

    @property
    def handing_over_s(self) -> float:
        """About the longest that a hand-over takes: a start, a slow step, and the requests to the storage."""
        return self.start_s + SLOW * self.step_s + HAND_OVER_REQUESTS * self.storage_s


def scenario_of(seed: int) -> Scenario:
    """The scenario of ``seed``."""
    draws = random.Random(f"scenario {seed}")
    workers = draws.choice((1, 2, 2, 3, 3, 4))
    problem = Problem(
        draws.choice(("pmf", "logistic")),
        draws.choice(("BSP", "BSP", "ISP", "ISP", "SSP")),
        workers,
        draws.randint(10, 40),
        draws.choice(("broadcast", "broadcast", "scatter-reduce")),
        draws.choice((0, 0, 3, 5, 10)),
        draws.random() < 0.6,
    )
    step_s = 10 ** draws.uniform(-2.0, -0.5)
    start_s = 10 ** draws.uniform(-0.7, 0.7)
    lifetime_s = 7 * 86_400.0 if draws.random() < 0.6 else draws.uniform(5.0, 20.0) + 3 * start_s
    length_s = start_s + problem.steps * step_s
    is_local = draws.random() < 0.5
    faults = tuple(_fault(draws, problem, length_s) for _ in range(draws.choice((0, 1, 1, 1, 2, 2, 3, 4))))
    commands = tuple(
        (draws.uniform(0.0, 1.2 * length_s), draws.choice(COMMANDS), draws.random())
        for _ in range(draws.choice((0, 0, 0, 1, 1, 2)))
    )
    scenario = Scenario(
        seed,
        problem,
        faults,
        commands,
        is_local,
        keeps_messages=draws.random() < 0.7,
        lifetime_s=lifetime_s,
        latency_s=10 ** draws.uniform(-4.0, -2.0),
        step_s=step_s,
        start_s=start_s,
        # Ten leases in a lifetime; on clouds there are forty.
        lease_s=min(draws.choice((5.0, 15.0)), lifetime_s / 10),
        repeats=draws.choice((0.0, 0.0, 0.01, 0.05)),
        room_s=None if draws.random() < 0.6 else draws.uniform(0.2, 3.0) * length_s,
    )
    return scenario if seed < HURRIED else _hurried(scenario)


def _hurried(drawn: Scenario) -> Scenario:
    """``drawn`` with functions that live for a few steps, so that a slot is handed over again and again.

    Writes of checkpoints take as long as steps, few steps are kept in the step log, and there are at most two faults.
    """
    draws = random.Random(f"hurried {drawn.seed}")
    problem = dataclasses.replace(
        drawn.problem,
        workers=draws.choice((2, 3, 3, 4, 4)),
        steps=draws.randint(30, 80),
        has_held_out=draws.random() < 0.8,
    )
    start_s = draws.uniform(0.2, 1.0)
    lifetime_s = draws.uniform(5.0, 8.0) + 4 * start_s
    faults = drawn.faults[: draws.choice((0, 0, 0, 1, 2))]
    return dataclasses.replace(
        drawn,
        problem=problem,
        # Neither slots that are not there, nor spans that are longer than a life.
        faults=tuple(
            dataclasses.replace(fault, slot=min(fault.slot, problem.workers - 1), span_s=min(fault.span_s, 2.0))
            for fault in faults
        ),
        commands=drawn.commands if draws.random() < 0.2 else (),
        lifetime_s=lifetime_s,
        lease_s=lifetime_s / 10,
        step_s=lifetime_s * draws.choice((0.003, 0.01, 0.03)),
        start_s=start_s,
        storage_s=draws.choice((0.0, 0.02, 0.1, 0.3)),
        kept_steps=draws.choice((10_000, 12, 6)),
        room_s=None,
    )


def _fault(draws: random.Random, problem: Problem, length_s: float) -> Fault:
    kind = draws.choices([*FAULTS], [*FAULTS.values()])[0]
    fault = Fault(kind, draws.uniform(0.0, 1.2 * length_s), draws.randint(-1, problem.workers - 1))
    if kind == "kill at":
        request = draws.choice(KILLED_AT)
        nth = draws.randint(1, 2 * problem.steps if request in ("publish", "frames") else 4)
        return dataclasses.replace(fault, request=request, nth=nth, after=draws.random() < 0.5)
    if kind in ("pause", "away", "storage fails", "slow start"):
        return dataclasses.replace(fault, span_s=draws.choice((0.3, 2.0, 10.0, 25.0, 50.0)))
    return fault
