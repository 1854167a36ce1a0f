"""Checkpoints of a running worker: what it stores, when, and how a worker goes on from them.

All workers store their state after the same step, each its own part (`storage.worker_state`). The supervisor announces
the step in the plan, or the job sets an interval. A part is encoded between two steps and stored by a thread. A worker
waits for that before it takes steps that are further from the checkpoint before than the interval that is promised.
Where steps do not wait for all workers, one that would be so far waits for those that have no newer checkpoint yet.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable

from ..bus.messages import Invocation
from ..errors import DecodeError, ServiceError
from ..exchange import FROM_THE_START, LostData, Restart
from ..storage.objects import ObjectStore
from ..storage.run_objects import KEPT, Checkpoint, interrupted_key, part_key
from ..storage.worker_state import WorkerState
from .membership import Membership

#: Tries to read a part, and to store one at the end of training.
TRIES = 3
#: Seconds between two tries to store a part, the last one again and again.
PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
#: Longest wait for a part, seconds: a fourth of the time after which peers give up a round.
PATIENCE_S = 30.0


def spacing(interval: int) -> int:
    """Steps from one checkpoint to the next where at most ``interval`` are to be lost: a fifth is for the writes."""
    return interval - interval // 5


class Checkpoints:
    """The checkpoints of one worker.

    Parameters
    ----------
    invocation : Invocation
    objects : ObjectStore
    membership : Membership
        Has the plan.
    can_pay : callable
        Whether one more write to the storage is paid for. For any thread.
    is_lockstep : bool
        Whether a step is complete only when all workers have come to it.
    in_background : bool
        Whether a part is stored by a thread, while training goes on.
    is_on : bool
        Whether there are any checkpoints.
    restart : Restart
        The one after which this worker takes its steps; its number is kept as an attribute.
    """

    def __init__(
        self,
        invocation: Invocation,
        objects: ObjectStore,
        membership: Membership,
        can_pay: Callable[[], bool],
        *,
        is_lockstep: bool = True,
        in_background: bool = True,
        is_on: bool = True,
        restart: Restart = FROM_THE_START,
    ) -> None:
        self._job_id, self._slot, self._interval = invocation.job_id, invocation.slot, invocation.checkpoint_every
        self._every = spacing(self._interval)
        self._objects, self._membership, self._can_pay = objects, membership, can_pay
        self._stored: deque[int] = deque()  # steps, oldest first
        self._writer: threading.Thread | None = None
        # Steps: of the newest part, the last one without it, and that from which this worker goes on.
        self._newest = self._last = self._begun_after = restart.step
        # The step before which this worker waits until that part is stored, and that which all come to by the last one.
        self._stored_by, self._whole_from = math.inf, restart.step + 1
        self._is_ending = threading.Event()
        self._is_lockstep, self._in_background, self._is_on = is_lockstep, in_background, is_on
        self.number = restart.number

    def is_due(self, step: int) -> bool:
        """Whether every worker stores its state after ``step``."""
        if not self._is_on:
            return False
        return self._membership.plan.is_checkpoint(step) or (self._every > 0 and step % self._every == 0)

    @property
    def is_writing(self) -> bool:
        """Whether a part is being stored."""
        return self._writer is not None and self._writer.is_alive()

    def store(self, state: WorkerState, passed: int, *, is_needed: bool = False) -> None:
        """Begin to store ``state`` once the part before is stored, unless the budget does not pay for it.

        A worker that left one out would have parts of other steps than its peers, and no checkpoint would be whole. But
        peers do not wait without end: after `PATIENCE_S` it is left out. ``is_needed``: somebody waits for it, so that
        it is stored in any case.

        ``passed`` is the newest step that all workers have taken. Parts of later ones are kept beside the `KEPT` newest
        up to it: a worker that is many steps behind stores its own of them later.
        """
        self._join(None if is_needed else PATIENCE_S)
        if not is_needed and (self.is_writing or not self._can_pay()):
            return
        by_time = state.step - self._newest + (state.step - self._newest) // 4
        last = self._newest + (self._interval or by_time)
        # Where some workers are behind, the checkpoint before may not be whole yet, and must not be lost sight of.
        is_due_before = not self._is_lockstep and state.step <= self._last
        self._newest, self._last = state.step, min(last, self._last) if is_due_before else last
        # The rest of the steps is for those that are behind. A successor does not know how far its peers have stored.
        self._whole_from = self._newest + (1 if is_needed else max((self._last - self._newest) // 2, 1))
        self._stored_by = self._last + 1 if self._is_lockstep else self._whole_from
        blob = state.encode()
        arguments = (state.step, blob, passed, TRIES if is_needed else 1)
        if not self._in_background:
            self._write(*arguments)
            return
        self._writer = threading.Thread(target=self._write, args=arguments, name="mlless-checkpoint", daemon=True)
        self._writer.start()

    def await_part(self, step: int, *, leaves: bool = False) -> None:
        """Wait until the newest part is stored, if ``step`` is further from the part before than may be lost.

        That is the job's interval, or, where checkpoints come by time only, one and a fourth of the steps between the
        two. No step of lockstep workers is complete before all have come to it: then the newest checkpoint is whole.
        After `PATIENCE_S` the step is taken. A worker that ``leaves`` waits before it hands over: its peers go on then.
        """
        if leaves or step >= self._stored_by:
            self._join(PATIENCE_S)
            self._stored_by = math.inf

    def most_behind(self, step: int) -> int:
        """How many steps a worker may be behind ``step`` for that to be complete, if it need not have come to it.

        No more steps than `await_part` says are then complete without a newer checkpoint that is whole.
        """
        return step - self._whole_from if step > self._last else step

    def _join(self, seconds: float | None) -> None:
        if self._writer is not None:
            self._writer.join(seconds)

    def _write(self, step: int, blob: bytes, passed: int, n_paid: int) -> None:
        self._membership.settle_steps()
        if not self._put(self._key(step), blob, n_paid):
            return  # without this part the checkpoint is not complete, and an older one counts
        self._stored.append(step)
        while sum(stored <= passed for stored in self._stored) > KEPT:
            with contextlib.suppress(ServiceError, OSError):
                self._objects.delete([self._key(self._stored.popleft())])

    def _put(self, key: str, blob: bytes, n_paid: int) -> bool:
        """Store ``blob``, again and again for `PATIENCE_S` if that is refused and paid for; whether it is stored.

        Nobody is asked whether the first ``n_paid`` tries are paid for.
        """
        give_up_at = time.monotonic() + PATIENCE_S
        for n_tried in itertools.count(1):
            with contextlib.suppress(ServiceError, OSError):
                self._objects.put(key, blob)
                break
            pause_s = PAUSES_S[min(n_tried, len(PAUSES_S)) - 1]
            is_late = self._is_ending.wait(pause_s) and n_tried >= TRIES
            if is_late or time.monotonic() > give_up_at or (n_tried >= n_paid and not self._may_pay()):
                return False
        return True

    def _may_pay(self) -> bool:
        """As `can_pay`; False if nobody says so."""
        with contextlib.suppress(Exception):  # the training thread meets the same error, and says so
            return self._can_pay()
        return False

    def _key(self, step: int) -> str:
        return part_key(self._job_id, Checkpoint(self.number, step), self._slot)

    def keep_interrupted(self, step: int, make_state: Callable[[], WorkerState]) -> None:
        """Store the state after ``step`` of a run that was aborted, if that is not the one that it went on from."""
        with contextlib.suppress(Exception):  # the run has its reason to end already
            self.close()
            if self._is_on and step > self._begun_after and self._can_pay():
                self._objects.put(interrupted_key(self._job_id, self._slot), make_state().encode())

    def close(self) -> None:
        """Wait until what was begun is stored, or refused."""
        self._is_ending.set()
        self._join(None)

    def load(self, restart: Restart) -> dict[int, WorkerState]:
        """The parts of the checkpoint of ``restart`` that this worker needs, by slot: its own, or all if they share.

        Raises
        ------
        LostData
            A part is missing or damaged.
        """
        checkpoint = Checkpoint(restart.origin, restart.step)
        own = self._part(checkpoint, self._slot)
        slots = own.active if own.common else [self._slot]
        return {slot: own if slot == self._slot else self._part(checkpoint, slot) for slot in slots}

    def _part(self, checkpoint: Checkpoint, slot: int) -> WorkerState:
        key = part_key(self._job_id, checkpoint, slot)
        for left in reversed(range(TRIES)):
            try:
                return WorkerState.decode(self._objects.get(key))
            except (DecodeError, KeyError, ServiceError) as error:
                if not left:
                    raise LostData(f"{key} cannot be read: {type(error).__name__}: {error}") from None
        raise AssertionError
