"""The coordinator in the object storage, for jobs without a server: see the package.

How workers learn of the plan in time: the state says for which steps workers have seen it (``latest``). A worker that
arrives at a later step reads the state, and raises ``latest``; all that is announced takes effect after it. Raising it
by several steps at once saves requests, and a stop takes effect so many steps later.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from ...money.request import NO_REQUEST
from ...storage.conditional import Conditional
from ..frame_count import FrameCount
from ..in_parts import exchange_in_parts
from ..protocol import (
    MODEL,
    WAIT_POLL_S,
    Arrival,
    Closing,
    Exchanged,
    Frame,
    FrameKey,
    RoundRequest,
    frame_key,
)
from ..restarts import FROM_THE_START, Aborted, Fenced, Restart, Restarted, RoundEnded, rounds_prefix
from ..standing import NO_PAST, Past
from ..step_report import LateArrival, StepEntry
from ..stores.storage import StorageStore
from .books import Books
from .leases import SHARE
from .quorum import Quorum, QuorumState
from .rounds import StorageRounds
from .state import JobState

#: Seconds of the first and of the longest pause between two looks for a frame: on this machine, and elsewhere.
LOCAL_PAUSES_S, PAUSES_S = (0.0002, 0.01), (0.02, 0.3)
#: Most steps for which workers see the plan at once, and most seconds that these steps take.
MOST_AHEAD, AHEAD_S = 8, 0.05
#: Most requests that a worker makes beside its work.
MOST_ASIDE = 4


class StorageCoordinator(Books):
    """See `Coordinator`. The methods of a round, and `read_steps`, are for one thread, the others for any.

    Parameters
    ----------
    storage : Conditional
    store : StorageStore
        Of the same storage; keeps the frames, and counts the requests.
    generation : str
        Names this start of the job: arrivals of functions from an earlier start are refused.
    nonce : str
        Identifies this invocation: arrivals of a duplicate of it are refused.
    freshness_s : float
        Seconds that what was read of the budget, an abort or a lease is taken for current. Requests cost money.
    looks_ahead : bool
        Whether workers see the plan for several steps at once.
    """

    def __init__(
        self,
        storage: Conditional,
        store: StorageStore,
        generation: str,
        nonce: str = "",
        *,
        freshness_s: float = 0.0,
        looks_ahead: bool = False,
    ) -> None:
        super().__init__(storage, store, generation, nonce, freshness_s)
        self._looks_ahead = looks_ahead
        self._rounds = StorageRounds(store, LOCAL_PAUSES_S if storage.has_local_objects else PAUSES_S)
        self._known: JobState | None = None  # the state as this worker saw it last
        self.join(FROM_THE_START)
        self._logged = 0  # the newest step that this worker has logged
        self._arrived_at, self._step_s = 0.0, 0.0
        self._beside: ThreadPoolExecutor | None = None
        self._begun: deque[Future[object]] = deque()

    def create(self, *, cap_nusd: int | None, reserved_nusd: int, past: Past = NO_PAST) -> None:
        """See `Coordinator`."""
        self._store.create()
        restart = past.restart
        self._quorum_of(restart).cell.create(QuorumState(restart.step))
        state = JobState(generation=self.generation, restart=restart, latest=restart.step, plan=past.plan)
        state.cap, state.reserved = cap_nusd, reserved_nusd
        for entry in past.steps:
            self._steps.put(entry)
        self._state.create(state)

    def join(self, restart: Restart) -> None:
        """See `Coordinator`."""
        self._restart, self._known = restart.number, None
        self._quorum = self._quorum_of(restart)
        self._rounds.join(restart)
        self._prefix = rounds_prefix(self._store.prefix, restart)

    def _quorum_of(self, restart: Restart) -> Quorum:
        return Quorum(self._storage, f"{self._folder}quorum{restart.number}", self._steps, self._nonce, self._note)

    def roll_back(self, known: Restart, step: int, replaced: list[int], n_workers: int, origin: int = 0) -> Restart:
        """See `Coordinator`."""
        # It is there before a worker looks for it. Only the driver restarts a run, so nobody uses it yet.
        self._quorum_of(Restart(known.number + 1)).cell.create(QuorumState(step))
        return super().roll_back(known, step, replaced, n_workers, origin)

    def close(self) -> None:
        """Finish what was begun, and release the connections. Idempotent."""
        beside, self._beside = self._beside, None
        if beside is not None:
            beside.shutdown()
        self._store.close()

    # -- worker

    def frame_count(self) -> FrameCount:
        """See `CountsFrames`."""
        return self._store.frame_count()

    def publish(self, part: RoundRequest) -> Arrival:
        """See `Coordinator`."""
        return self._publish(part)

    def _publish(self, part: RoundRequest, *, is_exchange: bool = False) -> Arrival:
        """Publish. What can wait until the round is complete is left to the rest of an exchange."""
        self._leases.renew(str(part.slot), part.lease_s, SHARE)
        is_new = self._known is None
        granted = self._learn(part) if is_new else 0  # whether this invocation may publish at all
        if part.report is not None:
            self._measure()
        # The first publisher raises ``latest`` before its frame can be read: who has read it need not do so, too.
        is_first = part.slot == part.publishers[0]
        if is_first and not is_new:
            granted = self._learn(part)
        try:
            if part.is_awaited:
                self._rounds.put(part)
            if not is_first and (not is_exchange or part.wanted.nusd > 0):
                granted = self._learn(part)
            closing, read_step = None, 0
            if part.quorum:
                closing, read_step = self._quorum.arrive(part)
            is_complete = closing is not None if part.quorum else self._rounds.has_all(part)
            if is_complete and not part.quorum and not is_exchange:
                self._complete(part)
            self._rounds.drop(part)
            answer = self._answer(part)
        except RoundEnded as error:
            error.keep_grant(granted)
            raise
        return answer._replace(is_complete=is_complete, granted_nusd=granted, closing=closing, read_step=read_step)

    def _measure(self) -> None:
        """Take the time of a step."""
        now = time.monotonic()
        self._step_s, self._arrived_at = now - self._arrived_at, now

    @property
    def _ahead(self) -> int:
        """By how many steps ``latest`` is raised beyond the one that needs it."""
        return max(1, min(MOST_AHEAD, int(AHEAD_S / max(self._step_s, 1e-6)))) if self._looks_ahead else 0

    @property
    def steps_ahead(self) -> int:
        """Steps that workers take at most after a stop, beside those that they take with any coordinator."""
        return 1 + self._ahead if self._looks_ahead else 0

    def _learn(self, part: RoundRequest) -> int:
        """See the plan for the step of ``part``, and request money; returns what was granted."""
        known = self._known
        granted = 0
        if part.wanted.nusd > 0:
            granted, known = self._change(lambda state: (self._grant(state, part), state))
        elif known is None or part.step > known.latest:
            known = self._read()
            if known.latest < part.step:
                known = self._change(lambda state: self._raised(state, part.step))
        self._check(known, part)
        self._known = known
        return granted

    def _raised(self, state: JobState, step: int) -> JobState:
        """``state`` with a ``latest`` that is not before ``step``."""
        if state.latest < step:
            state.latest = step + self._ahead
        return state

    def _grant(self, state: JobState, part: RoundRequest) -> int:
        self._check(state, part)
        return self._raised(state, part.step).pay(part.round_id, part.slot, part.wanted)

    def _check(self, state: JobState, part: RoundRequest) -> None:
        """Raise `Aborted` if the run, or this invocation's part in it, is over; `Restarted` if it goes on elsewhere."""
        self._check_generation(state)
        if state.restart.number != self._restart:
            raise Restarted(state.restart)
        if self._claim_of(part.slot) != self._nonce:
            raise Fenced("this worker's slot was given to another invocation")
        if state.aborted is not None:
            raise Aborted(state.aborted[1], state.aborted[0])

    def _answer(self, part: RoundRequest) -> Arrival:
        """The answer to a worker whose round is not complete, without a grant."""
        assert self._known is not None
        plan = self._known.plan if self._known.plan.version > part.known_plan else None
        # The lease is looked at more rarely than it is renewed, but for one that is missing.
        return Arrival(False, plan, 0, self._leases.is_alive("supervisor", part.lease_s / 5))

    def _complete(self, part: RoundRequest) -> None:
        """Log the step of a round that this worker sees complete."""
        if part.report is None or part.step <= self._logged:
            return
        step, reports = part.step, self._rounds.reports(part)
        self._logged = step
        self._aside(lambda: self._steps.append(step, reports))
        if self._looks_ahead and self._known is not None and self._known.latest <= step:
            self._aside(lambda: self._raise(step + 1))

    def _raise(self, step: int) -> None:
        """See the plan for ``step`` before this worker comes there."""
        self._known = self._change(lambda state: self._raised(state, step))

    def _aside(self, action: Callable[[], object]) -> None:
        """Do ``action`` while this worker goes on, if requests take long. An error is raised by the next call."""
        if self._storage.has_local_objects:
            action()
            return
        if self._beside is None:
            self._beside = ThreadPoolExecutor(1, "mlless-beside")
        while self._begun and (self._begun[0].done() or len(self._begun) > MOST_ASIDE):
            self._begun.popleft().result()
        self._begun.append(self._beside.submit(action))

    def settle_steps(self) -> None:
        """Wait until all that was begun beside this worker's work is done. For any thread."""
        beside = self._beside
        if beside is not None:
            with contextlib.suppress(RuntimeError):  # it was closed meanwhile, which waits for it, too
                beside.submit(lambda: None).result()

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> Closing | None:
        """See `Coordinator`."""
        if part.quorum:
            found: list[Closing | None] = []

            def has_ended() -> bool:
                found[:] = [self._quorum.poll(part)]
                return found[0] is not None

            self._rounds.wait(part, has_ended, lambda: self._go_on(part, pay))
            return found[0]
        self._rounds.wait(part, lambda: self._rounds.has_all(part), lambda: self._go_on(part, pay))
        return None

    def _go_on(self, part: RoundRequest, pay: Callable[[], None]) -> None:
        """Pay for waiting, and hear of an abort."""
        self._leases.renew(str(part.slot), part.lease_s, SHARE)
        pay()
        self._check(self._current(max(self._freshness_s, WAIT_POLL_S / 2)), part)

    def _current(self, most_age_s: float) -> JobState:
        """The state, not from before this worker joined, and at most ``most_age_s`` seconds old."""
        state = self._read(most_age_s)
        return state if state.restart.number >= self._restart else self._read()

    def frames(self, part: RoundRequest, slots: list[int] | None = None) -> list[Frame]:
        """See `Coordinator`."""
        return self._rounds.frames(part, slots)

    def exchange(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        """See `Coordinator`. Of the workers that exchange, the first publisher logs the step."""
        if part.quorum:
            return exchange_in_parts(self, part, pay)
        arrival = self._publish(part, is_exchange=True)
        published_at = time.monotonic()
        try:
            if not arrival.is_complete:
                self.wait(part, pay)
            complete_at = time.monotonic()
            if part.slot == part.publishers[0]:
                self._complete(part)
            else:
                self._learn(replace(part, wanted=NO_REQUEST))
                arrival = arrival._replace(plan=self._answer(part).plan)
            frames = self._rounds.frames(part, None) if part.peers else []
        except RoundEnded as error:
            error.keep_grant(arrival.granted_nusd)
            raise
        return Exchanged(arrival, frames, published_at, complete_at, part.publishers)

    def publish_and_poll(self, part: RoundRequest, keys: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        """See `Coordinator`."""
        arrival = self.publish(part)
        return arrival, self._rounds.poll(part, keys)

    def wait_for_any(self, part: RoundRequest, keys: Sequence[FrameKey], pay: Callable[[], None]) -> list[Frame | None]:
        """See `Coordinator`."""
        found: list[Frame | None] = []

        def is_any_there() -> bool:
            found[:] = self._rounds.poll(part, keys)
            return any(frame is not None for frame in found)

        self._rounds.wait(part, is_any_there, lambda: self._go_on(part, pay))
        return found

    def catch_up(self, part: RoundRequest) -> tuple[Arrival, list[Closing]]:
        """See `Coordinator`."""
        self._known = self._current(self._freshness_s)
        self._check(self._known, part)
        return self._answer(part), self._quorum.catch_up(part)

    def put_model(self, frame: bytes) -> None:
        """See `Coordinator`."""
        self._rounds.check(len(frame))
        self._store.put_many({frame_key(self._prefix, *MODEL): frame})

    def get_model(self) -> Frame | None:
        """See `Coordinator`."""
        return self._store.get_many([frame_key(self._prefix, *MODEL)])[0]

    # -- supervisor

    def announce_quorum(self, quorum: int) -> None:
        """See `Coordinator`."""
        self._quorum.announce(quorum)

    def read_late(self) -> list[LateArrival]:
        """See `Coordinator`."""
        return self._steps.take_late()

    def count_log(self) -> int:
        """Objects of the step log, by a listing: one that takes over reads them all."""
        return self._steps.count()

    def read_steps(self, timeout_s: float) -> list[StepEntry]:
        """See `Coordinator`."""
        return self._steps.read(timeout_s)
