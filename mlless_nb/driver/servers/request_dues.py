"""Pays for the driver's own requests while a run without a server goes on: its messages are in the object storage."""

from __future__ import annotations

from ...exchange import Coordinator
from ...money import Rates
from ...storage.objects import ObjectStore
from .reservations import Reservations

#: Reads and writes of the driver that are paid at a time, some ten seconds of its polling.
GETS, PUTS = 40, 8


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
    """

    def __init__(
        self, objects: ObjectStore, log: Coordinator, rates: Rates, reserved_nusd: int, last: tuple[int, int]
    ) -> None:
        self._objects, self._log, self._rates, self._last = objects, log, rates, last
        self._reserved_nusd, self._reservations = reserved_nusd, Reservations(log)

    @property
    def made_nusd(self) -> int:
        """Price of the requests so far."""
        return self._rates.requests_nusd(self._objects.gets, self._objects.puts)

    def pay(self) -> None:
        """Reserve money for the requests to come; if the budget does not cover them, announce the end of the run."""
        gets, puts = self._objects.gets + self._last[0], self._objects.puts + self._last[1]
        least = self._rates.requests_nusd(gets + GETS // 4, puts + PUTS // 4) - self._reserved_nusd
        if least <= 0:
            return
        wanted = self._rates.requests_nusd(gets + GETS, puts + PUTS) - self._reserved_nusd
        granted = self._reservations.ask("requests", wanted, least)
        self._reserved_nusd += granted
        if not granted:
            self._log.announce_stop("capped", "the budget does not pay for another step")
