"""The proof that no run spends more than its cap: trials with random caps and faults, drawn from a seed.

``python tests/budget/proof.py [--trials 200] [--seed N] [--only TRIAL]``, or ``make budget-proof``.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from budget.trial import Trial
from engine.jobs import finish, job
from servers import RedisProcess

import mlless_nb
from mlless_nb import BudgetError, Stop
from mlless_nb.money.budget import SLICE_S

#: Seconds within which faults come, from the start of the functions: a run on the least budget takes two to three.
FAULTS_WITHIN_S = 5.0
#: How long a paused Redis is silent, seconds.
PAUSED_S = 1.5
#: How far clocks are off, seconds.
SKEW_S = 3600.0
#: What is killed; a number is a worker.
SUPERVISOR, EVERYBODY, DRIVER, RESTART, PAUSE = "supervisor", "everybody", "driver", "redis restart", "redis pause"


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
        Seconds after the functions have started, and what is killed.
    """

    number: int
    workers: int
    sync: str
    times_least: float
    raised: tuple[int, float] | None
    skew_s: float
    faults: tuple[tuple[float, str], ...]

    def __str__(self) -> str:
        faults = ", ".join(f"{what} at {at_s:.1f} s" for at_s, what in self.faults) or "no fault"
        raised = f", raised {self.raised[1]:.1f}x after step {self.raised[0]}" if self.raised else ""
        skewed = ", clocks an hour off" if self.skew_s else ""
        return f"P={self.workers} {self.sync}, {self.times_least:.2f} x the least cap{raised}{skewed}; {faults}"


@dataclass(frozen=True)
class Outcome:
    """How a trial went, US dollars: what it has spent by its processes' lives, its cap, and the meter's word.

    ``metered`` is None if the driver was killed or refused the run. ``reserved`` is what was reserved of the budget at
    the end and not spent by the meter.
    """

    plan: Plan
    cap: float
    spent: float
    metered: float | None
    reserved: float
    status: str
    reason: str
    steps: int

    @property
    def is_kept(self) -> bool:
        """Whether the cap was."""
        return self.spent <= self.cap + 1e-12 and (self.metered is None or self.metered <= self.cap + 1e-12)

    @property
    def off(self) -> float | None:
        """How much the meter is off, a share of the true bill."""
        return None if not self.metered or not self.spent else self.metered / self.spent - 1

    def __str__(self) -> str:
        kept = "kept" if self.is_kept else "PASSED"
        off = "" if self.off is None else f", meter {100 * self.off:+.2f} %"
        share = f"({100 * self.spent / self.cap:.1f} %{off})"
        went = f"{self.steps} steps, {self.status}"
        return f"{self.plan.number:4d} {kept}: ${self.spent:.6f} of ${self.cap:.6f} {share}, {went}; {self.plan}"


def drawn(seed: int, number: int) -> Plan:
    """The plan of trial ``number`` of a proof."""
    random_ = random.Random(f"{seed}:{number}")
    workers = random_.choice((1, 2, 3, 4))
    times_least = random_.choice((1.0, *(10 ** random_.uniform(*of) for of in ((0.0, 0.5), (0.3, 1.0), (0.5, 1.2)))))
    raised = (random_.randint(1, 300), random_.uniform(1.1, 3.0)) if random_.random() < 0.3 else None
    kinds = [
        *map(str, range(workers)),
        *map(str, range(workers)),
        SUPERVISOR,
        SUPERVISOR,
        EVERYBODY,
        DRIVER,
        RESTART,
        PAUSE,
    ]
    faults = sorted(
        (random_.uniform(0.0, FAULTS_WITHIN_S), random_.choice(kinds)) for _ in range(random_.choice((0, 1, 1, 2, 3)))
    )
    skew_s = random_.choice((0.0, SKEW_S))
    return Plan(number, workers, random_.choice(("BSP", "ISP")), times_least, raised, skew_s, tuple(faults))


@functools.cache
def least_usd(workers: int) -> float:
    """The least budget of a run, whose data is packed before."""
    finish(job(workers=workers, stop=Stop(steps=1)))
    try:
        mlless_nb.train(job(workers=workers, budget=1e-9, stop=Stop()))
    except BudgetError as error:
        return float(str(error.valid).split()[2])
    raise AssertionError("a budget of nothing was not refused")


def tried(plan: Plan, server: RedisProcess) -> Outcome:
    """Carry ``plan`` out."""
    cap = least_usd(plan.workers) * plan.times_least
    told: dict[str, Any] = {"workers": plan.workers, "sync": plan.sync, "cap": cap, "redis": server.url}
    if plan.raised is not None:
        told["raise_at"] = (plan.raised[0], round(cap * plan.raised[1], 9))
    with Trial(skew_s=plan.skew_s, **told) as trial:
        observer = trial.observer
        observer.wait(lambda: observer.functions() or trial.driver.poll() is not None)
        began = time.monotonic()
        for at_s, what in plan.faults:
            observer.wait(lambda: trial.driver.poll() is not None, max(began + at_s - time.monotonic(), 0.0))
            strike(what, trial, server)
        said = trial.finish()
        if server.process is None:
            server.start()
        spent, metered = trial.bill.total, said.get("cost")
        reserved = max(said["committed"] - said["cost"], 0.0) if "committed" in said else 0.0
        status = str(said.get("status", "killed"))
        outcome = Outcome(
            plan, trial.cap, spent, metered, reserved, status, str(said.get("reason", "")), int(said.get("step", 0))
        )
    server.said(b"FLUSHALL\r\n")
    return outcome


def strike(what: str, trial: Trial, server: RedisProcess) -> None:
    """Let one fault happen."""
    if what == DRIVER:
        trial.driver.kill()
    elif what == RESTART:
        server.kill()
        server.start()
    elif what == PAUSE and server.process is not None:
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            trial.observer.wait(lambda: False, PAUSED_S)
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
    elif what == EVERYBODY:
        for slot in (-1, 0, 1, 2, 3):
            trial.kill(slot)
    else:
        trial.kill(-1 if what == SUPERVISOR else int(what))


def summary(seed: int, outcomes: list[Outcome]) -> str:
    """One line on a whole proof."""
    kept, off = sum(one.is_kept for one in outcomes), sorted(abs(one.off) for one in outcomes if one.off is not None)
    most = max((one.spent / one.cap for one in outcomes), default=0.0)
    faults = sum(len(one.plan.faults) for one in outcomes)
    slice_usd = SLICE_S * 16.6667e-6 * job().memory_mb / 1024
    left = max((one.reserved / slice_usd / one.plan.workers for one in outcomes if one.steps), default=0.0)
    middle = f"{100 * off[len(off) // 2]:.2f} % in the median, {100 * off[-1]:.2f} % at most" if off else "-"
    return (
        f"seed {seed}: {kept} of {len(outcomes)} caps kept under {faults} faults; the most that was spent is "
        f"{100 * most:.1f} % of a cap; the meter is off by {middle}; at most {left:.2f} slices a worker "
        "were reserved at the end of a run and not spent"
    )


def prove(seed: int, numbers: range | list[int], server: RedisProcess) -> list[Outcome]:
    """Carry out these trials; prints a line for each."""
    outcomes = []
    for number in numbers:
        outcomes.append(tried(drawn(seed, number), server))
        print(outcomes[-1], flush=True)
        if not outcomes[-1].is_kept or outcomes[-1].status == "failed":
            print("     ", outcomes[-1].reason, flush=True)
    print(summary(seed, outcomes), flush=True)
    return outcomes


def main() -> None:
    """Parse the command line and prove; exits with 1 if a cap was passed."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--trials", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=random.randrange(10**6))
    arguments.add_argument("--only", type=int, nargs="*", help="the numbers of trials to be repeated")
    options = arguments.parse_args()
    print(f"seed {options.seed}", flush=True)
    folder = tempfile.mkdtemp(prefix="mlless-proof-")
    os.environ |= {"TMPDIR": folder, "XDG_DATA_HOME": f"{folder}/data"}
    tempfile.tempdir = folder
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise SystemExit("redis-server is missing: apt-get install redis-server")
    os.makedirs(f"{folder}/redis")
    server = RedisProcess(program, Path(folder) / "redis")
    server.start()
    try:
        outcomes = prove(options.seed, options.only or range(options.trials), server)
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(not all(one.is_kept for one in outcomes))


if __name__ == "__main__":
    main()
