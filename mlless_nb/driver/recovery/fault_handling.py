"""What the driver does about lost functions and lost data: which of the `Recovery`'s ways, and when it is in vain."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import redis

from ...bus.messages import Aged, Trouble
from ...exchange import SUPERVISOR, Aborted, LostData, Plan
from ...exchange.slots import role_of
from ...money.meter import to_nusd
from ...plurals import count
from ...telemetry.live import Telemetry
from ..backends.causes import Causes
from ..running.contact import Contact, asked_again
from ..servers.services import Services
from .leaving_workers import LeavingWorkers
from .recovery import Recovery
from .unpaid_servers import UnpaidServers
from .unrecoverable import Unrecoverable

#: A supervisor that was invoked so many times, and never heard, is not invoked again.
MOST_UNHEARD = 3


class RunOver(NamedTuple):
    """The run has ended, and no function is left to say how: the reason and status if nothing else says it."""

    reason: str
    status: str = "failed"


class FaultHandler:
    """The handler of one run.

    Parameters
    ----------
    services : Services
    recovery : Recovery
    contact : Contact
        Says when the supervisor counts as lost.
    telemetry : Telemetry
    n_workers : int
    staleness : int
        The protocol's.
    causes : Causes, optional
        Says why functions of a cloud are not there.

    Attributes
    ----------
    troubles : list of Trouble
        What functions have reported since the last call.
    aged : list of Aged
        Which functions need successors.
    """

    def __init__(
        self,
        services: Services,
        recovery: Recovery,
        contact: Contact,
        telemetry: Telemetry,
        n_workers: int,
        staleness: int,
        causes: Causes | None = None,
    ) -> None:
        self._services, self._recovery, self._contact, self._telemetry = services, recovery, contact, telemetry
        self._causes, self._leaving = causes, LeavingWorkers(recovery.let_go, telemetry, staleness)
        self._everybody, self._is_aborted = [SUPERVISOR, *range(n_workers)], False
        if services.launcher.is_local:
            UnpaidServers(services.launcher, self._is_unpaid_for)
        self.troubles: list[Trouble] = []
        self.aged: list[Aged] = []

    @property
    def plan(self) -> Plan:
        """See `Recovery`."""
        return self._recovery.plan

    def handle(self, *, is_due: bool) -> RunOver | None:
        """Replace what was lost while functions run.

        Parameters
        ----------
        is_due : bool
            Whether to look which local functions have died, and whether the run's data is there.
        """
        try:
            with asked_again():
                self._recovery.send_pending()
            if self._services.launcher.is_local and not self._recovery.pay_for_starts():
                self._services.launcher.kill()
                return RunOver("the budget was used up before all functions had started", "capped")
            if self._services.launcher.is_local and self._is_unpaid and not self._contact.is_silent():
                return None  # the functions end, which is seen without a request
            if is_due and not self._is_aborted and self._is_used_up():
                error = Unrecoverable("the budget was used up while nothing was heard of the supervisor", "capped")
                self._end(error)
                return RunOver(str(error), error.status)  # nobody pays for waiting until it is certain that it is lost
            if is_due and self._causes is not None and self._causes.can_look:
                why = self._causes.look(*self._recovery.presence())
                if why is not None:
                    return self._end(Unrecoverable(why))
            while self.aged:
                self._recovery.succeed(self.aged[0])
                del self.aged[0]  # only now: a server may have failed, and it is not asked for again
            if self.troubles or (is_due and self._services.launcher.is_local):
                self._replace_lost(self._recovery.look())
            elif self._contact.is_silent():
                self._check_supervisor()
                self._recovery.replace_supervisor()
            elif is_due and self._services.redis_urls:  # the object storage loses no data, and its requests are billed
                self._recovery.note()
        except LostData as error:
            return self._restore([], str(error))
        except Aborted:
            pass  # the functions end, and the supervisor says how
        except Unrecoverable as error:
            return self._end(error)
        return None

    @property
    def _is_unpaid(self) -> bool:
        """Whether the budget has refused to pay for this process' requests."""
        dues = self._services.dues
        return dues is not None and dues.are_refused

    def _is_used_up(self) -> bool:
        """See `RecoveryPayments`; on this machine a supervisor's end is seen at once."""
        contact = self._contact
        if self._services.launcher.is_local:
            return False
        contact.listen()  # a pause of this process is no silence
        return self._recovery.payments.are_used_up(contact.unpaid_s, is_starting=contact.is_starting)

    def unanswered(self, why: str) -> RunOver | None:
        """The run's servers do not answer, for the reason ``why``: the end of a run that cannot wait for them.

        They cost as much as others meanwhile, and a supervisor with a budget ends as soon as it cannot ask for more.
        """
        contact = self._contact
        if contact.unanswered():
            return RunOver(f"the run's servers do not answer: {why}")
        payments, is_starting = self._recovery.payments, contact.is_starting
        if payments.are_used_up(contact.unpaid_s, is_starting=is_starting, money=self._known_money):
            return RunOver(f"the budget was used up while the run's servers did not answer: {why}", "capped")
        return None

    def _is_unpaid_for(self, silence_s: float) -> bool:
        """Whether the budget, as far as it is known, does not pay for the servers without a supervisor for so long."""
        return self._recovery.payments.are_used_up(silence_s, is_starting=False, money=self._known_money)

    def _known_money(self) -> tuple[int | None, int]:
        """The cap, and what is reserved of it, as far as was heard."""
        state = self._telemetry.state
        cap_nusd = None if state.budget_usd is None else to_nusd(state.budget_usd)
        return cap_nusd, max(to_nusd(state.committed_usd), self._recovery.payments.reserved_nusd)

    def revive(self) -> RunOver | None:
        """Invoke all functions again: every one has ended, and there is no final message."""
        try:
            aborted = self._services.log.aborted()
            if aborted is not None:  # its data may be lost before the run is concluded
                return RunOver(aborted[1], aborted[0])
            if self._is_unpaid:
                return RunOver("the budget does not pay for another step", "capped")
            if self._recovery.is_over():
                plan = self._services.log.read_plan()
                if plan.stop_status == "capped":  # the budget may not pay for reading the steps, too
                    return RunOver(plan.stop_reason, plan.stop_status)
                return RunOver("every function ended without a final message")
            self._recovery.note()
            self._check_supervisor()
            self._replace(self._everybody, "every function was lost")
        except LostData as error:
            return self._restore(self._everybody, str(error))
        except Aborted as error:
            return RunOver(str(error), error.status)
        except Unrecoverable as error:
            return self._end(error)
        return None

    def _replace_lost(self, lost: list[int]) -> None:
        """Replace local functions that have died, and whatever the functions reported."""
        troubles, self.troubles = self.troubles, []
        try:
            with asked_again():
                self._handle_troubles([one for one in troubles if one.number == self._recovery.restart.number], lost)
        except (redis.ConnectionError, redis.TimeoutError):
            self.troubles[:0] = troubles  # nobody reports them again
            raise

    def _handle_troubles(self, troubles: list[Trouble], lost: list[int]) -> None:
        recovery = self._recovery
        told = [slot for trouble in troubles if trouble.is_lost for slot in (trouble.slot, *trouble.others)]
        lost += [slot for slot in dict.fromkeys(told) if slot not in lost]
        if not troubles:
            lost = self._leaving.without(lost, recovery.plan, recovery.restart)
        workers = [slot for slot in lost if slot != SUPERVISOR]
        if not lost and not troubles:
            return
        if recovery.is_over():
            if SUPERVISOR in lost:
                recovery.add_event("The supervisor was lost after the last step; the notebook concludes the run")
                raise Unrecoverable(
                    "the supervisor was lost", "capped" if recovery.plan.stop_status == "capped" else "failed"
                )
            if workers:
                recovery.let_go(workers)
            return  # the supervisor concludes
        if SUPERVISOR in lost:
            self._check_supervisor()
        if workers or troubles:
            causes = [trouble.reason for trouble in troubles if trouble.others or workers in ([], [trouble.slot])]
            reason = causes[0] if causes else _were_lost(workers, self._telemetry.state.step + 1)
            self._replace(lost, reason, goes_back=not all(trouble.is_lost for trouble in troubles))
        else:
            recovery.replace_supervisor()

    def _replace(self, lost: list[int], reason: str, *, goes_back: bool = True) -> None:
        """As `Recovery.replace`; that the budget does not pay for it is said with what happened."""
        try:
            self._recovery.replace(lost, reason, goes_back=goes_back)
        except Unrecoverable as error:
            if error.status != "capped":
                raise
            raise Unrecoverable(f"{reason}, and {error}", error.status) from None

    def _check_supervisor(self) -> None:
        """Raise `Unrecoverable` if no supervisor that was invoked is ever heard.

        Elsewhere than on AWS nobody tells why a function is not there, and only the supervisor misses workers.
        """
        if self._contact.n_unheard >= MOST_UNHEARD:
            tries = f"the supervisor was invoked {count(self._contact.n_unheard, 'time')} and never heard"
            raise Unrecoverable(
                f"{tries}: the backend does not start functions, or they end as they start; its log says why"
            )

    def _restore(self, lost: list[int], reason: str) -> RunOver | None:
        """Restore the run's data on servers that have lost it."""
        self.troubles.clear()
        try:
            self._recovery.restore(lost, reason)
        except Unrecoverable as error:
            return self._end(error)
        return None

    def _end(self, error: Unrecoverable) -> RunOver | None:
        """End a run that cannot go on; None while its supervisor concludes."""
        log, launcher, contact = self._services.log, self._services.launcher, self._contact
        if not launcher.is_local and not self._is_aborted:
            self._recovery.payments.pay_silence(contact.unpaid_s, is_starting=contact.is_starting)
        self._is_aborted = True
        with contextlib.suppress(Aborted, LostData):
            for slot in self._recovery.lost():  # the supervisor waits for no word of theirs until their leases are over
                log.bury(role_of(slot))
        log.abort(str(error), len(self._everybody) - 1, error.status)
        is_concluded = not launcher.has_ended() and log.alive([role_of(SUPERVISOR)])[0]
        return None if is_concluded else RunOver(str(error), error.status)


def _were_lost(workers: list[int], step: int) -> str:
    if len(workers) == 1:
        return f"worker {workers[0]} was lost at step {step}"
    return f"workers {', '.join(map(str, workers))} were lost at step {step}"
