"""Pays for the driver's own requests while a run without a server goes on: its messages are in the object storage."""

from __future__ import annotations

from ...exchange import Coordinator
from ...money import Rates
from ...storage.objects import ObjectStore
from .reservations import Reservations

#: Reads and writes of the driver that are paid at a time, some ten seconds of its polling in a cloud.
GETS, PUTS = 40, 8
#: The least that are paid before it looks again: for its messages, and for who is at work.
LEAST_GETS, LEAST_PUTS = GETS // 2, PUTS // 2


class RequestDues:
    """The part of a run's budget that is for the driver's requests.

    Parameters
    ----------
    objects : ObjectStore
        The driver's; counts the requests.
    log : Coordinator
    rates : Rates
    reserved_nusd : int
        What was reserved for them before the launch, nano-dollars.
    last : (int, int)
        Reads and writes that the end of the run takes.

    Attributes
    ----------
    are_refused : bool
        Whether the budget has refused more: what is paid is for the end of the run.
    """

    def __init__(
        self, objects: ObjectStore, log: Coordinator, rates: Rates, reserved_nusd: int, last: tuple[int, int]
    ) -> None:
        self._objects, self._log, self._rates, self._last = objects, log, rates, last
        self._reserved_nusd = reserved_nusd
        self._reservations = Reservations(log)
        self.are_refused = False

    @property
    def made_nusd(self) -> int:
        """Price of the requests so far."""
        return self._rates.requests_nusd(self._objects.gets, self._objects.puts)

    def _due_nusd(self, gets: int, puts: int) -> int:
        """What is not reserved of the requests so far, of the end's, and of so many more."""
        gets, puts = self._objects.gets + self._last[0] + gets, self._objects.puts + self._last[1] + puts
        return self._rates.requests_nusd(gets, puts) - self._reserved_nusd

    def pay(self) -> bool:
        """Reserve money for the requests to come, before they are made; whether the driver may go on with them.

        If the budget does not cover them, the run's end is announced, and it is not asked again: asking costs, too.
        """
        if self.are_refused:
            return False
        least = self._due_nusd(LEAST_GETS, LEAST_PUTS)
        if least > 0:
            granted = self._reservations.ask("requests", self._due_nusd(GETS, PUTS), least)
            self._reserved_nusd += granted
            if not granted:
                self._log.announce_stop("capped", "the budget does not pay for another step")
                self.are_refused = True
        return not self.are_refused

    def pay_end(self, gets: int) -> bool:
        """Reserve money for ``gets`` more reads as the run ends; False if the budget does not cover them."""
        due = self._due_nusd(gets + 1, 1)  # asking takes one of each
        granted = self._reservations.ask("end", due) if due > 0 else 0
        self._reserved_nusd += granted
        return granted >= due

    @property
    def rest_nusd(self) -> int:
        """What is reserved beyond the requests so far."""
        return self._reserved_nusd - self.made_nusd
