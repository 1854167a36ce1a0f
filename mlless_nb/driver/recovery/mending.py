"""What the driver does about lost functions and lost data: which of the `Recovery`'s ways, and when it is in vain."""

from __future__ import annotations

from typing import NamedTuple

import redis

from ...bus.messages import Aged, Trouble
from ...exchange import SUPERVISOR, Aborted, LostData, Plan
from ...exchange.slots import role_of
from ...plurals import count
from ...telemetry.live import Telemetry
from ..backends.causes import Causes
from ..running.contact import Contact, asked_again
from ..servers.services import Services
from .gave_up import GaveUp
from .leavers import Leavers
from .recovery import Recovery

#: A supervisor that was invoked so many times, and never heard, is not invoked again.
MOST_UNHEARD = 3


class Over(NamedTuple):
    """The run has ended, and no function is left to say how: the reason and status if nothing else says it."""

    reason: str
    status: str = "failed"


class Mending:
    """The mending of one run.

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
        self._causes, self._leavers = causes, Leavers(recovery.let_go, telemetry, staleness)
        self._everybody = [SUPERVISOR, *range(n_workers)]
        self.troubles: list[Trouble] = []
        self.aged: list[Aged] = []

    @property
    def requests_nusd(self) -> int:
        """See `RecoveryPayments`."""
        return self._recovery.payments.requests_nusd

    @property
    def plan(self) -> Plan:
        """See `Recovery`."""
        return self._recovery.plan

    def mend(self, *, is_due: bool) -> Over | None:
        """Replace what was lost while functions run.

        Parameters
        ----------
        is_due : bool
            Whether to look which local functions have died, and whether the run's data is there.
        """
        try:
            with asked_again():
                self._recovery.say()
            if self._services.launcher.is_local and not self._recovery.pay_for_starts():
                self._services.launcher.kill()
                return Over("the budget was used up before all functions had started", "capped")
            if is_due and self._causes is not None and self._causes.can_look:
                why = self._causes.look(*self._recovery.presence())
                if why is not None:
                    return self._end(GaveUp(why))
            while self.aged:
                self._recovery.succeed(self.aged[0])
                del self.aged[0]  # only now: a server may have failed, and it is not asked for again
            if self.troubles or (is_due and self._services.launcher.is_local):
                self._replace_lost(self._recovery.look())
            elif self._contact.is_silent():
                self._replace_supervisor()
            elif is_due and self._services.redis_urls:  # the object storage loses no data, and its requests are billed
                self._recovery.note()
        except LostData as error:
            return self._restore([], str(error))
        except Aborted:
            pass  # the functions end, and the supervisor says how
        except GaveUp as error:
            return self._end(error)
        return None

    def revive(self) -> Over | None:
        """Invoke all functions again: every one has ended, and there is no final message."""
        try:
            aborted = self._services.log.aborted()
            if aborted is not None:  # its data may be lost before the run is concluded
                return Over(aborted[1], aborted[0])
            if self._recovery.is_over():
                return Over("every function ended without a final message")
            self._recovery.note()
            self._replace_supervisor()
            self._recovery.replace(self._everybody[1:], "every function was lost")
        except LostData as error:
            return self._restore(self._everybody, str(error))
        except Aborted as error:
            return Over(str(error), error.status)
        except GaveUp as error:
            return self._end(error)
        return None

    def _replace_lost(self, lost: list[int]) -> None:
        """Replace local functions that have died, and whatever the functions reported."""
        troubles, self.troubles = self.troubles, []
        try:
            with asked_again():
                self._mend_troubles([one for one in troubles if one.number == self._recovery.restart.number], lost)
        except (redis.ConnectionError, redis.TimeoutError):
            self.troubles[:0] = troubles  # nobody reports them again
            raise

    def _mend_troubles(self, troubles: list[Trouble], lost: list[int]) -> None:
        recovery = self._recovery
        told = [slot for trouble in troubles if trouble.is_lost for slot in (trouble.slot, *trouble.others)]
        lost += [slot for slot in dict.fromkeys(told) if slot not in lost]
        if not troubles:
            lost = self._leavers.without(lost, recovery.plan, recovery.restart)
        workers = [slot for slot in lost if slot != SUPERVISOR]
        if not lost and not troubles:
            return
        if recovery.is_over():
            if SUPERVISOR in lost:
                recovery.tell("The supervisor was lost after the last step; the notebook concludes the run")
                raise GaveUp("the supervisor was lost", "capped" if recovery.plan.stop_status == "capped" else "failed")
            if workers:
                recovery.let_go(workers)
            return  # the supervisor concludes
        if SUPERVISOR in lost:
            self._replace_supervisor()
        if workers or troubles:
            causes = [trouble.reason for trouble in troubles if trouble.others or workers in ([], [trouble.slot])]
            reason = causes[0] if causes else _were_lost(workers, self._telemetry.state.step + 1)
            recovery.replace(workers, reason, goes_back=not all(trouble.is_lost for trouble in troubles))

    def _replace_supervisor(self) -> None:
        """Invoke the supervisor again; raises `GaveUp` if none is ever heard, or the budget does not pay for it.

        Elsewhere than on AWS nobody tells why a function is not there, and only the supervisor misses workers.
        """
        if self._contact.n_unheard >= MOST_UNHEARD:
            tries = f"the supervisor was invoked {count(self._contact.n_unheard, 'time')} and never heard"
            raise GaveUp(f"{tries}: the backend does not start functions, or they end as they start; its log says why")
        self._recovery.replace_supervisor()

    def _restore(self, lost: list[int], reason: str) -> Over | None:
        """Restore the run's data on servers that have lost it."""
        self.troubles.clear()
        try:
            self._recovery.restore(lost, reason)
        except GaveUp as error:
            return self._end(error)
        return None

    def _end(self, error: GaveUp) -> Over | None:
        """End a run that cannot go on; None while its supervisor concludes."""
        log, launcher = self._services.log, self._services.launcher
        log.abort(str(error), len(self._everybody) - 1, error.status)
        is_concluded = not launcher.has_ended() and log.alive([role_of(SUPERVISOR)])[0]
        return None if is_concluded else Over(str(error), error.status)


def _were_lost(workers: list[int], step: int) -> str:
    if len(workers) == 1:
        return f"worker {workers[0]} was lost at step {step}"
    return f"workers {', '.join(map(str, workers))} were lost at step {step}"
