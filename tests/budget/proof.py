"""The proof that no run spends more than its cap: trials with random caps and faults, drawn from a seed.

``python tests/budget/proof.py [--trials 200] [--seed N] [--only 3 10-19] [--shards 2]``, or ``make budget-proof``.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from budget.observer import servers_usd_s
from budget.outcomes import LAST_S, Outcome, lacking, summary
from budget.plans import DRIVER, EVERYBODY, PAUSE, RABBITMQ, RESTART, SLOW, STORAGE, SUPERVISOR, Plan, drawn
from budget.trial import Trial
from servers import RABBITMQ_PROGRAMS, RabbitProcess, RedisProcess

from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import SLICE_S

#: The price profile of the jobs.
PRICES = "aws-lambda-x86"
#: How long a paused Redis is silent, seconds.
PAUSED_S = 1.5
#: How long a worker is slow at most, and for how long it runs and stands in turns meanwhile, seconds.
SLOW_S, RUNS_S, STANDS_S = 8.0, 0.015, 0.285


class Site:
    """Where trials are carried out, one after the other.

    Parameters
    ----------
    folder : Path
        For all that is temporary.
    redis_program : str
    rabbitmq_program : str or None
        None: runs that are to use RabbitMQ do without.
    """

    def __init__(self, folder: Path, redis_program: str, rabbitmq_program: str | None = None) -> None:
        self.folder, self._rabbitmq_program = folder / "runs", rabbitmq_program
        for name in ("runs", "redis", "rabbitmq"):
            (folder / name).mkdir(parents=True)
        self.redis = RedisProcess(redis_program, folder / "redis")
        self.redis.start()
        self._least: dict[tuple[int, str, bool], float] = {}

    @functools.cached_property
    def _rabbitmq(self) -> RabbitProcess | None:
        if self._rabbitmq_program is None:
            return None
        server = RabbitProcess(self._rabbitmq_program, self.folder.parent / "rabbitmq")
        server.start()
        return server

    @functools.cached_property
    def _capped(self) -> str:
        """The id of a run that has ended at its cap."""
        plan = Plan(0, 2, "ISP", 1.5)
        with self.trial(plan, self.least_usd(plan) * plan.times_least) as trial:
            said = trial.finish()
            assert said["status"] == "capped", said
            return next(str(line["run"]) for line in trial.lines if "run" in line)

    def trial(self, plan: Plan, cap: float, **told: Any) -> Trial:
        """The trial of ``plan`` with this cap, US dollars."""
        if plan.place == STORAGE:
            told["store"] = "storage"
        else:
            told["redis"] = self.redis.url
        if plan.place == RABBITMQ and self._rabbitmq is not None:
            told["bus"] = self._rabbitmq.url
        if plan.resumes:
            told["resume"] = self._capped
        if plan.slows:
            told["speculation"] = 2.0
        told |= {"workers": plan.workers, "sync": plan.sync, "lifetime_s": plan.lifetime_s}
        return Trial(skew_s=plan.skew_s, folder=self.folder, cap=cap, **told)

    def least_usd(self, plan: Plan) -> float:
        """The least budget of such a run, whose data is packed before, as the refusal of a lower one says it."""
        key = plan.workers, plan.place, plan.resumes
        if not self._least:
            with Trial(folder=self.folder, redis=self.redis.url, stop={"steps": 1}) as trial:
                trial.finish()
        if key not in self._least:
            with self.trial(plan, 1e-9) as trial:
                self._least[key] = trial.least_usd()
        return self._least[key]

    def close(self) -> None:
        """Kill the servers."""
        self.redis.kill()
        if self.__dict__.get("_rabbitmq") is not None:
            self.__dict__["_rabbitmq"].stop()


def tried(plan: Plan, site: Site) -> Outcome:
    """Carry ``plan`` out."""
    cap = site.least_usd(plan) * plan.times_least
    more: dict[str, Any] = {"twice": plan.twice}
    if plan.raised is not None:
        more["raise_at"] = plan.raised[0], round(cap * plan.raised[1], 9)
    struck = []
    with site.trial(plan, cap, **more) as trial:
        observer = trial.observer
        observer.wait(lambda: observer.functions() or trial.driver.poll() is not None)
        began = time.monotonic()
        for at_s, what in plan.faults:
            observer.wait(lambda: trial.driver.poll() is not None, max(began + at_s - time.monotonic(), 0.0))
            if trial.has_said("status"):
                break
            struck.append(what)
            strike(what, trial, site.redis)
        try:
            said = trial.finish()
            outcome = judged(plan, trial, said, tuple(struck))
        except (AssertionError, subprocess.TimeoutExpired) as error:
            outcome = Outcome(plan, trial.cap, trial.bill.total, "hung", str(error))
    if site.redis.process is None:
        site.redis.start()
    site.redis.said(b"FLUSHALL\r\n")
    return outcome


def judged(plan: Plan, trial: Trial, said: dict[str, Any], struck: tuple[str, ...]) -> Outcome:
    """How a trial went that has ended."""
    rates, spans, bill = Rates(price_profile(PRICES), trial.memory_mb), trial.observer.spans(), trial.bill
    parts = said.get("parts", {})
    missed = trial.bill_until_missed.without_servers
    unspent = (trial.reserved or 0.0) - bill.total
    if second := servers_usd_s(trial.servers):
        # Each may have reserved whole seconds, by its own measure of its time; one may start after its last message.
        paying = [span for span in spans if span.slot < 0 and not span.was_in_vain]
        reserved_s = sum(math.ceil(span.span_s(rates.tail_s) + LAST_S) for span in paying)
        unspent -= max(min(reserved_s - round(bill.servers / second), round(unspent / second)), 0) * second
    return Outcome(
        plan,
        trial.cap,
        bill.total,
        said.get("status", "killed"),
        said.get("reason", ""),
        said.get("step", 0),
        metered=said.get("cost", 0.0),
        metered_servers=parts.get("redis", 0.0) + parts.get("broker", 0.0),
        needed=trial.bill_of_needed.without_servers,
        missed=math.inf if any(span.was_in_vain for span in spans) else missed,
        unspent=None if trial.reserved is None else unspent,
        slice_usd=SLICE_S * rates.function_usd_s,
        last_usd=LAST_S * rates.function_usd_s * len(spans),
        n_lost=sum(span.returned_s is None for span in spans),
        struck=struck,
        told=said.get("events", []),
    )


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
    elif what.startswith(SLOW):
        slow_down(trial, int(what.removeprefix(SLOW)))
    elif what == EVERYBODY:
        for slot in (-1, 0, 1, 2, 3):
            trial.kill(slot)
    else:
        trial.kill(-1 if what == SUPERVISOR else int(what))


def slow_down(trial: Trial, slot: int) -> None:
    """Let a worker run for a tenth of the time only, until another function has its slot, or for a while."""
    give_up_at = time.monotonic() + SLOW_S
    for life in trial.observer.functions(slot)[:1]:
        with contextlib.suppress(ProcessLookupError):
            while life.died_s is None and time.monotonic() < give_up_at:
                for sign, for_s in ((signal.SIGSTOP, STANDS_S), (signal.SIGCONT, RUNS_S)):
                    os.kill(life.pid, sign)
                    trial.observer.wait(lambda: False, for_s)


def prove(seed: int, numbers: list[int], sites: list[Site]) -> list[Outcome]:
    """Carry out these trials, as many at once as there are sites; prints a line for each."""
    left, outcomes, lock = queue.SimpleQueue[int](), list[Outcome](), threading.Lock()
    for number in numbers:
        left.put(number)

    def work(site: Site) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                began, outcome = time.monotonic(), tried(drawn(seed, left.get_nowait()), site)
                with lock:
                    outcomes.append(outcome)
                    print(outcome, f"({time.monotonic() - began:.1f} s)", flush=True)
                    if outcome.wrong:
                        print("     ", *outcome.told, sep="\n      ", flush=True)

    with ThreadPoolExecutor(len(sites)) as pool:
        list(pool.map(work, sites))
    outcomes.sort(key=lambda outcome: outcome.plan.number)
    print(summary(seed, outcomes), flush=True)
    return outcomes


def numbers_of(text: str) -> range:
    """``7`` or ``10-19``, as numbers of trials."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> None:
    """Parse the command line and prove; exits with 1 if something was not as it must be."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--trials", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=random.randrange(10**6))
    arguments.add_argument("--only", type=numbers_of, nargs="*", help="the numbers of trials, as 3 or 10-19")
    arguments.add_argument("--shards", type=int, default=1, help="trials at once; each needs two processors")
    options = arguments.parse_args()
    print(f"seed {options.seed}", flush=True)
    redis = shutil.which("redis-server") or shutil.which("valkey-server")
    rabbitmq = next((path for name in RABBITMQ_PROGRAMS if (path := shutil.which(name))), None)
    if redis is None or rabbitmq is None:
        raise SystemExit("redis-server or rabbitmq-server is missing: apt-get install redis-server rabbitmq-server")
    folder = tempfile.mkdtemp(prefix="mlless-proof-")
    os.environ |= {"TMPDIR": folder, "XDG_DATA_HOME": f"{folder}/data"}
    tempfile.tempdir = folder
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        sites = [Site(Path(folder, str(number)), redis, rabbitmq) for number in range(options.shards)]
        for site in sites:
            stack.callback(site.close)
        numbers = [number for part in options.only or [range(options.trials)] for number in part]
        outcomes = prove(options.seed, numbers, sites)
    sys.exit(any(one.wrong for one in outcomes) or bool(lacking(outcomes)))


if __name__ == "__main__":
    main()
