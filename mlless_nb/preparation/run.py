"""Invokes the functions of a preparation, stage by stage, follows them and keeps their bill, within the budget."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..bus import Bus
from ..bus.messages import Message
from ..data.prepare import Manifest
from ..data.spans import Files
from ..data.stored_files import StoredFiles, StoredRows
from ..errors import BudgetError, DecodeError, RunError
from ..exchange import RedisCoordinator
from ..money import Rates
from ..money.budget import EXIT_S
from ..money.meter import NUSD
from ..money.start import FIRST_STEP_S, StartingMoney, least_usd
from ..plurals import count
from ..stateless.platform import Functions
from . import prepare
from .messages import PartCall, PartDone
from .prepare import Place

#: Longest wait for messages between two checks of the functions, seconds.
POLL_S = 0.1
#: A part is sent to another function after so many times the longest span of the functions that have ended, and
LATE = 4.0
#: after at least so many seconds.
LEAST_LATE_S = 30.0
#: Functions that are sent to do the same part before the run fails.
MOST_ATTEMPTS = 2
#: Seconds of the servers that are paid at a time.
SERVERS_S = 5.0
#: Functions invoked for each one of a stage, at least: to scan, scatter and cut; and one that bundles.
N_STAGES = 3


class UsedUpError(BudgetError):
    """The budget was used up while functions prepared the data."""


@dataclass(frozen=True)
class CallContext:
    """What functions are told of the run, see `PartCall`."""

    job_id: str
    generation: str
    redis_urls: list[str]
    bus_url: str
    insecure: bool
    prices: str
    memory_mb: int
    has_broker: bool


class Preparation:
    """The preparation of one run's data.

    Parameters
    ----------
    context : CallContext
    log : RedisCoordinator
        Has the budget of the preparation, see `budget_id`.
    bus : Bus
    functions : Functions
    objects : ObjectStore
    files_of : callable
        The files of a bucket.
    rates : Rates
    cap_nusd : int or None
        The run's budget, nano-dollars.
    kept_nusd : int
        Least amount of it that is for the training.
    is_local : bool
    lifetime_s : float
        Of a function, seconds.
    look : callable
        Called between messages; raises if the run is to end.
    """

    def __init__(
        self,
        context: CallContext,
        log: RedisCoordinator,
        bus: Bus,
        functions: Functions,
        objects: Any,
        files_of: Callable[[str], Files],
        rates: Rates,
        *,
        cap_nusd: int | None,
        kept_nusd: int,
        is_local: bool,
        lifetime_s: float,
        look: Callable[[], None],
    ) -> None:
        self._told, self._log, self._bus, self._functions = context, log, bus, functions
        self._objects, self._files_of, self._rates = objects, files_of, rates
        self._cap_nusd, self._kept_nusd, self._is_local = cap_nusd, kept_nusd, is_local
        self._lifetime_s, self._look = lifetime_s, look
        self._files: dict[str, Files] = {}
        self._folder = f"runs/{context.job_id}/data/"
        self._functions_nusd = 0  # of functions that have ended or were lost
        self._n_stages = 0
        self._began, self._ended_s = time.monotonic(), 0.0
        self._servers_until_s = SERVERS_S
        self.n_repeated = 0
        log.create(cap_nusd=cap_nusd, reserved_nusd=kept_nusd + self._servers_nusd(SERVERS_S))

    # -- the work

    def scan(self, spec: StoredFiles) -> StoredRows:
        """The rows of stored files, counted and checked."""
        return prepare.scanned(spec, self._files_in(spec), self._place, self._runner(spec))

    def pack(self, datasets: Sequence[tuple[StoredRows, int | None]], size: int) -> dict[str, Manifest]:
        """Pack data sets, each with its seed; returns the manifests by key."""
        found: dict[str, Manifest] = {}
        for source in {id(dataset.source): dataset.source for dataset, _ in datasets}.values():
            parts = [(dataset, seed) for dataset, seed in datasets if dataset.source is source]
            found |= prepare.pack(parts, size, self._place, self._runner(source.spec))
        return found

    def _files_in(self, spec: StoredFiles) -> Files:
        bucket = spec.place[0]
        return self._files.setdefault(bucket, self._files_of(bucket))

    @property
    def _place(self) -> Place:
        return Place(self._objects, self._folder)

    def _runner(self, spec: StoredFiles) -> prepare.RunStage:
        def run_stage(stage: str, plan: dict[str, Any], n: int) -> list[dict[str, Any]]:
            if stage == "scan":
                self._check_budget(n)
            return self._run(spec.place[0], stage, plan, n)

        return run_stage

    def close(self) -> None:
        """Remove what is left of the preparation. Idempotent."""
        if self._ended_s:
            return
        self._ended_s = self._time_s
        self._place.clear()
        self._log.delete()
        self._log.close()

    # -- money

    @property
    def spent_nusd(self) -> int:
        """What the preparation has cost so far, nano-dollars: functions, servers and requests for the files."""
        gets, puts = (sum(getattr(each, name) for each in self._files.values()) for name in ("gets", "puts"))
        requests = self._rates.requests_nusd(gets, puts)
        return self._functions_nusd + self._servers_nusd(self._ended_s or self._time_s) + requests

    def left_nusd(self, n: int) -> int:
        """The least amount that packing by ``n`` functions takes, nano-dollars."""
        return n * self._grant_nusd(n) + ((N_STAGES - 2) * n + 1) * self._rates.function_nusd(0.0)

    @property
    def _time_s(self) -> float:
        return time.monotonic() - self._began

    def _servers_nusd(self, span_s: float) -> int:
        """Bill of the servers for ``span_s`` seconds, without their start-up."""
        return self._rates.servers_nusd(span_s) - self._rates.servers_nusd(0.0)

    def _grant_nusd(self, n: int) -> int:
        """First grant of one of ``n`` functions: to start, do a small part and end in good order."""
        start_s = StartingMoney(self._rates, n, self._is_local).start_s
        return self._rates.function_nusd(start_s + FIRST_STEP_S + EXIT_S) + self._rates.requests_nusd(6, 5)

    def _check_budget(self, n: int) -> None:
        """Raise unless the budget pays for the preparation by ``n`` functions and for a step of training."""
        if self._cap_nusd is None:
            return
        least = self._kept_nusd + self.spent_nusd + self.left_nusd(n) + n * self._rates.function_nusd(0.0)
        if self._cap_nusd < least:
            raise BudgetError(
                "budget",
                self._cap_nusd / NUSD,
                f"at least {least_usd(least):g} (US dollars): what it takes to prepare the data with "
                f"{count(n, 'function')} and to train for one step, priced as {self._rates.profile.label}; fewer "
                "functions take less",
            )

    def keep(self, nusd: int) -> None:
        """Keep at least ``nusd`` of the budget for the training, in all; `UsedUpError` if that is no longer there."""
        more, self._kept_nusd = nusd - self._kept_nusd, max(nusd, self._kept_nusd)
        self._reserve(more)

    def _reserve(self, nusd: int) -> None:
        if nusd > 0 and self._log.reserve(nusd, nusd, uuid.uuid4().hex) < nusd:
            raise self._used_up()

    def _used_up(self) -> UsedUpError:
        spent, kept = self.spent_nusd / NUSD, self._kept_nusd / NUSD
        cap = self._cap_nusd / NUSD if self._cap_nusd is not None else None
        return UsedUpError(
            "budget",
            cap,
            f"more: functions that prepare the data have used ${spent:.6f}, and ${kept:.6f} is for training",
        )

    def _pay_servers(self) -> None:
        """Pay the servers for the next seconds."""
        if self._time_s + 2 * POLL_S > self._servers_until_s:
            until_s = self._time_s + SERVERS_S
            self._reserve(self._servers_nusd(until_s) - self._servers_nusd(self._servers_until_s))
            self._servers_until_s = until_s

    # -- functions

    def _run(self, bucket: str, stage: str, plan: dict[str, Any], n: int) -> list[dict[str, Any]]:
        """Have ``n`` functions do the parts of ``plan``; returns what each found."""
        self._n_stages += 1
        plan_key = f"{self._folder}plan-{self._n_stages}"
        self._objects.put(plan_key, json.dumps(plan).encode())
        keys = [f"{self._folder}found-{self._n_stages}-{index}" for index in range(n)]
        calls = [
            PartCall(
                stage=stage,
                index=index,
                attempt=0,
                bucket=bucket,
                plan_key=plan_key,
                found_key=keys[index],
                n_functions=n,
                granted_nusd=self._grant_nusd(n),
                launched_at_s=0.0,
                **vars(self._told),
            )
            for index in range(n)
        ]
        try:
            self._complete(calls)
        except BaseException:
            self._functions.kill()
            raise
        found = [json.loads(self._objects.get(key)) for key in keys]
        self._objects.delete([plan_key, *keys])
        return found

    def _complete(self, calls: Sequence[PartCall]) -> None:
        """Invoke ``calls`` and wait until each part is done; where a function was lost or has failed, once more."""
        waiting = {call.index: call for call in self._invoke(calls)}
        open_calls = {(call.index, call.attempt): call for call in waiting.values()}
        errors: dict[int, str] = {}
        began, longest_s = time.monotonic(), 0.0

        def receive() -> None:
            nonlocal longest_s
            for done in self._reports(calls[0].plan_key):
                if open_calls.pop((done.index, done.attempt), None) is None:
                    continue
                self._functions_nusd += done.spent_nusd
                longest_s = max(longest_s, done.span_s)
                if not done.error:
                    waiting.pop(done.index, None)
                    errors.pop(done.index, None)
                elif done.index in waiting:
                    errors[done.index] = done.error

        while waiting:
            receive()
            if waiting and self._log.aborted() is not None:
                self._lose(open_calls)
                raise self._used_up()
            self._look()
            self._pay_servers()
            patience_s = max(LEAST_LATE_S, LATE * longest_s) if longest_s else self._lifetime_s
            is_over = self._functions.are_gone() or time.monotonic() - began > patience_s
            if is_over:
                receive()  # what was sent last
                errors = dict.fromkeys(waiting, "no report") | errors
            if errors and waiting and (is_over or not self._functions.are_serial):
                again = [waiting[index] for index in errors]
                self._lose({key: call for key, call in open_calls.items() if call in again}, open_calls)
                self._give_up_after_last(again, errors)
                if self._functions.are_serial:
                    self._functions.kill()
                for call in self._invoke([replace(call, attempt=call.attempt + 1) for call in again]):
                    waiting[call.index] = open_calls[call.index, call.attempt] = call
                self.n_repeated += len(again)
                errors, began = {}, time.monotonic()

    def _give_up_after_last(self, calls: Sequence[PartCall], errors: dict[int, str]) -> None:
        for call in calls:
            if call.attempt + 1 >= MOST_ATTEMPTS:
                who = f"the function that did part {call.index} of the preparation's {call.stage!r}"
                raise RunError(f"{who} was lost or failed {MOST_ATTEMPTS} times: {errors[call.index]}")

    def _lose(
        self, lost: dict[tuple[int, int], PartCall], among: dict[tuple[int, int], PartCall] | None = None
    ) -> None:
        """Bill functions that were lost with their grants: what they used of these is not known."""
        for key, call in list(lost.items()):
            self._functions_nusd += call.granted_nusd
            if among is not None:
                del among[key]

    def _invoke(self, calls: Sequence[PartCall]) -> list[PartCall]:
        """Invoke functions; returns the calls as they were made."""
        self._reserve(sum(call.granted_nusd for call in calls))
        now_s = self._log.now_s()
        calls = [replace(call, launched_at_s=now_s) for call in calls]
        self._functions.invoke(calls)
        return calls

    def _reports(self, plan_key: str) -> list[PartDone]:
        """The reports on a plan that have come, waiting a moment for one."""
        found = []
        for body in self._bus.receive("driver", POLL_S):
            try:
                message = Message.decode(body)
            except DecodeError:
                continue
            if isinstance(message, PartDone) and message.plan_key == plan_key:
                found.append(message)
        return found
