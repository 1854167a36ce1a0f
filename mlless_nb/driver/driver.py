"""The driver: from a job to a run. Prepares, starts the supervisor and the workers, follows them, always cleans up."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ..bus.messages import Command, Ended, Invocation, Message, Update
from ..data.prepare import Manifest
from ..errors import BudgetError, DecodeError, MllessError
from ..exchange import pattern
from ..job import defaults
from ..job.baseline import shortfall
from ..job.job import TrainingJob
from ..job.partitioning import exchanged_bytes
from ..models import FittedModel
from ..money import Cost, Rates, price_profile
from ..money.budget import EXIT_S
from ..money.meter import NUSD, to_nusd
from ..money.start import StartingMoney, least_usd
from ..storage import checkpoint
from ..storage.checkpoint import Progress
from ..supervisor.policy.projection import Prices
from ..telemetry import record
from ..telemetry.live import Row
from ..telemetry.record import Record
from . import invocations, teardown
from .commands import Commands
from .data_preparation import JobData
from .resumption import Earlier, start_of, summary
from .run import TrainingRun
from .services import Services

#: Lease of the driver, seconds; when it is gone the run ends.
DRIVER_LEASE_S = 30.0
#: Seconds between two looks at the functions and at what is to be sent when the supervisor says nothing.
BUS_POLL_S = 0.1
#: Seconds between two looks at which of the functions on this machine are gone.
LOST_POLL_S = 0.25
#: Seconds that a last word may be on its way when the functions are gone.
LAST_WORD_S = 1.0
#: Seconds by which the start of functions that are late is paid for at a time.
START_SLICE_S = 0.2
#: Latency (s) and bytes a second of the embedded Redis: as measured once, so that one seed gives one model.
EMBEDDED_LINK = (60e-6, 3e9)
#: Seconds without word from the supervisor after which the run counts as lost.
SILENCE_S = 60.0


class Driver:
    """One run's driver. Making it checks everything and opens the services; `drive` does the rest in a thread.

    Parameters
    ----------
    job : TrainingJob
    run_id, name : str
    on_end : callable
        Told of the run once nothing of it is left, before those who wait for it go on.
    earlier : Earlier, optional
        The run that this one goes on from.
    """

    def __init__(
        self,
        job: TrainingJob,
        run_id: str,
        name: str,
        on_end: Callable[[TrainingRun], None],
        earlier: Earlier | None = None,
    ) -> None:
        self._on_end = on_end
        self._data = JobData(job)
        self._left_open, self.job = job, self._data.job
        job = self.job
        self.run = TrainingRun(job, run_id, name, self._send)
        self._record: Record | None = None
        self._is_launched = False
        self._launched_at = 0.0  # 0: not yet
        self._heard_at = 0.0
        self._invocation: Invocation | None = None  # the supervisor's
        self._step_told = 0.0  # of the newest row
        self._is_concluding = False  # what comes was in part told already
        # Nano-dollars for this process' own requests: as it told the functions, and as the supervisor's bill has it.
        self._spent_before = self._set_aside = 0
        self._is_abandoned = threading.Event()
        self._is_best_earlier = False  # whether the model that is returned is the earlier run's
        self._last_model: FittedModel | None = None  # where it is not the one that is returned
        self._progress: Progress | None = None  # what a run that goes on from this one needs
        self._start = start_of(earlier, self._data) if earlier is not None else None
        self._data.check_target(self._start.progress.params if self._start is not None else None)
        self._services = Services(job, run_id)
        self._commands = Commands(self._services, self.run.telemetry)
        try:
            self._rates = Rates(
                price_profile(job.prices), job.memory_mb, len(self._services.redis_urls), self._services.has_broker
            )
            self._money = StartingMoney(
                self._rates,
                job.workers,
                self._services.launcher.is_local,
                self._data.held_out_gets,
                self._start is not None,
            )
            spent_before = self._packing_nusd()
            self._check_budget(spent_before)
        except BaseException:
            self._services.close()
            raise
        state: dict[str, Any] = {
            "run_id": run_id,
            "name": name,
            "description": job.describe() + (f" · from {earlier.name}" if earlier is not None else ""),
            "resumed_from": earlier.name if earlier is not None else "",
            "metric": job.model.metric,
            "target": job.stop_rules.target,
            "baseline_loss": self._data.baseline_loss,
            "n_workers": job.workers,
            "budget_usd": job.cap_usd,
            # What a cap that is lowered while the run starts must leave to it.
            "committed_usd": self._money.least_nusd(spent_before) / NUSD,
            "price_profile": self._rates.profile.label,
            "is_simulated_price": self._services.launcher.is_local,
        }
        if self._start is not None and self._start.best is not None:
            state |= {"best_loss": self._start.best_loss, "best_step": 0, "best_epoch": 0.0}
        self.run.telemetry.update(**state)
        for text in self._start.told if self._start is not None else ():
            self.run.telemetry.tell(0.0, text)

    def discard(self) -> None:
        """Give back what was opened for a run that is not to be driven."""
        self._services.close()

    # -- checks before anything is launched

    def _packing_nusd(self) -> int:
        """What the driver's own storage requests cost at most: packing the data, unless it is packed, and the model."""
        n_puts = self._data.n_puts(self._services.launcher.objects) + (self._start is not None)
        return self._rates.requests_nusd(12, 2 + n_puts)

    def _check_budget(self, spent_before: int) -> None:
        if self.job.cap_usd is None:
            return
        least = self._money.least_nusd(spent_before)
        if to_nusd(self.job.cap_usd) < least:
            raise BudgetError(
                "budget",
                self.job.cap_usd,
                f"at least {least_usd(least):g} (US dollars): what it takes to start {self.job.workers} workers "
                f"and a supervisor, take one step and end, priced as {self._rates.profile.label}",
            )

    # -- the thread

    def drive(self) -> None:
        """Pack, launch, follow, clean up. Never raises: what goes wrong becomes the run's status and reason."""
        ended: Ended | None = None
        try:
            packed_data = self._data.pack(self._services.launcher.objects, lambda: self._commands.is_stop_asked)
            if packed_data is not None and not self._commands.is_stop_asked:
                self._launch(*packed_data)
                ended = self._follow()
        except MllessError as error:
            ended = self._failure(str(error))
        except Exception as error:
            ended = self._failure(f"{type(error).__name__}: {error}")
        self._commands.close()
        ended = ended or self._failure("stopped before the functions were invoked", "stopped")
        model: FittedModel | None = None
        note = ""
        try:
            model, note = self._clean_up(ended)
        except Exception as error:
            note = f"; cleaning up failed: {type(error).__name__}: {error}"
        finally:
            note += "".join(f"; closing failed: {failure}" for failure in self._services.close())
            try:
                self._on_end(self.run)
            finally:
                self._conclude(ended, model, note)

    def abandon(self) -> None:
        """The interpreter is going down: let the run end now. Returns at once."""
        self._commands.is_stop_asked = True
        self._is_abandoned.set()

    def _launch(self, manifest: Manifest, validation: Manifest | None) -> None:
        n_rows, _ = self.job.model.table_shape(manifest.shape)
        optimizer = defaults.decided(self.job.optimizer, n_rows, self.job.model.n_touched(manifest.n_touched))
        self.job = self.run.job = dataclasses.replace(self.job, optimizer=optimizer)
        if chosen := defaults.told(self._left_open, self.job):
            self.run.telemetry.tell(0.0, chosen)
        launcher, log, job = self._services.launcher, self._services.log, self.job
        start_key = self._put_start()
        # With what reading the model may take, and removing the run's objects.
        spent_before = self._rates.requests_nusd(launcher.objects.gets + 6, launcher.objects.puts + 2)
        self._spent_before = spent_before
        self._check_budget(spent_before)
        cap = to_nusd(job.cap_usd) if job.cap_usd is not None else None
        log.create(cap_nusd=cap, reserved_nusd=self._money.least_nusd(spent_before))
        log.renew("driver", DRIVER_LEASE_S)
        told = invocations.invocations_of(
            job,
            manifest,
            validation,
            self._money,
            job_id=self.run.id,
            generation=log.generation,
            scatter_from=self._scatter_from(manifest),
            seed=job.seed,
            n_cores=launcher.n_cores,
            redis_urls=self._services.redis_urls,
            bus_url=self._services.bus_url,
            insecure=job.insecure,
            has_broker=self._services.has_broker,
            launched_at_s=log.now_s(),
            spent_before_nusd=spent_before,
            lifetime_s=launcher.lifetime_s,
            schedule=job.schedule,
            ends_settled=job.ends_settled,
            start_key=start_key,
        )
        self._invocation = told[0]
        self._record = Record(self.run.id)
        self._record.begin({"state": self.run.telemetry.state.to_json(), "cost": {}, "job": self._replayed()})
        self._launched_at = time.monotonic()
        launcher.invoke([invocation.encode().decode() for invocation in told])
        self._is_launched = True
        self._services.watch_functions(f"runs/{self.run.id}")

    def _put_start(self) -> str | None:
        """Store what the workers go on from; where, None of a run that goes on from none."""
        if self._start is None:
            return None
        key, start = checkpoint.start_key(self.run.id), self._start.progress
        self._services.launcher.objects.put(key, dataclasses.replace(start, owners=self._data.owners).encode())
        return key

    def _scatter_from(self, manifest: Manifest) -> int:
        """The workers from which on updates are scattered: as the job says, or where that promises to be quicker."""
        job, link = self.job, EMBEDDED_LINK
        if job.pattern == "auto" and self._services.embedded is None and not job.sync.staleness:
            link = pattern.probe(self._services.redis_urls[0])
        how = "broadcast" if job.sync.staleness else job.pattern
        return pattern.scatter_from(how, job.workers, *exchanged_bytes(job, manifest), *link)

    def _follow(self) -> Ended:
        """Turn what the supervisor sends into telemetry until its last word."""
        launcher, log = self._services.launcher, self._services.log
        paid_until_s = self._money.start_s + EXIT_S
        self._heard_at = renewed_at = looked_at = time.monotonic()
        while True:
            ended = self._hear(BUS_POLL_S)
            if ended is not None:
                return ended
            now = time.monotonic()
            if now - renewed_at > DRIVER_LEASE_S / 10:
                renewed_at = now
                log.renew("driver", DRIVER_LEASE_S)
            self._commands.resend(now, self._is_launched)
            if self._is_abandoned.is_set() or not threading.main_thread().is_alive():
                return self._abandon()
            is_starting = launcher.is_local and self.run.telemetry.state.n_workers_started < self.job.workers
            if is_starting and now - self._launched_at > paid_until_s - START_SLICE_S:
                if not log.reserve_start(self._money.slice_nusd(paid_until_s, START_SLICE_S)):
                    launcher.kill()
                    return self._give_up("the budget was used up before all functions had started", "capped")
                paid_until_s += START_SLICE_S
            if launcher.has_ended():
                return self._give_up("every function ended without a last word")
            if launcher.is_local and now - looked_at > LOST_POLL_S:
                teardown.notice_lost(self._services, self.job.workers, self.run.telemetry.state.step + 1)
                looked_at = now
            if now - self._heard_at > SILENCE_S:
                launcher.kill()
                return self._give_up(f"no word from the supervisor for {SILENCE_S:g} s")

    def _hear(self, timeout_s: float) -> Ended | None:
        """Take in what the supervisor sent; its last word when that is there."""
        for body in self._services.bus.receive("driver", timeout_s):
            self._heard_at = time.monotonic()
            try:
                message = Message.decode(body)
            except DecodeError:
                continue
            if isinstance(message, Ended):
                self._set_aside = self._spent_before
                return message
            if isinstance(message, Update):
                self._take(message)
        return None

    def _hear_out(self, patience_s: float) -> Ended | None:
        """The last word, if it comes before ``patience_s`` seconds without any."""
        self._heard_at = time.monotonic()
        while (ended := self._hear(patience_s)) is None and time.monotonic() - self._heard_at < patience_s:
            pass
        return ended

    def _take(self, update: Update) -> None:
        telemetry = self.run.telemetry
        rows = [row for row in itertools.starmap(Row, update.rows) if row.step > self._step_told]
        if rows:
            telemetry.append(record.to_array(rows))
            if self._record is not None:
                self._record.append(rows)
            last = rows[-1]
            self._step_told = last.step
            losses: dict[str, Any] = {"loss": last.loss}
            held_out = [row.validation_loss for row in rows if row.validation_loss is not None]
            if held_out:
                losses["validation_loss"] = held_out[-1]
            telemetry.update(**losses)
        if update.state:
            loss = update.state.get("best_loss")
            if loss is not None and self._start is not None and self._start.is_better(loss):
                for name in ("best_loss", "best_step", "best_epoch"):  # those of the earlier run stay
                    del update.state[name]
            telemetry.update(**update.state)
        if self._record is not None:
            self._record.append_events(update.decisions)
        for time_s, text in () if self._is_concluding else update.sentences:
            telemetry.tell(time_s, text)
        if update.done:
            self._commands.settle(update.done)

    def _replayed(self) -> dict[str, Any]:
        """What the decisions depend on beside the rows: see `mlless_nb.supervisor.policy.replay`."""
        return {
            "n_workers": self.job.workers,
            "n_cores": self._services.launcher.n_cores,
            "cap_usd": self.job.cap_usd,
            "stop": dataclasses.asdict(self.job.stop_rules),
            "scale_in": self.job.scale_in.to_json(),
            **dataclasses.asdict(Prices.of(self._rates)),
        }

    def _send(self, command: Command, pending: str) -> None:
        self._commands.send(command, pending)

    def _abandon(self) -> Ended:
        """The interpreter is going down: end the run now, in good order if that is quick."""
        reason = "the process that started the run ended"
        self._services.log.announce_stop("stopped", reason)
        give_up_at = time.monotonic() + 2.0
        while not self._services.launcher.has_ended() and time.monotonic() < give_up_at:
            time.sleep(0.02)
        self._services.launcher.kill()
        return self._give_up(reason, "stopped")

    # -- the end

    def _give_up(self, reason: str, status: str = "failed") -> Ended:
        """The last word where none came: what is on the bus, in the log and in the storage says how the run went.

        ``reason`` and ``status`` hold where they do not.
        """
        ended = self._hear_out(LAST_WORD_S)
        if ended is not None:
            return ended
        called_off: tuple[str, str] | None = None
        with contextlib.suppress(Exception):  # Redis may be what failed
            called_off = self._services.log.aborted()
        failure = self._failure(reason, status)
        if self._invocation is None:
            return failure
        try:
            ended = teardown.conclude(self._services, self._rates, self._invocation, called_off, failure)
            self._is_concluding = True
            self._hear_out(LAST_WORD_S)
        except Exception:
            return failure
        return ended

    def _failure(self, reason: str, status: str = "failed") -> Ended:
        """A last word from here, where the supervisor had none: the functions end, and are billed to this moment."""
        rates, state, n_workers = self._rates, self.run.telemetry.state, self.job.workers
        objects = self._services.launcher.objects
        costs = {"storage": rates.requests_nusd(objects.gets, objects.puts)}
        time_s = 0.0
        if self._launched_at:
            teardown.abort_functions(self._services, n_workers, reason, 2 * invocations.LEASE_S)
        if self._is_launched:
            time_s = time.monotonic() - self._launched_at
            costs = teardown.estimate_bill_nusd(self._services, rates, n_workers, time_s, state)
        return Ended(status, reason, state.step, None, None, costs, time_s)

    def _clean_up(self, ended: Ended) -> tuple[FittedModel | None, str]:
        """Fetch the model and remove everything else; returns the model and what to say."""
        model: FittedModel | None = None
        note = ""
        if self._is_launched:
            launcher, folder = self._services.launcher, f"runs/{self.run.id}"
            begun = "untrained" if self._start is None else "the one that it went on from"
            fetch = partial(teardown.fetch_model, launcher.objects, self.run.id, ended, self._begin, begun)
            kept, note = teardown.fetch_with_retries(fetch, launcher.place_of(folder))
            last = teardown.fetch_last(launcher.objects, ended)
            self._progress = last or kept
            model, self._last_model = self._fitted(kept), self._fitted(last)
            if model is not None and self._start is not None and self._start.is_better(ended.kept_loss):
                self._last_model, model = self._last_model or model, self._start.best
                self._is_best_earlier = True
                note = f"; nothing was better than what it went on from: its model is that of {self.run.resumed_from!r}"
                if ended.status == "failed":
                    self._progress = self._start.progress
        cap_usd = self.run.telemetry.state.budget_usd
        if ended.status == "capped" and cap_usd is not None:
            note = teardown.unspent(cap_usd, sum(self._costs_nusd(ended).values()), self._rates) + note
        # A model that could not be read is not to be lost: its objects stay.
        keep_objects = model is None if self._is_launched else self._start is None
        left = teardown.remove_all(self._services, None if keep_objects else partial(self._remove_objects, ended))
        state = dataclasses.replace(self.run.telemetry.state, status=ended.status, **self._losses(ended))
        if found_wanting := shortfall(state):
            self.run.telemetry.tell(ended.time_s, found_wanting[:1].upper() + found_wanting[1:])
        self.run.telemetry.tell(ended.time_s, f"{ended.status}: {ended.reason}{note}; {left}")
        return model, note

    def _remove_objects(self, ended: Ended) -> None:
        """Remove what the run has stored."""
        # Where the supervisor had the last word and nothing failed it is known what that is.
        is_known = self._set_aside > 0 and ended.status != "failed"
        objects, step = self._services.launcher.objects, ended.step if is_known else None
        checkpoint.remove(objects, self.run.id, step, self.job.checkpoint_every or 0)

    def _costs_nusd(self, ended: Ended) -> dict[str, int]:
        """The bill by component; of the requests that were set aside only those count that were made."""
        costs, objects = dict(ended.costs_nusd), self._services.launcher.objects
        if self._set_aside:
            made = self._rates.requests_nusd(objects.gets, objects.puts)
            costs["storage"] -= max(self._set_aside - made, 0)
        return costs

    def _losses(self, ended: Ended) -> dict[str, Any]:
        """Fields of the run's state that tell how good its last model is, and the one that it returns."""
        losses: dict[str, Any] = {}
        if ended.validation_loss is not None:
            losses["validation_loss"] = ended.validation_loss
        if self._is_best_earlier and self._start is not None:
            losses |= {"best_loss": self._start.best_loss, "best_step": 0, "best_epoch": 0.0}
        elif ended.kept_loss is not None:
            history = self.run.history
            epochs = history["epoch"][history["step"] == ended.kept_step]
            losses |= {"best_loss": ended.kept_loss, "best_step": ended.kept_step}
            losses["best_epoch"] = float(epochs[0]) if len(epochs) else None
        return losses

    def _begin(self) -> Progress:
        """What the workers began with."""
        if self._start is not None:
            return self._start.progress
        return Progress(self.job.model.init(self._data.shape, self._data.mean, self.job.seed))

    def _fitted(self, progress: Progress | None) -> FittedModel | None:
        """The model that a person gets of it."""
        if progress is None:
            return None
        return self._data.restored(self.job.model.fitted(progress.params, self._data.shape, self._data.mean))

    def _conclude(self, ended: Ended, model: FittedModel | None, note: str) -> None:
        """Keep the record and let those who wait go on."""
        cost = Cost(**{name: nusd / NUSD for name, nusd in self._costs_nusd(ended).items()})
        changes: dict[str, Any] = {
            "status": ended.status,
            "reason": ended.reason + note,
            "step": ended.step,
            "time_s": ended.time_s,
            "rate_usd_s": 0.0,
            **self._losses(ended),
        }
        try:
            if self._record is not None:
                kept = model, self._last_model, cost, self._replayed(), self._progress
                resume = summary(self.job, self._data, changes.get("best_loss"))
                teardown.keep(self._record, self.run.telemetry, changes, *kept, resume)
        finally:
            self.run._end(model, cost, last=self._last_model, **changes)
