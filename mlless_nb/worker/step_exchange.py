"""One worker's part in the rounds of a step, the durations of the step, and its report to the supervisor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..bus.messages import Invocation
from ..exchange import WAIT_POLL_S, Aborted, Arrival, Coordinator, Exchanged, RoundEnded, RoundRequest
from ..exchange.kept_reports import KeptReports
from ..exchange.stats import NO_STATS
from ..exchange.step_report import Report
from ..money.budget import Prepaid
from .checkpoints import Checkpoints
from .membership import Membership

#: Decay per step of the longest step duration, which a budget request expects of the next step.
_STEP_MEMORY = 0.9
#: A round that lasts for this share of its limit is looked at; without a supervisor it may last so many limits in all.
_LOOK_SHARE, _MOST_LIMITS = 0.25, 4.0
#: The share of the limit between two looks: each is requests, which an object storage bills.
_AGAIN_SHARE = 1 / 24


@dataclass
class Tally:
    """The durations and bytes of one step, for the report that is sent in the next one."""

    compute_s: float = 0.0
    exchange_s: float = 0.0
    wait_s: float = 0.0
    merged_bytes: int = 0  # of the merged range that this worker published
    compute_cpu_s: float = 0.0  # processor time of ``compute_s``

    @property
    def durations(self) -> tuple[float, float, float, float]:
        """The durations, in the order of `Report`."""
        return self.compute_s, self.exchange_s, self.wait_s, self.compute_cpu_s


class StepExchange:
    """The rounds of a step as a round policy uses them (`mlless_nb.exchange.policies.Step`), and all other rounds.

    Parameters
    ----------
    invocation : Invocation
    log : Coordinator
    prepaid : Prepaid
    membership : Membership
    clock, cpu_clock : callable
        Wall time and processor time of this thread, seconds.
    prefetch : callable
        Begins to fetch the next minibatches; called once the update is made and encoded.
    report : callable
        Makes the report of the step from the number of bytes that are published.
    is_last : callable
        Returns whether the step is the last one whatever the losses.
    checkpoints : Checkpoints
        Say whether every worker stores its state after a step, and how far it may be from them.

    Attributes
    ----------
    tally : Tally
        That of the step before.
    step_s, quickest_s : float
        The longest recent step, and the shortest computation of a step so far; 0.0 before the first step.
    applied : int
        The newest step whose updates are applied; after a restart the checkpoint's. Where replicas may differ, the
        worker's own update of the next one may be in its parameters, too.
    reports : KeptReports
        The newest ones.
    kept_steps, quorum, read_step
        See `RoundRequest`; the round policy sets them for a step's own round.
    """

    def __init__(
        self,
        invocation: Invocation,
        log: Coordinator,
        prepaid: Prepaid,
        membership: Membership,
        clock: Callable[[], float],
        cpu_clock: Callable[[], float],
        *,
        prefetch: Callable[[], None],
        report: Callable[[int], Report],
        is_last: Callable[[], bool],
        checkpoints: Checkpoints,
    ) -> None:
        self._log, self._prepaid, self._membership = log, prepaid, membership
        self._clock, self._cpu_clock = clock, cpu_clock
        self._prefetch, self._report, self.is_last, self._checkpoints = prefetch, report, is_last, checkpoints
        self._lease_s, self._limit_s = invocation.lease_s, invocation.round_timeout_s
        self._waits_since = 0.0  # when the newest round was entered, or later
        self._looks_at = -math.inf  # when a round that lasts is looked at again
        self.slot = invocation.slot
        self.number, self.epoch, self.stats = 0, 0.0, NO_STATS
        self.active: list[int] = []
        self.waited_s, self.merged_bytes = 0.0, 0
        self.tally = Tally()
        self.step_s = self.quickest_s = 0.0
        self.kept_steps, self.quorum, self.read_step = 2, 0, 0
        self._began = self._cpu_began = self._computed = self._computed_cpu_s = 0.0
        self._is_computed = False
        self._counted: tuple[int, int, Report] | None = None  # what is kept of the step, see `KeptReports.add`
        self.reports, self._began_s = KeptReports(), 0.0
        self.applied = 0

    def note_time(self, run_s: float) -> None:
        """It is ``run_s`` seconds after the run began."""
        self._began_s = self._clock() - run_s

    # -- a step, from its begin to its end

    def begin(self, number: int, active: list[int]) -> None:
        """Step ``number`` begins."""
        self._began, self._cpu_began = self._clock(), self._cpu_clock()
        self.number, self.active, self._is_computed, self._counted = number, active, False, None
        self.waited_s, self.merged_bytes = 0.0, 0

    def end(self) -> None:
        """The updates are applied: record how the time of the step was spent, for the next report."""
        self.applied = self.number
        if not self._is_computed:
            return  # the step was skipped
        applied, computed = self._clock(), self._computed
        compute_s, exchange_s = computed - self._began, applied - computed - self.waited_s
        self.tally = Tally(compute_s, exchange_s, self.waited_s, self.merged_bytes, self._computed_cpu_s)
        self.quickest_s = min(self.quickest_s or math.inf, compute_s)
        self.step_s = max(applied - self._began, _STEP_MEMORY * self.step_s)
        if self._counted is not None:
            self.reports.add(self.number, applied - self._began_s, *self._counted)
        self._prepaid.note_step()

    @property
    def passed(self) -> int:
        """The newest step that all workers have taken, as far as this one knows; peers may be in the same step."""
        return self.read_step if self.quorum else self.number

    def note_extra(self) -> None:
        """Count the work after the updates of the step (an evaluation, a checkpoint) into its duration."""
        self.step_s = max(self._clock() - self._began, self.step_s)

    # -- what a policy asks for

    def request(
        self,
        frame: bytes,
        *,
        kind: str = "",
        parts: dict[int, bytes] | None = None,
        publishers: list[int] | None = None,
    ) -> RoundRequest:
        """This worker's part in the step's round of ``kind``. The first round ends the step's computation."""
        report = None
        if not self._is_computed:
            self._is_computed = True
            self._computed_cpu_s, self._computed = self._cpu_clock() - self._cpu_began, self._clock()
            self._prefetch()
            report = self._report(len(frame) if parts is None else sum(map(len, parts.values())))
            self._counted = self.quorum or len(self.active), len(self.active) if self.quorum else 0, report
        round_id, publishers = f"{self.number}{kind}", self.active if publishers is None else publishers
        return self.round(round_id, publishers, self.active, frame, report=report, parts=parts)

    def reading(self) -> RoundRequest:
        """A part in the step's round that does not arrive there: to read its frames."""
        return self.round(str(self.number), self.active, self.active, b"")

    def exchange(self, request: RoundRequest) -> Exchanged:
        """Carry a round out, and take over what its arrival returned."""
        try:
            done = self._log.exchange(request, self.pay)
        except RoundEnded as error:
            self._prepaid.add(error.granted_nusd)
            raise
        self.read_step = done.arrival.read_step
        if request.quorum and self.slot not in done.slots:
            self._counted = None
        self._membership.learn(done.arrival, self.number)
        return done

    def learn(self, arrival: Arrival) -> None:
        """Take over the grant, the plan and the supervisor's lease from an arrival."""
        self._membership.learn(arrival, self.number)

    def is_checkpoint(self) -> bool:
        """Whether every worker stores its state after this step."""
        return self._checkpoints.is_due(self.number)

    def leaving(self) -> list[int]:
        """Slots whose last step is this one."""
        return self._membership.leaving(self.number)

    def pay(self) -> None:
        """Pay for waiting; if the budget does not cover that, announce the end of the run.

        Raises `Aborted` if the newest round has lasted for too long. While there is no supervisor that does not count:
        nobody looks who is lost until the driver has replaced it, perhaps twice.
        """
        now, look_s = self._clock(), _LOOK_SHARE * self._limit_s
        waited_s = now - self._waits_since
        if waited_s > look_s and (now >= self._looks_at or waited_s > self._limit_s):
            self._looks_at = now + _AGAIN_SHARE * self._limit_s
            has_supervisor, has_driver = self._log.alive(["supervisor", "driver"])
            if has_driver and not has_supervisor:
                self._waits_since = now - look_s
            elif waited_s > self._limit_s:
                raise Aborted(f"a round of step {self.number} did not complete within {self._limit_s:g} s")
        if not self._prepaid.buy(WAIT_POLL_S, self._log.reserve):
            self._log.announce_stop("capped", "the budget does not pay for another step")

    # -- any round

    def round(
        self,
        round_id: str,
        publishers: list[int],
        waiters: list[int],
        frame: bytes,
        *,
        report: Report | None = None,
        parts: dict[int, bytes] | None = None,
    ) -> RoundRequest:
        """This worker's part in a round. Only a step's own round, the one with a report, requests money."""
        self._waits_since = self._clock()
        return RoundRequest(
            round_id,
            self.number,
            self.slot,
            publishers,
            waiters,
            frame,
            report,
            self._prepaid.wanted(self.step_s if report is not None else 0.0),
            self._membership.plan.version,
            self._lease_s,
            _MOST_LIMITS * self._limit_s,
            parts,
            self.kept_steps,
            self.quorum if report is not None else 0,
            self.read_step,
            self._checkpoints.most_behind(self.number),
        )
