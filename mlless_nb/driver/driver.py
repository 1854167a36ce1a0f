"""The driver of a run: prepares the data, starts the supervisor and the workers, follows them, always cleans up."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import redis

from ..bus.messages import Aged, Command, Ended, Invocation, Message, Trouble, Update
from ..data.prepare import Manifest
from ..errors import DecodeError, MllessError, ServiceError
from ..exchange import LostData
from ..exchange.plan import NO_PLAN
from ..job import defaults
from ..job.job import TrainingJob
from ..job.partitioning import held_bytes
from ..money.meter import NUSD
from ..preparation.run import UsedUpError
from ..stateless.platform import Ends
from ..supervisor.policy.replay import inputs_of
from ..telemetry.record import Record
from ..tracking import Tracker
from .backends.causes import Causes
from .ending import last_functions, teardown
from .ending.conclusion import Conclusion
from .ending.unreported import UnreportedFunctions
from .launch.allowance import Allowance
from .launch.data_preparation import JobData
from .launch.first_state import first_state
from .launch.launch_plan import LaunchPlan
from .launch.resumption import Earlier, start_of
from .launch.stored_data import StoredData
from .recovery.fault_handling import FaultHandler
from .recovery.recovery import Recovery
from .run import TrainingRun
from .running.attending import BUS_POLL_S, Attending
from .running.commands import Commands
from .running.contact import Contact, asked_again
from .running.driver_lease import DRIVER_LEASE_S, kept
from .running.update_feed import UpdateFeed
from .servers.services import Services

#: Seconds between two checks which local functions have exited.
LOST_POLL_S = 0.25
#: Seconds to wait for a final message after the functions have exited, and for more of messages that are there.
FINAL_MESSAGE_S, BATCH_S = 1.0, 0.02


class Driver:
    """One run's driver. The constructor checks everything and opens the services; `drive` does the rest in a thread.

    Parameters
    ----------
    run_id, name : str
    on_end : callable
        Called with the run after everything was removed, before threads that wait for the run continue.
    allowance : Allowance
        The run's reservation in the budgets above its own; its job is the one to be driven.
    earlier : Earlier, optional
        The run that this one resumes from.
    is_wanted : callable
        Whether the constructor should go on while functions read stored files.
    """

    def __init__(
        self,
        run_id: str,
        name: str,
        on_end: Callable[[TrainingRun], None],
        allowance: Allowance,
        earlier: Earlier | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._on_end, self._allowance, job = on_end, allowance, allowance.job
        self._stored = StoredData.open(job, run_id, is_wanted) if job.is_stored else None
        try:
            self._prepare(job, run_id, name, earlier)
        except BaseException:
            if self._stored is not None:
                self._stored.close()
                self._allowance.settle(self._stored.preparation.spent_nusd)
                self._stored.services.close()
            raise

    def _prepare(self, job: TrainingJob, run_id: str, name: str, earlier: Earlier | None) -> None:
        preparation = None
        if self._stored is not None:
            job, preparation = self._stored.scanned(job), self._stored.preparation
            if earlier is not None:
                earlier.check(job)
        self._data = JobData(job, preparation)
        self._left_open, self.job = job, self._data.job
        job = self.job
        self.run = TrainingRun(job, run_id, name, self._send)
        self._is_launched, self._launched_at = False, 0.0  # not yet
        self._contact: Contact  # from the launch on
        self._attending: Attending
        self._causes: Causes
        self._unreported: UnreportedFunctions
        self._invocation: Invocation | None = None  # the supervisor's
        # Nano-dollars for this process' own requests: as sent to the functions, and as in the supervisor's bill.
        self._spent_before = self._set_aside = 0
        self._is_abandoned = threading.Event()
        self._fault_handler: FaultHandler | None = None
        self._start = start_of(earlier, self._data) if earlier is not None else None
        self._data.check_target(self._start.progress.params if self._start is not None else None)
        self._services = self._stored.services if self._stored is not None else Services(job, run_id)
        self._commands = Commands(self._services, self.run.telemetry, self._allowance)
        try:
            self._plan = LaunchPlan(self._data, self._services, self._start)
        except BaseException:
            self._services.close()
            raise
        self._feed = UpdateFeed(self.run.telemetry, self._commands, self._start, self._plan.rates)
        state = first_state(self.run, job, self._data, earlier, self._start, self._plan, self._services)
        self.run.telemetry.update(**state)
        for text in [*self._services.told, *(self._start.told if self._start is not None else ())]:
            self.run.telemetry.add_event(0.0, text)
        self._tracker = Tracker(run_id, name, job, self._allowance.budgets, self.run.telemetry)
        self._allowance.follow(self.run.telemetry, self._plan.rates.run_usd_s(job.n_functions))

    def discard(self) -> None:
        """Close the services of a run that will not be driven."""
        if self._stored is not None:
            self._stored.close()
        self._allowance.settle(self._data.prepared_nusd)
        self._tracker.discard()
        self._services.close()

    # -- the thread

    def drive(self) -> None:
        """Pack, launch, follow, clean up. Never raises: errors become the run's status and reason."""
        ended: Ended | None = None
        try:
            packed_data = self._packed()
            if packed_data is not None and not self._commands.is_stop_asked:
                self._launch(*packed_data)
                ended = self._follow()
        except UsedUpError as error:
            ended = self._failure(str(error), "capped")
        except MllessError as error:
            ended = self._failure(str(error))
        except Exception as error:
            ended = self._failure(f"{type(error).__name__}: {error}")
        self._commands.close()
        self._feed.close(ended.step if ended is not None and ended.status == "finished" else 0)
        ended = ended or self._failure("stopped before the functions were invoked", "stopped")
        conclusion = Conclusion(
            ended,
            self.job,
            self.run,
            self._data,
            self._services,
            self._plan.rates,
            self._start,
            is_launched=self._is_launched,
            set_aside_nusd=self._set_aside,
        )
        try:
            conclusion.clean_up()
        finally:
            conclusion.note += "".join(f"; closing failed: {failure}" for failure in self._services.close())
            try:
                self._on_end(self.run)
            finally:
                conclusion.publish(self._feed.record, self._replayed(), self._allowance.settle, self._tracker)

    def abandon(self) -> None:
        """End the run now, since the interpreter exits. Returns at once."""
        self._commands.is_stop_asked = True
        self._is_abandoned.set()

    def _packed(self) -> tuple[Manifest, Manifest | None] | None:
        """The packed data; None if a stop was requested in the meantime."""
        if self._stored is not None:
            try:
                self._stored.is_wanted = self._is_preparing_wanted
                self._data.prepare(self._plan.kept_nusd)
            except Ends:
                return None
            finally:
                self._stored.close()
                cost_usd = self._data.prepared_nusd / NUSD
                self.run.telemetry.update(spent_usd=cost_usd)
            self.run.telemetry.add_event(0.0, f"Data prepared by functions for ${cost_usd:.6f}")
        return self._data.pack(self._services.launcher.objects, lambda: self._commands.is_stop_asked)

    def _is_preparing_wanted(self) -> bool:
        return not (self._commands.is_stop_asked or self._is_abandoned.is_set())

    def _launch(self, manifest: Manifest, validation: Manifest | None) -> None:
        plan = self._plan
        job = self.job = self.run.job = defaults.adapted(self.job, manifest)
        if chosen := defaults.summary(self._left_open, job):
            self.run.telemetry.add_event(0.0, chosen)
        start_key = plan.put_start(self.run.id)
        self._spent_before = spent_before = plan.requests_before_nusd()
        plan.check_budget(spent_before + self._data.prepared_nusd)
        self._services.check_room(held_bytes(job, manifest))
        plan.begin(spent_before, self.run.id)
        self._services.log.renew("driver", DRIVER_LEASE_S)
        invocations = plan.invocations(
            job, manifest, validation, run_id=self.run.id, start_key=start_key, spent_before_nusd=spent_before
        )
        self._invocation, self._launched_at = invocations[0], time.monotonic()
        self._feed.record = Record(self.run.id)
        self._feed.record.begin({"state": self.run.telemetry.state.to_json(), "cost": {}, "job": self._replayed()})
        self._contact = Contact(self._services, invocations[0].lease_s)
        self._causes = Causes(self._services.launcher, job.memory_mb)
        self._unreported = UnreportedFunctions(plan.money, plan.rates, self._services.launcher.exits, self._launched_at)
        services, telemetry = self._services, self.run.telemetry
        known = plan.money, plan.rates, telemetry, self._launched_at
        self._attending = Attending(services, self._commands, self._receive, self._is_leaving)
        recovery = Recovery(services, invocations, *known, self._invoke, self._attending.pause)
        recovery.on_loss = self._feed.costs.lose_past
        parts = services, recovery, self._contact, telemetry
        self._fault_handler = FaultHandler(*parts, job.workers, job.sync.staleness, self._causes)
        self._invoke(plan.invoked_here(invocations))  # last: from now on a server may fail
        self._is_launched = True

    def _invoke(self, invocations: list[Invocation]) -> None:
        """Invoke functions."""
        if invocations:
            payloads = [invocation.encode().decode() for invocation in invocations]
            with kept(self._services.log):
                self._services.invoke_functions(payloads, f"runs/{self.run.id}")
            if invocations[0].role == "supervisor":
                self._contact.invoked()
            self._unreported.note(invocations)
            self._causes.invoked(self._services.launcher.newest, [one.slot for one in invocations])

    def _follow(self) -> Ended:
        """Turn the supervisor's updates into telemetry until its final message, which is returned."""
        looked_at = time.monotonic()
        while True:
            if self._is_leaving():
                return self._abandon()
            try:
                if (ended := self._attending.attend()) is not None:
                    return ended
                now = time.monotonic()
                is_due = now - looked_at > LOST_POLL_S
                if (ended := self._handle_faults(is_due)) is not None:
                    return ended
                looked_at = now if is_due else looked_at
                self._contact.answered()
            except LostData:
                looked_at = -math.inf  # it is restored first
            except (redis.ConnectionError, redis.TimeoutError, ServiceError) as error:  # the storage may be the server
                assert self._fault_handler is not None
                if (over := self._fault_handler.unanswered(str(error))) is not None:
                    return self._give_up(*over)
                time.sleep(BUS_POLL_S)

    def _is_leaving(self) -> bool:
        """Whether the run has to end now, since the interpreter exits."""
        return self._is_abandoned.is_set() or not threading.main_thread().is_alive()

    def _handle_faults(self, is_due: bool) -> Ended | None:
        """Replace what was lost; returns the final message if the run has ended, or cannot go on."""
        handler = self._fault_handler
        assert handler is not None
        if self._services.launcher.has_ended():
            if (ended := self._receive_rest()) is not None:
                return ended
            over = handler.revive()
        else:
            over = handler.handle(is_due=is_due)
        if self._attending.ended is not None:  # it came while a backend was asked again
            return self._attending.ended
        return self._give_up(*over) if over is not None else None

    def _receive(self, timeout_s: float) -> Ended | None:
        """Handle the supervisor's messages; returns its final message if that is among them."""
        with asked_again():  # whichever server carries messages
            bodies = self._services.bus.receive("driver", timeout_s)
        self._contact.listen()
        for body in bodies:
            self._contact.heard()
            try:
                message = Message.decode(body)
            except DecodeError:
                continue
            if isinstance(message, Ended):
                self._set_aside = self._spent_before
                last_functions.kill_unheard(self._services.launcher, message, self._launched_at)
                return self._unreported.billed(self._feed.costs.billed(message))
            if isinstance(message, Update):
                self._feed.take(message)
            elif isinstance(message, Trouble) and self._fault_handler is not None:
                self._fault_handler.troubles.append(message)
            elif isinstance(message, Aged) and self._fault_handler is not None:
                self._fault_handler.aged.append(message)
        return None

    def _receive_rest(self) -> Ended | None:
        """Handle messages until the final one, which is returned, or until none came for a while."""
        # What has ended on this machine has put all into the storage, and each look costs a request.
        patience_s = BATCH_S if self._services.dues and self._services.launcher.is_local else FINAL_MESSAGE_S
        give_up_at = time.monotonic() + 10 * patience_s  # somebody may still be talking
        while True:
            asked_at = time.monotonic()
            ended = self._receive(patience_s)
            if ended is not None or time.monotonic() > min(asked_at + patience_s, give_up_at):
                return ended

    def _replayed(self) -> dict[str, Any]:
        """The inputs of the policy's decisions beside the rows, see `mlless_nb.supervisor.policy.replay`."""
        return inputs_of(self.job, self._services.launcher.n_cores, self._plan.rates)

    def _send(self, command: Command, pending: str) -> None:
        self._commands.send(command, pending)

    def _abandon(self) -> Ended:
        """End the run now, since the interpreter exits; in good order if that is quick."""
        reason = "the process that started the run ended"
        last_functions.stop_quickly(self._services, reason)
        return self._give_up(reason, "stopped")

    def _give_up(self, reason: str, status: str = "failed") -> Ended:
        """A final message where the supervisor sent none, made from the bus, the log and the storage.

        ``reason`` and ``status`` are used if these do not say how the run ended.
        """
        ended = self._receive_rest()
        if ended is None:
            aborted, failure = teardown.aborted(self._services), self._failure(reason, status)
            plan, rates = self._fault_handler.plan if self._fault_handler is not None else NO_PLAN, self._plan.rates
            known = rates, self._launched_at, self._invocation, aborted, failure, plan
            concluded = teardown.conclude(self._services, *known)
            ended = self._unreported.at_most(self._feed.costs.at_least(concluded, self._unreported.lived_s))
            self._feed.tells = False  # some of the following events were shown already
            with contextlib.suppress(Exception):
                self._receive_rest()
            self._set_aside = 0 if concluded is failure else self._spent_before
        return ended

    def _failure(self, reason: str, status: str = "failed") -> Ended:
        """A final message by the driver, if the supervisor sent none: aborts the functions and bills them up to now."""
        state, prepared = self.run.telemetry.state, self._data.prepared_nusd
        ended = Ended(status, reason, state.step, None, None, {}, 0.0)
        known = self._services, self._plan.rates, self.job.workers, state, ended, self._launched_at, prepared
        return teardown.failure(*known, is_launched=self._is_launched)
