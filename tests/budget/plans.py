"""The plans of the proof's trials, each drawn from the seed and its number alone."""

from __future__ import annotations

import random
from dataclasses import dataclass

#: Where a run's messages and updates go: Redis for both, RabbitMQ and Redis, or the object storage for both.
PLACES = REDIS, RABBITMQ, STORAGE = "Redis", "RabbitMQ", "storage"
#: Seconds within which faults come, from the start of the functions: a run on the least budget takes two to three.
FAULTS_WITHIN_S = 5.0
#: How far clocks are off, seconds.
SKEW_S = 3600.0
#: The lifetimes of functions that hand over, seconds, and the caps of their runs and of those with a straggler, in
#: least budgets, each of which pays for some two seconds: a slot has two to four functions.
LIFETIMES_S, LONG_CAPS = (10.0, 14.0), (6.0, 10.0)
#: How many times as much it takes where requests to the storage are the most of the bill.
STORAGE_TIMES = 3.0
#: Least caps from which on functions are invoked twice.
TWICE_FROM = 1.6
#: What is struck, and how; a number is a worker, which is killed.
SUPERVISOR, EVERYBODY, DRIVER, RESTART, PAUSE = "supervisor", "everybody", "driver", "redis restart", "redis pause"
#: Begins the name of the fault that slows a worker down.
SLOW = "slow "


@dataclass(frozen=True)
class Plan:
    """What happens in one trial.

    Parameters
    ----------
    number, workers : int
    sync : str
    times_least : float
        The cap, in least budgets of such a run.
    raised : (int, float) or None
        The step after which the cap is raised, and the factor.
    skew_s : float
        How far the processes' clocks are off.
    faults : tuple of (float, str)
        Seconds after the functions have started, and what is struck.
    place : str
    lifetime_s : float or None
        Of the functions: they hand over before. None: longer than the run.
    resumes : bool
        Whether it goes on from a run that has ended at its cap.
    twice : (float, int) or None
        Seconds after the first functions were invoked, and the slot of one of them that is invoked again.
    """

    number: int
    workers: int
    sync: str
    times_least: float
    raised: tuple[int, float] | None = None
    skew_s: float = 0.0
    faults: tuple[tuple[float, str], ...] = ()
    place: str = REDIS
    lifetime_s: float | None = None
    resumes: bool = False
    twice: tuple[float, int] | None = None

    @property
    def slows(self) -> bool:
        """Whether a worker is slowed down."""
        return any(what.startswith(SLOW) for _, what in self.faults)

    def __str__(self) -> str:
        faults = ", ".join(f"{what} at {at_s:.1f} s" for at_s, what in self.faults) or "no fault"
        parts = [
            f"P={self.workers} {self.sync} {self.place}",
            f"{self.times_least:.2f} x the least cap",
            f"raised {self.raised[1]:.1f}x after step {self.raised[0]}" if self.raised else "",
            "clocks an hour off" if self.skew_s else "",
            f"lives of {self.lifetime_s:.1f} s" if self.lifetime_s else "",
            "resumed" if self.resumes else "",
            f"{self.twice[1]} invoked twice" if self.twice else "",
        ]
        return f"{', '.join(filter(None, parts))}; {faults}"


def drawn(seed: int, number: int) -> Plan:
    """The plan of trial ``number`` of a proof."""
    random_ = random.Random(f"{seed}:{number}")
    kind = random_.choices(("plain", "resumed", "hands over", "straggler"), (12, 3, 4, 1))[0]
    workers = random_.choice((2, 3, 4) if kind == "straggler" else (1, 2, 3, 4))
    place = random_.choices(PLACES, (6, 2, 2))[0]
    sync, skew_s = random_.choice(("BSP", "ISP")), random_.choice((0.0, SKEW_S))
    known = {"place": place, "skew_s": skew_s, "resumes": kind == "resumed"}
    if kind in ("plain", "resumed"):
        spans = (0.0, 0.0), (0.0, 0.4), (0.2, 0.7), (0.3, 0.8)
        times_least = 10 ** random_.uniform(*random_.choice(spans))
        raised = (random_.randint(1, 300), random_.uniform(1.1, 2.0)) if random_.random() < 0.3 else None
        faults = _faults(random_, workers, place, FAULTS_WITHIN_S, random_.choice((0, 1, 1, 2, 3)))
        # What that one spends is reserved, also if there is nothing left of the cap: so not in the shortest runs.
        is_twice = random_.random() < 0.25 and times_least > TWICE_FROM
        twice = (random_.uniform(0.5, 2.0), random_.randrange(-1, workers)) if is_twice else None
        return Plan(number, workers, sync, times_least, raised, faults=faults, twice=twice, **known)
    times_least = random_.uniform(*LONG_CAPS) * (STORAGE_TIMES if place == STORAGE else 1.0)
    if kind == "straggler":
        slowed = (random_.uniform(0.5, 2.0), f"{SLOW}{random_.randrange(workers)}")
        return Plan(number, workers, sync, times_least, faults=(slowed,), **known)
    lifetime_s = random_.uniform(*LIFETIMES_S)
    faults = _faults(random_, workers, place, lifetime_s, random_.choice((0, 0, 1, 2)))
    return Plan(number, workers, sync, times_least, faults=faults, lifetime_s=lifetime_s, **known)


def _faults(
    random_: random.Random, workers: int, place: str, within_s: float, n_faults: int
) -> tuple[tuple[float, str], ...]:
    """So many faults of a run, in order."""
    kinds = [*map(str, range(workers)), *map(str, range(workers)), SUPERVISOR, SUPERVISOR, EVERYBODY, DRIVER]
    kinds += [] if place == STORAGE else [RESTART, PAUSE]
    return tuple(sorted((random_.uniform(0.0, within_s), random_.choice(kinds)) for _ in range(n_faults)))
