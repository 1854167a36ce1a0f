"""The end of training: which model a run returns, and who stores it."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable

from ..bus.messages import Invocation
from ..errors import ServiceError
from ..exchange import LostData
from ..job.stop_rules import Verdict
from ..redaction import scrubbed
from ..storage import run_objects
from ..storage.objects import ObjectStore
from .best_replica import BestReplica
from .evaluation import ROW_SHARE, HeldOut
from .reintegration import Reintegration
from .replica import Float32, Replica

#: Assumed speed of storing a model until it has been measured, bytes/s.
PUT_BYTES_S = 25e6
#: Pauses before storing a model is tried again, seconds.
PUT_PAUSES_S = (0.1, 0.3, 1.0, 3.0)
#: The step of the model that is returned, and the loss sum and row count of its evaluation in this worker.
Kept = tuple[int, float, float]


class FinalModel:
    """What one worker stores, and its part in choosing the model that the run returns.

    Parameters
    ----------
    invocation : Invocation
    objects : ObjectStore
    replica : Replica
    best : BestReplica
    held_out : HeldOut
    handing_over : Reintegration
    check_run : callable
        Raises `LostData` if the run's data is gone.
    clock : callable
        Wall time, seconds.
    """

    def __init__(
        self,
        invocation: Invocation,
        objects: ObjectStore,
        replica: Replica,
        best: BestReplica,
        held_out: HeldOut,
        handing_over: Reintegration,
        check_run: Callable[[], object],
        clock: Callable[[], float],
    ) -> None:
        self._job_id, self._slot = invocation.job_id, invocation.slot
        self._objects, self._replica, self._best, self._held_out = objects, replica, best, held_out
        self._handing_over, self._check_run, self._clock = handing_over, check_run, clock
        # When this worker was last asked, so before its newest step: a lease later the run may be over.
        self._lease_s, self._at_work_s = invocation.lease_s, time.monotonic()
        self._put_s = replica.params.nbytes / PUT_BYTES_S  # longest time that storing a model took so far

    def exit_s(self, active: list[int], quickest_s: float) -> float:
        """Seconds to reserve for a regular end: two evaluations, and storing the models on the worker that does so.

        To be asked before each step. ``quickest_s`` is the shortest computation time of a step so far.
        """
        self._at_work_s = time.monotonic()
        evaluating_s = self._held_out.seconds
        if evaluating_s is None:  # estimate it: a held-out row takes `ROW_SHARE` of a training row's time
            evaluating_s = ROW_SHARE * len(self._held_out.share(active)) * quickest_s
        if self._slot != active[0]:
            return 2 * evaluating_s
        # The last model, with the workers' state, and the best one.
        n_state = self._replica.n_state_tables * (len(active) if self._replica.is_state_local else 1)
        return 2 * evaluating_s + (2 + n_state) * self._put_s

    def n_puts(self, active: list[int]) -> int:
        """Writes to the storage that may still be made: two models."""
        return 2 if self._slot == active[0] else 0

    def finish(self, verdict: Verdict, step: int, active: list[int], weight: float) -> tuple[tuple[float, float], Kept]:
        """Evaluate for the last time, and store the models if this is the first active worker.

        Returns this worker's sums for the last model, and `Kept` for the model that the run returns. ``weight`` is this
        worker's weight in the average of the optimiser's state.
        """
        sums = kept_sums = self._held_out.evaluate(active)
        kept_step, has_ended_well = step, verdict.status != "failed"
        state: list[Float32] = []
        if has_ended_well:
            state = self._handing_over.state(step, active, weight)
        if self._best.step is not None:
            loss = self._handing_over.loss("e", step, active, sums)
            if not has_ended_well or not loss < self._best.loss:
                if has_ended_well:
                    self._store(run_objects.last_key(self._job_id), step, active, state, verdict)
                kept_step, kept_sums = self._go_back_to_best(step, active, loss) or (kept_step, kept_sums)
        if has_ended_well or kept_step < step:
            state = state if kept_step == step else []
            self._store(run_objects.model_key(self._job_id), step, active, state, verdict)
        return sums, (kept_step, *kept_sums)

    def _go_back_to_best(self, step: int, active: list[int], loss: float) -> tuple[int, tuple[float, float]] | None:
        """Make the best replica the model and evaluate it; returns its step and its sums.

        Under ISP each replica differs a little from the common parameters, so the snapshot with the best validation
        loss may, once all residuals are applied, be no better than the last model, whose loss is ``loss``. Then the
        last model stays, and None is returned.
        """
        self._best.swap()
        self._handing_over.end_best(step, active)
        sums = self._held_out.evaluate(active)
        if self._handing_over.loss("f", step, active, sums) >= loss:
            self._best.swap()
            return None
        return self._best.step or 0, sums

    def _store(self, key: str, step: int, active: list[int], state: list[Float32], verdict: Verdict) -> None:
        """Store the model, the optimiser's ``state`` and the ``verdict`` under ``key`` if this is the first worker.

        One that was paused for longer than its lease may store it after the run has ended, and nobody removes it then.
        """
        if self._slot != active[0] or not self._replica.is_finite:
            return
        ended = verdict.status, scrubbed(verdict.reason)
        self._put(key, dataclasses.replace(self._replica.progress(step, state), verdict=ended).encode())
        if time.monotonic() - self._at_work_s > self._lease_s:
            try:
                self._check_run()
            except LostData:
                self._objects.delete([key])
                raise

    def _put(self, key: str, blob: bytes) -> None:
        for pause_s in PUT_PAUSES_S:
            with contextlib.suppress(ServiceError):
                self._objects.put(key, blob)
                return
            time.sleep(pause_s)
        self._objects.put(key, blob)
