"""The driver of a stateless run: it has no supervisor, so that it follows the functions and keeps the bill itself."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Sequence

from ..bus.messages import Command, Ended, Invocation, Message
from ..data.prepare import Manifest
from ..job import defaults
from ..job.execution import EVENTS
from ..job.partitioning import held_bytes
from ..money.meter import to_nusd
from ..stateless.event_run import EventRun
from ..stateless.grants import StatelessMoney
from ..stateless.invoking import TOPIC
from ..stateless.keys import model_key
from ..stateless.map_reduce import MapReduce
from ..stateless.platform import Ends
from ..storage.checkpoint import Progress
from ..telemetry.record import Record
from .driver import Driver
from .launch.functions import LithopsFunctions
from .running.driver_lease import DRIVER_LEASE_S, kept
from .servers.services import Services

#: Longest wait, once a run has ended, for functions that are still at work, seconds.
LAST_FUNCTIONS_S = 5.0


class KeptFunctions(LithopsFunctions):
    """Functions beside whose invocation the driver's lease is kept."""

    def invoke(self, calls: Sequence[Message]) -> None:
        """Start a function for each call."""
        with kept(self._services.log):
            super().invoke(calls)


class HostedFunctions(KeptFunctions):
    """Functions that invoke each other: in a cloud through Lithops; on this machine by its host, over the bus."""

    def __init__(self, services: Services, folder: str, host: Invocation) -> None:
        super().__init__(services, folder)
        self.are_serial = False
        self._host = host if services.launcher.is_local else None
        if self._host is not None:
            services.invoke_functions([self._host.encode().decode()], folder)

    def invoke(self, calls: Sequence[Message]) -> None:
        """Start a function for each call."""
        if self._host is None:
            super().invoke(calls)
        else:
            for call in calls:
                self._services.bus.send(TOPIC, call.encode())

    def stop(self) -> None:
        """Let the host end once its functions have."""
        if self._host is not None:
            self._services.bus.send(TOPIC, Command("stop", "stop").encode())


class StatelessDriver(Driver):
    """See `Driver`."""

    _stateless: MapReduce | EventRun | None = None
    _functions: LithopsFunctions | None = None
    _renewed_at = 0.0

    def _launch(self, manifest: Manifest, validation: Manifest | None) -> None:
        launcher, log, plan = self._services.launcher, self._services.log, self._plan
        job = self.job = self.run.job = defaults.adapted(self.job, manifest)
        if chosen := defaults.summary(self._left_open, job):
            self.run.telemetry.add_event(0.0, chosen)
        begin = self._start.progress if self._start is not None else None
        if begin is None:
            begin = Progress(job.model.first(self._data.shape, self._data.mean, job.seed))
        launcher.objects.put(model_key(self.run.id, 0), dataclasses.replace(begin, step=0, owners=None).encode())
        spent_before = plan.requests_before_nusd()
        plan.check_budget(spent_before + self._data.prepared_nusd)
        money = plan.money
        assert isinstance(money, StatelessMoney)
        cap = to_nusd(job.cap_usd) if job.cap_usd is not None else None
        self._services.check_room(held_bytes(job, manifest))
        log.create(cap_nusd=cap, reserved_nusd=plan.reserved_nusd(spent_before))
        log.renew("driver", DRIVER_LEASE_S)
        invocations = plan.invocations(
            job, manifest, validation, run_id=self.run.id, start_key=None, spent_before_nusd=spent_before
        )
        invocation = dataclasses.replace(invocations[0], scatter_from=0)
        self._feed.record = record = Record(self.run.id)
        record.begin({"state": self.run.telemetry.state.to_json(), "cost": {}, "job": self._replayed()})
        self._launched_at = time.monotonic()
        kind: type[MapReduce | EventRun] = MapReduce
        folder = f"runs/{self.run.id}"
        if job.execution == EVENTS:
            kind = EventRun
            self._functions = HostedFunctions(self._services, folder, dataclasses.replace(invocation, role="host"))
        else:
            self._functions = KeptFunctions(self._services, folder)
        self._stateless = kind(
            invocation,
            log,
            self._services.bus,
            launcher.objects,
            self._functions,
            money,
            send=self._feed.take,
            trace=record.append_trace,
            look=self._look,
            first_factor=begin.rate_factor,
        )
        self._is_launched = True

    def _look(self) -> None:
        """Renew the lease; end the run if this process is about to exit."""
        now = time.monotonic()
        if now - self._renewed_at > DRIVER_LEASE_S / 10:
            self._renewed_at = now
            self._services.log.renew("driver", DRIVER_LEASE_S)
        if self._is_abandoned.is_set() or not threading.main_thread().is_alive():
            self._services.launcher.kill()
            raise Ends("stopped", "the process that started the run ended")

    def _follow(self) -> Ended:
        """Train, then choose the model that the run returns and say how it ended."""
        run = self._stateless
        assert run is not None
        verdict = run.train()
        self._services.log.announce_stop(verdict.status, verdict.reason)  # functions that invoke each other read it
        judge, has_failed, last_loss = run.judge, verdict.status == "failed", None
        if not has_failed and not self._is_abandoned.is_set():
            with contextlib.suppress(Ends):
                last_loss = judge.mean_loss(*run.evaluate_last())
        run.drain(LAST_FUNCTIONS_S)
        run.finish_rows(last_loss)
        kept = judge.kept_step(last_loss, has_failed=has_failed)
        self._wait_for_functions()
        objects, step = self._services.launcher.objects, judge.step
        has_last = not has_failed and kept is not None and kept < step
        # What follows: reading the models, listing the run's objects to remove them.
        driver = self._plan.rates.requests_nusd(objects.gets + 1 + has_last, objects.puts + 1)
        return Ended(
            verdict.status,
            verdict.reason,
            step,
            model_key(self.run.id, kept) if kept is not None else None,
            None if has_failed else last_loss,
            run.reports.costs_nusd(run.time_s, driver),
            run.time_s,
            model_key(self.run.id, step) if has_last else None,
            kept,
            judge.best_loss if kept == judge.best_step else last_loss,
            store_use=run.reports.store_use,
        )

    def _wait_for_functions(self) -> None:
        """Wait for functions whose part another one did, so that they write nothing after the run was removed."""
        if isinstance(self._functions, HostedFunctions):
            self._functions.stop()
        launcher, give_up_at = self._services.launcher, time.monotonic() + LAST_FUNCTIONS_S
        while launcher.is_local and not launcher.has_ended() and time.monotonic() < give_up_at:
            time.sleep(0.01)
        launcher.kill()

    def _failure(self, reason: str, status: str = "failed") -> Ended:
        """A final message after an error in this process: what was invoked is billed with its grants."""
        run, objects = self._stateless, self._services.launcher.objects
        if run is None:
            return super()._failure(reason, status)
        self._services.launcher.kill()
        with contextlib.suppress(Exception):  # Redis may be what failed
            self._services.log.announce_stop(status, reason)
            self._services.log.abort(reason, self.job.workers)
            run.drain(LAST_FUNCTIONS_S)
            run.finish_rows(None)
        judge = run.judge
        kept = judge.step if judge.best_step is None else judge.best_step
        costs = run.reports.costs_nusd(run.time_s, self._plan.rates.requests_nusd(objects.gets + 1, objects.puts + 1))
        known = status, reason, judge.step, model_key(self.run.id, kept), None, costs, run.time_s, None, kept
        return Ended(*known, store_use=run.reports.store_use)
