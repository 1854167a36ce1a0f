"""What a recovery takes of the run's budget: functions that are invoked again, time without a supervisor, requests."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable

from ...exchange import SUPERVISOR
from ...exchange.slots import successor_of
from ...money import Rates
from ...money.request import Money
from ...money.start import StartingMoney
from ...plurals import count
from ..servers.reservations import Reservations
from ..servers.services import Services
from .unrecoverable import Unrecoverable

#: What money is reserved for that functions have not been invoked with yet.
WORKERS, THE_SUPERVISOR = "workers", "the supervisor"
#: Seconds of the servers that a supervisor near the cap has reserved ahead, about, when it was heard last.
PAID_AHEAD_S = 1.0


class RecoveryPayments:
    """The payments of one run's recovery.

    Parameters
    ----------
    services : Services
    money : StartingMoney
        What a function needs to start.
    rates : Rates
    n_workers : int

    Attributes
    ----------
    reserved_nusd : int
        How much of the budget was reserved, nano-dollars: when it was last looked at, and here since.
    requests_nusd : int
        Nano-dollars that were reserved for this process' own requests to the storage: it looks for checkpoints.
    """

    def __init__(self, services: Services, money: StartingMoney, rates: Rates, n_workers: int) -> None:
        self._services, self._money, self._rates, self._n_workers = services, money, rates, n_workers
        self.reserved_nusd = self.requests_nusd = 0
        self._reservations = Reservations(services.log)
        # What was reserved and not used, by what it is for: a server may fail before functions are invoked with it.
        self._held = Counter[str]()
        self._made_before = self._made
        self._paid_until_s = 0.0  # until when the time without a supervisor is paid, seconds after the run

    @property
    def _made(self) -> tuple[int, int]:
        """Reads and writes of this process."""
        return self._services.launcher.objects.gets, self._services.launcher.objects.puts

    def _hold(self, what: str, nusd: int, who: str) -> None:
        """Have ``nusd`` reserved for ``what``; raises `Unrecoverable` if the budget does not pay for ``who``."""
        while self._held[what] < nusd:
            granted = self._reservations.ask(what, nusd - self._held[what])
            if not granted:
                raise Unrecoverable(f"the budget does not pay for invoking {who} again", "capped")
            self._held[what] += granted
            self.reserved_nusd += granted

    def use(self, what: str, nusd: int) -> None:
        """``nusd`` of what was reserved for ``what`` is used: it is in the grants of functions, which were invoked."""
        self._held[what] -= nusd

    def reserve_each(self, slots: list[int]) -> dict[int, int]:
        """Reserve what functions for ``slots`` need to start, which is returned by slot; to be `use`d as `WORKERS`."""
        # Each may read the parts of all.
        reading = self._rates.requests_nusd(self._n_workers, 0)
        needed = {slot: self._money.worker_nusd(slot) + reading for slot in slots}
        self._hold(
            WORKERS, sum(needed.values()), f"worker {slots[0]}" if len(slots) == 1 else count(len(slots), "worker")
        )
        return needed

    def reserve_supervisor(self, run_s: float, heard_s: float) -> int:
        """Reserve what a new supervisor needs to start, and the time without one; to be `use`d as `THE_SUPERVISOR`.

        Returns the former. That time is spent, that of the servers, too, and the new one cannot return it. It is paid
        once, however many are lost before one is heard.

        Parameters
        ----------
        run_s, heard_s : float
            When it is invoked, and when the lost one was heard last, seconds after the run.
        """
        gap_s = max(run_s - max(heard_s, self._paid_until_s), 0.0)
        gap_nusd = self._rates.function_nusd(gap_s) + self._servers_nusd(gap_s)
        self._hold(THE_SUPERVISOR, self._money.supervisor_nusd + gap_nusd, THE_SUPERVISOR)
        self.use(THE_SUPERVISOR, gap_nusd)
        self._paid_until_s = run_s
        return self._money.supervisor_nusd

    def are_used_up(self, silence_s: float, *, is_starting: bool, money: Money | None = None) -> bool:
        """Whether the budget does not pay for the servers' time any more, which the supervisor reserves.

        One that is lost reserves nothing, and where its end is not seen it is missed only after some leases.

        Parameters
        ----------
        silence_s : float
            Seconds since the supervisor was heard, or invoked if it ``is_starting``.
        money : callable, optional
            Says what is known of the budget while the servers that have it do not answer.
        """
        unpaid_nusd = self._unpaid_nusd(silence_s, is_starting=is_starting)
        if not unpaid_nusd:
            return False
        cap_nusd, reserved_nusd = (money or self._services.log.money)()
        return cap_nusd is not None and reserved_nusd + unpaid_nusd > cap_nusd

    def pay_silence(self, silence_s: float, *, is_starting: bool) -> None:
        """Reserve that time, as far as the cap allows: it is spent. Arguments as of `are_used_up`."""
        unpaid_nusd = self._unpaid_nusd(silence_s, is_starting=is_starting)
        if unpaid_nusd:
            with contextlib.suppress(Exception):  # the run ends, and its server may be what failed
                cap_nusd, reserved_nusd = self._services.log.money()
                left_nusd = unpaid_nusd if cap_nusd is None else min(unpaid_nusd, cap_nusd - reserved_nusd)
                self.reserved_nusd += self._services.log.reserve(left_nusd) if left_nusd > 0 else 0

    def _unpaid_nusd(self, silence_s: float, *, is_starting: bool) -> int:
        unpaid_s = silence_s - (self._money.start_s if is_starting else PAID_AHEAD_S)
        return self._servers_nusd(unpaid_s) if unpaid_s > 0.0 else 0

    def _servers_nusd(self, span_s: float) -> int:
        """Nano-dollars of so many seconds of the servers, without their start-up, which is paid at the start."""
        return self._rates.servers_nusd(span_s) - self._rates.servers_nusd(0.0)

    def reserve_successor(self, slot: int) -> int:
        """Reserve what a successor of ``slot`` needs to start, which is returned; to be `use`d as `successor_of` it."""
        needed = self._money.supervisor_nusd if slot == SUPERVISOR else self._money.worker_nusd(slot)
        self._hold(successor_of(slot), needed, "a successor")
        return needed

    def pay_requests(self, reserve: Callable[[int], object] | None = None) -> None:
        """Reserve money for the requests so far, and for looking for a whole checkpoint.

        ``reserve`` is called with the amount if the budget cannot be reached now.
        """
        gets, puts = (made - before for made, before in zip(self._made, self._made_before, strict=True))
        due = self._rates.requests_nusd(gets + self._n_workers, puts + 1) - self.requests_nusd
        if due > 0:
            if reserve is not None:
                reserve(due)
            else:
                self._hold("requests", due, "functions")
                self.use("requests", due)
            self.requests_nusd += due
