"""The end of a run: fetches its model, removes everything else, writes its record, and wakes threads that wait."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from ...bus.messages import Ended
from ...exchange import FROM_THE_START, SUPERVISOR, LostData
from ...exchange.storage.coordinator import StorageCoordinator
from ...exchange.stores import store_kind
from ...exchange.stores.base import STORAGE
from ...job.baseline import shortfall
from ...job.execution import WORKERS
from ...job.job import TrainingJob
from ...models import FittedModel
from ...money import Cost, Rates, StoreUse
from ...money.cost import cut
from ...money.meter import to_nusd
from ...storage import run_objects
from ...storage.checkpoint import Progress
from ...telemetry.record import Record
from ...tracking import Tracker
from ..backends.exits import EXIT_S
from ..launch.data_preparation import JobData
from ..launch.resumption import Start, summary
from ..run import TrainingRun
from ..servers.services import Services
from . import teardown
from .final_bill import as_lived


class Conclusion:
    """The end of one run, after its final message.

    Parameters
    ----------
    ended : Ended
        The final message.
    job : TrainingJob
    run : TrainingRun
    data : JobData
    services : Services
    rates : Rates
    start : Start or None
        The start of a resumed run.
    is_launched : bool
        Whether functions were invoked.
    set_aside_nusd : int
        Nano-dollars in the bill for the driver's own requests, estimated before the launch; 0 if they were counted.

    Attributes
    ----------
    note : str
        A text to append to the reason.
    """

    def __init__(
        self,
        ended: Ended,
        job: TrainingJob,
        run: TrainingRun,
        data: JobData,
        services: Services,
        rates: Rates,
        start: Start | None,
        *,
        is_launched: bool,
        set_aside_nusd: int,
    ) -> None:
        self._ended, self._job, self._run, self._data, self._services = ended, job, run, data, services
        self._rates, self._start = rates, start
        self._is_launched, self._set_aside_nusd = is_launched, set_aside_nusd
        self._model: FittedModel | None = None
        self._last_model: FittedModel | None = None  # if it is not the returned model
        self._progress: Progress | None = None  # needed to resume from this run
        self._told_nusd = 0  # what the functions say that their requests cost; 0 if it is not known
        self._is_best_earlier = False  # whether the returned model is the earlier run's
        self.note = ""

    def clean_up(self) -> None:
        """Fetch the model and remove everything else. An error is added to ``note``, and there is no model then."""
        try:
            self._clean_up()
        except Exception as error:
            self._model, self.note = None, f"; cleaning up failed: {type(error).__name__}: {error}"

    def _clean_up(self) -> None:
        ended, telemetry = self._ended, self._run.telemetry
        note = self._fetch_models() if self._is_launched else ""
        # Objects of a model that could not be read stay, so that it is not lost.
        keep_objects = self._model is None if self._is_launched else self._start is None
        remove_objects = None if keep_objects else self._remove_objects
        outcome, left = teardown.remove_all(self._services, self._run.id, remove_objects)
        self._services.has_left, self._services.keeps_objects = outcome != teardown.ALL_DOWN, keep_objects
        telemetry.update(left=left)
        cap_usd = telemetry.state.budget_usd
        if ended.status == "capped" and cap_usd is not None:
            note = teardown.unspent(cap_usd, sum(self._costs_nusd.values()), self._rates) + note
        state = dataclasses.replace(telemetry.state, status=ended.status, **self._losses)
        if found_wanting := shortfall(state):
            telemetry.add_event(ended.time_s, found_wanting[:1].upper() + found_wanting[1:])
        telemetry.add_event(ended.time_s, f"{_headline(ended.status, ended.reason)}{note}. {outcome}")
        self.note = note

    def _fetch_models(self) -> str:
        """Fetch the model that is returned, and the last one; returns a note on them."""
        ended, start, objects = self._ended, self._start, self._services.launcher.objects
        begun = "untrained" if start is None else "the one that it went on from"
        fetch = partial(teardown.fetch_model, objects, self._run.id, ended, self._begin, begun)
        kept, note = teardown.fetch_with_retries(fetch, self._services.launcher.place_of(f"runs/{self._run.id}"))
        last, missing = teardown.fetch_last(objects, ended)
        note += missing
        self._progress = last or kept
        self._model, self._last_model = self._fitted(kept), self._fitted(last)
        if self._model is not None and start is not None and start.is_better(ended.kept_loss):
            self._last_model, self._model = self._last_model or self._model, start.best
            self._is_best_earlier = True
            earlier = self._run.resumed_from
            note = f"; no better model was found than that of {earlier!r}, which is returned"
            if ended.status == "failed":
                self._progress = start.progress
        return note

    def _remove_objects(self) -> None:
        """Remove the run's objects; functions of this machine have ended, and others are waited for."""
        if isinstance(log := self._services.log, StorageCoordinator) and self._services.tally is None:
            with contextlib.suppress(Exception):  # the bill is then as they have reported
                self._told_nusd = log.hear_requests([SUPERVISOR, *range(self._job.workers)], self._rates.requests_nusd)
        # If the supervisor sent the final message, nothing failed and nothing was interrupted, the objects are known.
        is_known = self._set_aside_nusd > 0 and self._ended.status in ("finished", "stopped")
        is_known = is_known and not any(slot == SUPERVISOR for slot, _ in self._ended.unheard)
        is_known = is_known and not self._job.checkpoint_every and not self._has_checkpoints()
        run_objects.remove(self._services.launcher.objects, self._run.id, is_known=is_known)

    def _has_checkpoints(self) -> bool:
        """Whether workers may have stored their states: for a checkpoint, as the run was aborted, or nobody knows."""
        log = self._services.log
        try:
            if log.aborted() is not None:
                return True
            return bool(log.read_plan().checkpoint) or log.restart() != FROM_THE_START
        except LostData:
            return True

    @cached_property
    def _costs_nusd(self) -> dict[str, int]:
        """The bill by component, with the driver's requests as counted instead of as estimated."""
        costs, objects = dict(self._ended.costs_nusd), self._services.launcher.objects
        made = self._rates.requests_nusd(objects.gets, objects.puts)
        if self._services.tally is not None:
            # Told as storage are also what lost functions have requested of another frame store, which is not counted.
            least = costs["storage"] if self._store_component not in ("", STORAGE) else 0
            costs["storage"] = max(self._rates.requests_nusd(*self._services.tally.counts()) + made, least)
        elif self._set_aside_nusd:
            # It was more than enough, or requests were added while the run went on, or to end without the supervisor.
            costs["storage"] = max(costs["storage"] - self._set_aside_nusd + made, 0)
        if self._told_nusd:
            component = self._store_component
            others = costs.get(component, 0) if component not in ("", STORAGE) else 0
            least = costs["storage"] if self._set_aside_nusd else 0  # else it is an estimate
            costs["storage"] = max(self._told_nusd + made - others, least)
        if self._is_launched:
            self._services.launcher.exits.wait(EXIT_S)
            costs = as_lived(costs, self._services.launcher.exits, self._rates)
        # Lost functions are billed all that was granted.
        cap_usd = self._run.telemetry.state.budget_usd
        return cut(costs, None if cap_usd is None else to_nusd(cap_usd))

    @property
    def _store_component(self) -> str:
        """The component of the frame store's requests, "" if they are free."""
        store = store_kind(self._job.store)
        return store.component if store is not None else ""

    @property
    def _losses(self) -> dict[str, Any]:
        """Fields of the run's state: the losses of its last model and of the returned one."""
        ended = self._ended
        losses: dict[str, Any] = {}
        if ended.validation_loss is not None:
            losses["validation_loss"] = ended.validation_loss
        if self._is_best_earlier and self._start is not None:
            losses |= {"best_loss": self._start.best_loss, "best_step": 0, "best_epoch": 0.0}
        elif ended.kept_loss is not None:
            history = self._run.history
            epochs = history["epoch"][history["step"] == ended.kept_step]
            losses |= {"best_loss": ended.kept_loss, "best_step": ended.kept_step}
            losses["best_epoch"] = float(epochs[0]) if len(epochs) else None
        return losses

    def _begin(self) -> Progress:
        """The progress that the workers started from."""
        if self._start is not None:
            return self._start.progress
        return Progress(self._data.first)

    def _fitted(self, progress: Progress | None) -> FittedModel | None:
        """The fitted model of ``progress``, in the data's own units."""
        if progress is None:
            return None
        return self._data.restored(self._job.model.fitted(progress.params, self._data.shape, self._data.mean))

    def publish(
        self, record: Record | None, replayed: dict[str, Any], settle: Callable[[int], None], tracker: Tracker
    ) -> None:
        """Write the record, with ``replayed`` for replays, and end the run for threads that wait for it.

        Before these go on, ``settle`` is called with the bill, nano-dollars, and the end is entered by ``tracker``.
        """
        ended, run = self._ended, self._run
        place = self._job.store.partition("://")[0] if self._job.execution == WORKERS else STORAGE
        store = StoreUse.of(place, ended.store_use, self._rates)
        cost = Cost.of_nusd(self._costs_nusd, store)
        changes: dict[str, Any] = {
            "status": ended.status,
            "reason": ended.reason + self.note,
            "step": ended.step,
            "time_s": ended.time_s,
            "rate_usd_s": 0.0,
            **self._losses,
        }
        try:
            if record is not None:
                kept = self._model, self._last_model, cost, replayed, self._progress
                resume = summary(self._job, self._data, changes.get("best_loss"))
                teardown.keep(record, run.telemetry, changes, *kept, resume)
        finally:
            settle(sum(self._costs_nusd.values()))
            tracker.end(run.job or self._job, {**run.telemetry.state.to_json(), **changes}, cost.total)
            run._end(self._model, cost, last=self._last_model, **changes)


def _headline(status: str, reason: str) -> str:
    """How a run ended, for the last event: ``Stopped by you``, ``Finished: 25 epochs are done``."""
    word = {"capped": "budget reached"}.get(status, status)
    text = reason if reason.startswith(word) else f"{word}: {reason}"
    return text[:1].upper() + text[1:]
