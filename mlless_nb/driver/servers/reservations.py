"""The driver's requests for money of a run's budget: each counts once, though the answer to it may be lost."""

from __future__ import annotations

import uuid

from ...exchange import Coordinator


class Reservations:
    """Those of one part of the driver.

    Parameters
    ----------
    log : Coordinator
    """

    def __init__(self, log: Coordinator) -> None:
        self._log = log
        self._unanswered: dict[str, tuple[int, int | None, str]] = {}  # by what they are for

    def ask(self, what: str, nusd: int, least_nusd: int | None = None) -> int:
        """Reserve nano-dollars for ``what``, see `Coordinator.reserve`; returns how many were granted, 0 if refused.

        If an earlier request for it was not answered, that one is repeated, under its id and with its amounts.
        """
        request = self._unanswered.setdefault(what, (nusd, least_nusd, uuid.uuid4().hex))
        granted = self._log.reserve(*request)
        del self._unanswered[what]
        return granted
