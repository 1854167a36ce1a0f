"""What a recovery takes of the run's budget: functions that are invoked again, time without a supervisor, requests."""

from __future__ import annotations

from collections.abc import Callable

from ..exchange import SUPERVISOR
from ..money import Rates
from ..money.start import StartingMoney
from ..plurals import count
from .gave_up import GaveUp
from .services import Services


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
        self._made_before = self._made
        self._paid_until_s = 0.0  # until when the time without a supervisor is paid, seconds after the run

    @property
    def _made(self) -> tuple[int, int]:
        """Reads and writes of this process."""
        return self._services.launcher.objects.gets, self._services.launcher.objects.puts

    def reserve(self, nusd: int, who: str) -> int:
        """Reserve ``nusd``, which is returned; raises `GaveUp` if the budget does not pay for ``who``."""
        granted = self._services.log.reserve(nusd)
        if granted < nusd:
            raise GaveUp(f"the budget does not pay for invoking {who} again", "capped")
        self.reserved_nusd += granted
        return granted

    def reserve_each(self, slots: list[int]) -> dict[int, int]:
        """Reserve what functions for ``slots`` need to start, which is returned by slot."""
        # Each may read the parts of all.
        reading = self._rates.requests_nusd(self._n_workers, 0)
        needed = {slot: self._money.worker_nusd(slot) + reading for slot in slots}
        if needed:
            self.reserve(sum(needed.values()), f"worker {slots[0]}" if len(slots) == 1 else count(len(slots), "worker"))
        return needed

    def reserve_supervisor(self, run_s: float, heard_s: float) -> int:
        """Reserve what a new supervisor needs to start, which is returned, and the time without one.

        That time is spent, that of the servers, too, and the new one cannot return it. It is paid once, however many
        are lost before one is heard.

        Parameters
        ----------
        run_s, heard_s : float
            When it is invoked, and when the lost one was heard last, seconds after the run.
        """
        gap_s = max(run_s - max(heard_s, self._paid_until_s), 0.0)
        gap_nusd = self._rates.function_nusd(gap_s) + self._rates.servers_nusd(gap_s)
        granted = self.reserve(self._money.supervisor_nusd + gap_nusd, "the supervisor") - gap_nusd
        self._paid_until_s = run_s
        return granted

    def reserve_successor(self, slot: int) -> int:
        """Reserve what a successor of the function of ``slot`` needs to start, which is returned."""
        needed = self._money.supervisor_nusd if slot == SUPERVISOR else self._money.worker_nusd(slot)
        return self.reserve(needed, "a successor")

    def pay_requests(self, reserve: Callable[[int, str], object] | None = None) -> None:
        """Reserve money for the requests so far, and for looking for a whole checkpoint.

        ``reserve`` is called instead of the method if the budget cannot be reached now.
        """
        gets, puts = (made - before for made, before in zip(self._made, self._made_before, strict=True))
        due = self._rates.requests_nusd(gets + self._n_workers, puts + 1) - self.requests_nusd
        if due > 0:
            (reserve or self.reserve)(due, "functions")
            self.requests_nusd += due
