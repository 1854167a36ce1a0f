"""How a run ended: derived from the workers' final messages, the reason of an abort, and the stored blobs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from ..bus.messages import Failed, Invocation, Left
from ..errors import ServiceError
from ..exchange import Plan
from ..models import Model
from ..storage import run_objects
from ..storage.objects import ObjectStore
from .step_rows import mean_loss
from .worker_watch import WorkerWatch

#: The reason if no worker is left to report one.
LOST = "every worker was lost"
#: The reason of a worker that has ended and whose final message was not heard.
UNHEARD = "left before"


class KeptModel(NamedTuple):
    """Keys of the model that the run returns and of the last model if they differ; step and loss of the former.

    ``last_step``: the latest step of a stored model, where no worker has told its own; 0 else.
    """

    model_key: str | None
    last_key: str | None = None
    step: int | None = None
    loss: float | None = None
    last_step: int = 0


class Ending:
    """The end of one run.

    Parameters
    ----------
    invocation : Invocation
        The supervisor's.
    model : Model
    objects : ObjectStore
    workers : WorkerWatch
    judge : callable
        Returns status and reason if no worker reports how the run ended.

    Attributes
    ----------
    status, reason : str
    was_aborted : bool
        Whether an abort decided how the run ended.
    validation_loss : float or None
        Of the last model, on all held-out rows.
    merged_bytes : int
        Bytes that the workers wrote after the last step.
    """

    def __init__(
        self,
        invocation: Invocation,
        model: Model,
        objects: ObjectStore,
        workers: WorkerWatch,
        judge: Callable[[], tuple[str, str]],
    ) -> None:
        self._job, self._model, self._objects = invocation, model, objects
        self._closing = [one for one in workers.ended.values() if isinstance(one, Left) and one.status != "left"]
        aborted = workers.aborted
        # All workers share one verdict: a worker lost afterwards invalidates neither it nor the stored model.
        judged = [one for one in self._closing if one.status != "failed" and (one.status, one.reason) != aborted]
        verdicts = [(one.status, one.reason) for one in judged or self._closing]
        # If the budget is used up, nothing pays for looking.
        if aborted is not None and (judged or aborted[0] == "failed") and self._is_model_stored():
            verdicts = verdicts if judged else [judge()]  # nobody is left who could say so
            aborted = aborted if verdicts[0][1] == LOST else None
        elif aborted is None and judged and self._lacks_any(workers) and not self._is_model_stored(if_unknown=True):
            verdicts = [judge()]  # who was to store it was lost
        self.status, self.reason = aborted or (verdicts[0] if verdicts else judge())
        self.was_aborted = aborted is not None
        self.validation_loss: float | None = None
        unheard = [one for one in workers.ended.values() if one.reason == UNHEARD and one.step == 0]
        if workers.have_all_ended and not unheard:  # else the loss would be that of only some of the rows
            sums = [one.validation_sum for one in self._closing]
            self.validation_loss = mean_loss(model, sums, [one.validation_count for one in self._closing])
        self.merged_bytes = sum(message.merged_bytes for message in self._closing)

    @property
    def has_failed(self) -> bool:
        """Whether the run has no last model whose validation loss could be reported."""
        return self.status == "failed" or self.was_aborted

    def kept_model(self) -> KeptModel:
        """The stored models of the run.

        The newest checkpoint, if the run was aborted or its loss diverged before there was a best model.
        """
        job_id, kept_step = self._job.job_id, max((one.kept_step for one in self._closing), default=0)
        # By the workers' own words: rows may be missing.
        last_step = max((one.step for one in self._closing), default=0)
        if not self.was_aborted and kept_step and (self.status != "failed" or kept_step < last_step):
            sums = [one.kept_sum for one in self._closing]
            loss = mean_loss(self._model, sums, [one.kept_count for one in self._closing])
            has_last = self.status != "failed" and kept_step < last_step
            last_key = run_objects.last_key(job_id) if has_last else None
            return KeptModel(run_objects.model_key(job_id), last_key, kept_step, loss)
        try:
            found = run_objects.newest(self._objects, job_id)
        except ServiceError:
            found = None  # the driver looks again
        if found is None:
            return KeptModel(None)
        return KeptModel(found.key, found.last_key, last_step=found.last_step)

    @staticmethod
    def _lacks_any(workers: WorkerWatch) -> bool:
        """Whether a worker has not said how it ended."""
        ends = workers.ended.values()
        return not workers.have_all_ended or any(isinstance(one, Failed) or one.reason == UNHEARD for one in ends)

    def _is_model_stored(self, *, if_unknown: bool = False) -> bool:
        with contextlib.suppress(ServiceError):
            return run_objects.is_model_stored(self._objects, self._job.job_id)
        return if_unknown


def judged(job_id: str, plan: Plan, step: int, objects: ObjectStore) -> tuple[str, str]:
    """How a run ended after ``step`` whose workers' final messages were not heard: by its plan or its model."""
    if plan.stop_after is not None and step >= plan.stop_after:
        return plan.stop_status, plan.stop_reason
    # All steps are of no use without their model, which is stored last, and outlives a lost plan and step log.
    found = run_objects.newest(objects, job_id)
    return ("failed", LOST) if found is None or found.progress.verdict is None else found.progress.verdict
