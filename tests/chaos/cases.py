"""The jobs of the chaos runs: drawn from a seed, such that every model, protocol, pattern and server is among them."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import Any

from engine.models import MODELS as BY_KIND
from servers import S3_BACKEND

from mlless_nb import (
    ADMM,
    BSP,
    DBW,
    ISP,
    SGD,
    SSP,
    BackupWorkers,
    JobError,
    ModelAveraging,
    ScaleIn,
    Stop,
    TrainingJob,
)

#: Models by the names that reports use.
MODELS: dict[str, tuple[Any, Any]] = {
    name: BY_KIND[kind]
    for name, kind in {
        "PMF": "pmf",
        "logistic regression": "logistic",
        "softmax": "softmax",
        "SVM": "svm",
        "linear regression": "linear regression",
        "k-means": "k-means",
        "NumpyModel": "numpy",
    }.items()
}
ALGORITHMS: dict[str, Any] = {"default": None, "model averaging": ModelAveraging(every=2), "ADMM": ADMM(scans=2)}
SYNCS: dict[str, Any] = {
    "BSP": BSP(),
    "ISP": ISP(0.7),
    "SSP": SSP(2),
    "BackupWorkers": BackupWorkers(2),
    "DBW": DBW(),
}
#: The protocols under which a disturbed run has the bits of an undisturbed one.
EXACT = ("BSP", "ISP")
#: What the updates and the messages go over: the private Redis, a given one, with RabbitMQ for messages, no server but
#: the object storage, on this machine or an emulator of S3.
PLACES = ("embedded", "redis", "redis+rabbitmq", "storage", "s3")
#: How they are dealt: a job on S3 takes three times as long.
DEALT = (*PLACES, *PLACES[:4], *PLACES[:4])
WORKERS = (4, 3, 8, 1)
#: How often users are sharded in jobs that can, and draws of the rest of a job until its protocol is drawn again.
SHARDED, TRIES = (True, True, True, True, False), 5
#: The campaign's seed, jobs, faults in each, and single kills.
DEFAULT = "2026:62:10:100"
#: Steps that a run takes at least, by its number of workers: long enough for its faults.
STEPS = {1: 3000, 3: 1200, 4: 1000, 8: 500}

ON_FUNCTIONS = (
    "worker killed",
    "supervisor killed",
    "several killed",
    "all killed",
    "worker frozen past its lease",
    "straggler",
    "runner killed",
    "invoked twice",
    "killed during a checkpoint",
    "killed during a hand-over",
    "checkpoint part deleted",
    "checkpoint part truncated",
    "checkpoint part with a flipped byte",
)
ON_REDIS = (
    "Redis stopped",
    "CLIENT PAUSE",
    "Redis emptied",
    "Redis restarted empty",
    "Redis restarted from an older file",
)
ON_RABBITMQ = ("RabbitMQ restarted", "RabbitMQ cut off")

#: So many faults, or fewer, are few for one run.
FEW = 3


@dataclass(frozen=True)
class Case:
    """One job and its faults.

    ``by_lease``: nobody sees processes die, as on a cloud; lost functions are found by their leases.
    """

    number: int
    seed: str
    model: str
    algorithm: str
    sync: str
    workers: int
    place: str
    pattern: str
    by_user: bool
    by_lease: bool
    evicts: bool
    faults: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Whether the model's bits are promised: when a worker leaves is decided by the clock."""
        return self.sync in EXACT and not self.evicts

    @property
    def steps(self) -> int:
        """Steps that the run takes: enough not to end before its faults on a quick machine, more for few faults."""
        scale = 3.0 if len(self.faults) > FEW else 4.5
        if self.place in ("storage", "s3"):
            scale *= 0.15 if self.place == "storage" else 0.03
        if self.model == "k-means" or self.algorithm == "ADMM":
            scale *= 0.5
        return max(int(STEPS[self.workers] * scale * (len(self.faults) + 2) / 10), 60)

    @property
    def checkpoint_every(self) -> int:
        """The most steps that a lost function may cost."""
        return max(self.steps // (75 if len(self.faults) > FEW else 25), 2)

    def __str__(self) -> str:
        parts = [self.model, *([self.algorithm] if self.algorithm != "default" else []), f"P={self.workers}", self.sync]
        parts += [self.place, *([self.pattern] if self.pattern != "broadcast" else [])]
        for is_so, text in (
            (self.by_user, "users sharded"),
            (self.by_lease, "found by leases"),
            (self.evicts, "a worker leaves"),
        ):
            parts += [text] * is_so
        return ", ".join(parts)

    def job(self, **servers: Any) -> TrainingJob:
        """The job; ``servers`` are ``redis`` and ``bus``. Raises `JobError` for combinations that make no sense."""
        model, data = MODELS[self.model]
        fields: dict[str, Any] = {
            "model": model,
            "data": data,
            "algorithm": ALGORITHMS[self.algorithm],
            "sync": SYNCS[self.sync],
            "workers": self.workers,
            "stop": Stop(steps=self.steps),
            "scale_in": ScaleIn.off(),  # a worker that leaves by the clock would make two runs differ
            "checkpoint_every": self.checkpoint_every,
            "eval_every": max(self.steps // 10, 1),
            "pattern": self.pattern,
            "seed": self.number,
        }
        if self.model == "k-means":
            fields["stop"] = Stop(steps=self.steps)
        else:
            fields |= {"minibatch": 100, "optimizer": SGD(1.0 if self.model == "PMF" else 0.05)}
        if self.model == "PMF":
            fields["partition"] = "user" if self.by_user else "rows"
        if self.place in ("storage", "s3"):
            fields["store"] = "storage"
        if self.place == "s3":
            fields["backend"] = S3_BACKEND
        return TrainingJob(**fields | servers)


def draw(seed: int, n_cases: int, n_faults: int) -> list[Case]:
    """``n_cases`` cases with ``n_faults`` faults each, the same for the same seed."""
    rng = random.Random(seed)
    cases: list[Case] = []
    values = {"model": [*MODELS], "place": DEALT, "P": WORKERS, "sync": [*SYNCS], "by_user": SHARDED}
    values |= {"algorithm": [*ALGORITHMS], "pattern": ("broadcast", "scatter-reduce")}
    decks = {name: _deck(rng, each) for name, each in values.items()}
    while len(cases) < n_cases:
        number = len(cases)
        place, model, workers = (next(decks[name]) for name in ("place", "model", "P"))
        n = n_faults
        if place == "s3":  # the emulator is slow
            workers, n = min(workers, 3), min(n_faults, 5)
        # All of it is dealt, and kept while the rest is drawn: if it makes no sense, the algorithm and the
        # pattern go first, then the protocol, never the partition.
        sync = "BSP" if workers == 1 or model == "k-means" else next(decks["sync"])
        by_user = model == "PMF" and workers > 1 and next(decks["by_user"])
        algorithm = "default" if model == "k-means" else next(decks["algorithm"])
        pattern = "broadcast" if workers == 1 else next(decks["pattern"])
        for n_tried in itertools.count(1):
            if n_tried % TRIES == 0:  # these do not go together
                algorithm = "default" if model == "k-means" else rng.choice([*ALGORITHMS])
                pattern = "broadcast"
            if n_tried % TRIES**2 == 0 and workers > 1 and model != "k-means":
                sync = rng.choice([*SYNCS])
            dealt = model, algorithm, sync, workers, place, pattern, by_user
            case = _case(rng, number, f"{seed}.{number}", *dealt, n)
            try:
                case.job()
            except JobError:
                continue  # a combination that makes no sense
            break
        cases.append(case)
    return cases


def _case(
    rng: random.Random,
    number: int,
    seed: str,
    model: str,
    algorithm: str,
    sync: str,
    workers: int,
    place: str,
    pattern: str,
    by_user: bool,
    n_faults: int,
) -> Case:
    evicts = workers > 1 and model != "k-means" and rng.random() < 0.15
    kinds = [*ON_FUNCTIONS]
    kinds += ON_REDIS if place in ("redis", "redis+rabbitmq") else ()
    kinds += ("Redis stopped", "CLIENT PAUSE", "private Redis killed", "watchdog killed") if place == "embedded" else ()
    kinds += ON_RABBITMQ if place == "redis+rabbitmq" else ()
    kinds += ("storage throttled",) * 3 if place == "s3" else ()
    faults = rng.sample(kinds, min(n_faults, len(kinds)))
    faults += rng.choices(kinds, k=n_faults - len(faults))
    if evicts:
        faults[rng.randrange(len(faults))] = "killed during an eviction"
    # It takes up to two heartbeats until a cut is noticed, and nobody sees the faults after it.
    faults.sort(key=lambda kind: kind == "RabbitMQ cut off")
    return Case(
        number,
        seed,
        model,
        algorithm,
        sync,
        workers,
        place,
        pattern,
        by_user,
        rng.random() < 0.15,
        evicts,
        tuple(faults),
    )


def _deck(rng: random.Random, values: Any) -> Any:
    """The values in random order, again and again: each turns up as often as the others."""
    while True:
        yield from rng.sample(values, len(values))
