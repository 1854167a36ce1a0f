"""Recovery from faults: lost functions are invoked again, and the run goes on from its newest checkpoint.

One rule for all faults: every worker goes on from the same checkpoint, under a new number that fences the rounds before
(`Coordinator.roll_back`). Workers that are alive take it over by themselves; for those that are not, functions are
invoked again with their slots. A lost supervisor is invoked again without a restart: steps go on without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence

import redis

from ...bus.messages import Aged, Invocation, LetGo, Replaced
from ...errors import ServiceError
from ...exchange import SUPERVISOR, LostData, Past, Plan, Restart
from ...exchange.kept_reports import newest_entries
from ...exchange.slots import pid_in, role_of
from ...money import Rates
from ...money.meter import NUSD, to_nusd
from ...money.start import StartingMoney
from ...storage.run_objects import Whole, is_model_stored, newest_whole
from ...telemetry.live import Telemetry
from ..launch.fan_out import inviter_of
from ..running.contact import asked_again
from ..running.start_payments import StartPayments
from ..servers.services import Services
from .early_ends import EarlyEnds
from .invoking import invoke_patiently, sleep
from .progress import RestartCounts
from .recovery_payments import THE_SUPERVISOR, WORKERS, RecoveryPayments
from .successor_invocations import SuccessorInvocations
from .unrecoverable import Unrecoverable

#: Seconds of the run for which money that was granted may not be known after the servers lost their data.
UNKNOWN_S = 2.0


class Recovery:
    """The recovery of one run.

    Parameters
    ----------
    services : Services
    invocations : list of Invocation
        Those of the run's start, the supervisor's first.
    money : StartingMoney
        What a function needs to start.
    rates : Rates
    telemetry : Telemetry
    launched_at : float
        When the run was invoked, on the monotonic clock.
    invoke : callable
        Invokes functions, and has them watched.
    pause : callable
        See `invoke_patiently`.

    Attributes
    ----------
    restart : Restart
        The newest one.
    n_replaced : int
        Functions that were invoked in the place of others.
    payments : RecoveryPayments
        What it takes of the budget.
    """

    def __init__(
        self,
        services: Services,
        invocations: list[Invocation],
        money: StartingMoney,
        rates: Rates,
        telemetry: Telemetry,
        launched_at: float,
        invoke: Callable[[list[Invocation]], None],
        pause: Callable[[float], bool] = sleep,
    ) -> None:
        self._services, self._money, self._rates, self._telemetry = services, money, rates, telemetry
        self._of_slot = {one.slot: one for one in invocations}
        self._invoke_once, self._pause, self._job_id = invoke, pause, invocations[0].job_id
        self._launched_at, self._n_workers = launched_at, invocations[0].n_workers
        self.restart, self._plan, self._restarts = Restart(), Plan(), list[tuple[int, int]]()  # steps by number
        self._seen: set[int] = set()  # slots whose function has started
        self._at_work: dict[int, str] = {}  # as of the newest look
        self._begun_s: dict[int, float] = {}  # when slots got new functions, seconds after the run
        self._ended: set[int] = set()  # slots that were at work once, and are not at work any more
        self._noted = self.restart  # as of the newest look
        self._identities = services.log.identities()
        self.n_replaced, self._counts = 0, RestartCounts()
        #: Called when the servers have lost the run's data.
        self.on_loss: Callable[[], None] = lambda: None
        self._unsent: list[bytes] = []  # messages to the supervisor that the bus has not taken
        self._starting = StartPayments(money, services.log)
        self._early_ends = EarlyEnds(services, invocations[0].lease_s)
        self._starting.begin(self._of_slot, 0.0)
        self.payments = RecoveryPayments(services, money, rates, self._n_workers)
        known = services, self.payments, money, invocations[0].lease_s
        self._successors = SuccessorInvocations(*known, self._invocation, invoke, self.add_event, pause)

    @property
    def _run_s(self) -> float:
        """Seconds since the run was invoked."""
        return time.monotonic() - self._launched_at

    def look(self) -> list[int]:
        """The slots whose local processes have died at work, or before; -1 is the supervisor. Raises `LostData`."""
        self.note()
        return self.lost() + self._early_ends.look(self._seen, self._at_work)

    def lost(self) -> list[int]:
        """Those that have died at work since the newest `note`."""
        # One that settled its budget before it exited was not lost: it is no longer at work, or its successor is.
        found = self._services.log.at_work(self._dead())
        return [slot for slot, nonce in found.items() if nonce == self._at_work[slot]]

    def _dead(self) -> list[int]:
        """The slots whose local processes have died since they were at work."""
        return [slot for slot, nonce in self._at_work.items() if self._services.launcher.has_died(pid_in(nonce))]

    def note(self) -> None:
        """Note the plan, which `restore` needs, and who is at work. Raises `LostData`."""
        # The supervisor tells of the money, too, but not while it is lost.
        standing = self._services.log.standing([SUPERVISOR, *range(self._n_workers)])
        plan, at_work, reserved_nusd, restart, identities = standing
        if identities != self._identities:
            raise LostData("a server was restarted")
        if restart == self._noted:  # else who was replaced is not at work yet, or the servers have forgotten who is
            self._ended |= self._at_work.keys()
        self._ended -= at_work.keys()
        self._plan, self._at_work, self.payments.reserved_nusd, self._noted = plan, at_work, reserved_nusd, restart
        self._seen.update(at_work)
        self._services.launcher.exits.note(at_work)

    def presence(self) -> tuple[set[int], list[int]]:
        """The slots whose functions have started, as of the newest `note`, and those of them without a lease."""
        at_work = list(self._at_work)
        if not at_work or not self._services.redis_urls:  # the object storage's requests are billed
            return self._seen, []
        are_alive = self._services.log.alive([role_of(slot) for slot in at_work])
        return self._seen, [slot for slot, is_alive in zip(at_work, are_alive, strict=True) if not is_alive]

    @property
    def plan(self) -> Plan:
        """The newest plan that is known."""
        return self._plan

    def pay_for_starts(self) -> bool:
        """Reserve for local functions that start later than was planned; False if refused. Raises `LostData`."""
        dues = self._services.dues
        if dues is None or not dues.are_refused:
            return self._starting.pay(self._run_s, self._seen)
        if self._starting.is_due(self._run_s, self._seen):
            self.note()  # they may have started: nobody has looked since nothing pays for it
        return not self._starting.is_due(self._run_s, self._seen)

    def is_over(self) -> bool:
        """Whether the run has ended for its workers: all have settled, or the model is stored. Raises `LostData`.

        Those that had left before the newest checkpoint do not matter: servers that lost their data forgot them.
        """
        log = self._services.log
        slots = self._plan.active(log.restart().step + 1, self._n_workers)
        return log.settled(slots).issuperset(slots) or self._is_model_stored()

    def _is_model_stored(self) -> bool:
        with asked_again():
            return is_model_stored(self._services.launcher.objects, self._job_id)

    def replace_supervisor(self) -> None:
        """Invoke the supervisor again; raises `Unrecoverable` if the budget does not pay for it."""
        log, run_s = self._services.log, self._run_s
        log.bury("supervisor")
        granted = self.payments.reserve_supervisor(run_s, self._telemetry.state.time_s)
        log.release(SUPERVISOR)
        self._seen.discard(SUPERVISOR)
        self._starting.begin([SUPERVISOR], run_s)
        news = Replaced(self.restart.number, self.restart.step, [SUPERVISOR], run_s, run_s)
        self._services.bus.send("supervisor", news.encode())  # before it starts: it reads what was said
        self._invoke([self._invocation(SUPERVISOR, granted, run_s)])
        self.payments.use(THE_SUPERVISOR, granted)
        self.n_replaced += 1
        self.add_event("The supervisor was lost and invoked again; training went on")

    def succeed(self, aged: Aged) -> None:
        """Invoke the successors that are asked for, see `SuccessorInvocations.succeed`."""
        self._successors.succeed(aged, self._run_s)

    def _invoke(self, invocations: list[Invocation]) -> None:
        """Invoke functions in the place of lost ones; raises `Unrecoverable` if the backend refuses again and again."""
        try:
            invoke_patiently(self._invoke_once, invocations, self.add_event, self._pause)
        except ServiceError as error:
            raise Unrecoverable(str(error)) from None
        self._early_ends.invoked(one.slot for one in invocations)

    def _invocation(self, slot: int, granted: int, run_s: float) -> Invocation:
        """That of another function for ``slot``. A supervisor learns how old the others are: RabbitMQ tells it once."""
        begun = [[other, at_s] for other, at_s in self._begun_s.items() if slot == SUPERVISOR and other >= 0]
        one = dataclasses.replace(self._of_slot[slot], granted_nusd=granted, invoked_s=run_s)
        return dataclasses.replace(one, has_cap=self._telemetry.state.budget_usd is not None, begun=begun)

    def replace(self, lost: Sequence[int], reason: str, *, goes_back: bool = True) -> None:
        """Go on from the newest checkpoint, with new functions for the ``lost`` ones.

        Parameters
        ----------
        lost : sequence of int
            Slots of functions that have ended; empty if only data was lost. The supervisor's is -1.
        reason : str
            What happened, a clause without a full stop.
        goes_back : bool
            Whether the others have to go back even if the lost workers had done their last steps by the checkpoint.

        Raises
        ------
        Unrecoverable
            The budget does not pay for it, or the run gets no further.
        LostData
            The run's data is gone from the servers: see `restore`.
        """
        log, workers = self._services.log, [slot for slot in lost if slot != SUPERVISOR]
        self.payments.pay_requests()
        origin, step = self._newest_whole(reason, workers).checkpoint
        replaced = self._to_replace(set(workers), step)
        granted = self.payments.reserve_each(replaced)
        if SUPERVISOR in lost:
            self.replace_supervisor()
        self._counts.keep()
        if workers and not replaced and not goes_back:
            self.let_go(workers)
            return
        known, self.restart = self.restart, log.roll_back(self.restart, step, replaced, self._n_workers, origin)
        if self.restart.number != known.number + 1:
            raise Unrecoverable("the run was restarted by somebody else")
        # One that ended properly while this was decided is needed again; nobody else may miss it soon. Once functions
        # are invoked, others may have done all that is left to do, with them.
        left = set[int]()
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError, ServiceError):  # nobody decides it again
            left = log.settled(self._plan.active(step + 1, self._n_workers)) - set(replaced)
        self._go_on(replaced, granted, reason, self._run_s)
        if left and not self.is_over():
            self.replace(sorted(left), f"worker {min(left)} had just ended")

    def let_go(self, slots: Sequence[int]) -> None:
        """Functions of ``slots`` that have ended had done their last steps: nobody goes back, or waits, for them."""
        # Their own last messages may be lost, or say that they had not heard of the newest restart.
        self._services.bus.send("supervisor", LetGo(self.restart.number, [*slots], self._run_s).encode())
        for slot in slots:
            self._services.log.refund(0, slot)  # it could not do so itself any more
            self._services.log.bury(role_of(slot))

    def restore(self, lost: Sequence[int], reason: str) -> None:
        """As `replace`, after the servers lost the run's data: plan and money are those known here."""
        log, state = self._services.log, self._telemetry.state
        gone = {*lost, *self._dead()}  # nobody would miss them: the servers have forgotten them
        self.on_loss()
        is_stored = self._is_model_stored()  # while nothing is changed yet: the storage may refuse
        ((origin, step), reports), run_s = self._newest_whole(reason, lost), self._run_s
        known = self._telemetry.newest_step  # the supervisor, if it is there, knows some more
        steps = newest_entries(known, step, reports, self._of_slot[SUPERVISOR].launched_at_s)
        owed: list[int] = []
        self.payments.pay_requests(owed.append)
        self._services.keep_user()
        self._counts.keep()
        self._identities = []  # the next look begins anew if a server fails before all of it is done
        log.delete()
        unknown = (self._n_workers + 1) * self._rates.function_nusd(UNKNOWN_S) + self._rates.servers_nusd(UNKNOWN_S)
        cap = None if state.budget_usd is None else to_nusd(state.budget_usd)
        told = round(max(state.committed_usd, state.spent_usd) * NUSD)
        reserved = max(told, self.payments.reserved_nusd) + unknown + sum(owed)
        reserved = reserved if cap is None else min(reserved, cap)  # more was never granted
        self.restart = Restart(self.restart.number + 1, step, origin)
        plan = dataclasses.replace(self._plan, version=self._plan.version + 1)
        log.renew("driver", 4 * self._of_slot[SUPERVISOR].lease_s)
        log.create(cap_nusd=cap, reserved_nusd=reserved, past=Past(self.restart, plan, steps))
        self.payments.reserved_nusd = reserved
        identities = log.identities()
        replaced = [slot for slot in self._to_replace(gone, step, is_restored=True) if slot >= 0]
        over, replaced = (replaced, []) if is_stored else ([], replaced)  # the work of those is done
        granted = self.payments.reserve_each(replaced)
        if SUPERVISOR in gone:  # all is paid before anybody is told
            self.payments.reserve_supervisor(run_s, state.time_s)
        self._tell_replaced(replaced, run_s, log_after=min(known, step))  # before another supervisor begins
        if over:
            self.add_event(f"The run's last steps may be missing in its history after step {max(known, step)}")
            self.let_go(over)
        if SUPERVISOR in gone:
            self.replace_supervisor()
        self._go_on(replaced, granted, reason, run_s, is_restored=True)
        self._identities = identities
        self._telemetry.update(time_s=run_s)

    def _go_on(
        self, replaced: list[int], granted: dict[int, int], reason: str, run_s: float, *, is_restored: bool = False
    ) -> None:
        """Invoke functions for ``replaced`` slots, and tell supervisor and user; they are billed from ``run_s``."""
        self._restarts.append((self.restart.number, self.restart.step))
        self._seen.difference_update(replaced)
        self._ended.difference_update(replaced)
        self._begun_s |= dict.fromkeys(replaced, run_s)
        self._starting.begin(replaced, run_s)
        self._invoke([self._invocation(slot, granted[slot], run_s) for slot in replaced])
        self.payments.use(WORKERS, sum(granted.values()))
        self.n_replaced += len(replaced)
        if not is_restored:
            self._tell_replaced(replaced, run_s)
        what = f"; worker{'s' * (len(replaced) > 1)} {', '.join(map(str, replaced))} replaced" if replaced else ""
        where = f"from step {self.restart.step}" if self.restart.step else "from the start"
        self.add_event(f"{reason[:1].upper()}{reason[1:]}{what}; training goes on {where}")

    def _tell_replaced(self, replaced: list[int], run_s: float, *, log_after: int | None = None) -> None:
        """Tell the supervisor who is replaced, now or, if the bus fails, later."""
        number, step = self.restart.number, self.restart.step
        self._unsent.append(Replaced(number, step, replaced, run_s, run_s, log_after).encode())
        with contextlib.suppress(ServiceError):  # the caller is not done
            self.send_pending()

    def send_pending(self) -> None:
        """Send the supervisor what it has not been told, since the bus has failed."""
        while self._unsent:
            self._services.bus.send("supervisor", self._unsent[0])
            del self._unsent[0]

    def _to_replace(self, lost: set[int], step: int, *, is_restored: bool = False) -> list[int]:
        """The slots that take part in the step after ``step`` and have no function (any more)."""
        active, log = self._plan.active(step + 1, self._n_workers), self._services.log
        # Servers that lost their data have forgotten who is there. Some start and end between two looks.
        at_work = self._seen - self._ended if is_restored else set(log.at_work(active))
        came = self._seen if is_restored else self._seen | log.settled(active)
        # Functions that were to be invoked by a lost one, and are not there, may never come.
        n = self._money.n_inviters
        gone = {slot for slot in active if slot in came or inviter_of(slot, n) in lost} - at_work
        return [slot for slot in active if slot in lost or slot in gone]

    def _newest_whole(self, reason: str, lost: Sequence[int]) -> Whole:
        """The newest whole checkpoint, that of step 0 if there is none.

        Counts for each of the ``lost`` slots the restarts without progress (`RestartCounts`), for this ``reason``.
        """
        self._counts.count(lost, int(self._telemetry.state.step), reason)
        with asked_again():
            return newest_whole(self._services.launcher.objects, self._job_id, self._restarts)

    def add_event(self, text: str) -> None:
        """Tell the user what happened."""
        self._telemetry.add_event(self._run_s, text)
