"""A function's request to the budget, and how much of it is granted. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

#: A grant beyond the least amount is at most this part (1/16) of the remaining budget, so that the last of the budget
#: is granted in small parts.
SHARES = 16

#: Reserves an amount of the budget: wanted nano-dollars, least nano-dollars, request id. A request id counts once.
#: Returns the granted amount, 0 if refused.
Reserve = Callable[[int, int, str], int]
#: Returns nano-dollars to the budget; the second argument counts the calls.
GiveBack = Callable[[int, int], None]
#: The cap (None: no cap) and what is reserved of it, nano-dollars.
Money = Callable[[], tuple[int | None, int]]


class BudgetRequest(NamedTuple):
    """A request, nano-dollars: the wanted amount, and the least amount with which the function can go on."""

    nusd: int = 0
    least_nusd: int = 0

    def grant(self, room_nusd: int | None) -> int:
        """The amount granted if the cap leaves ``room_nusd`` (None: no cap); 0 if that is below the least amount."""
        if room_nusd is None:
            return self.nusd
        if room_nusd < self.least_nusd:
            return 0
        return self.least_nusd + min(self.nusd - self.least_nusd, (room_nusd - self.least_nusd) // SHARES)


#: The request of a function whose grant is sufficient.
NO_REQUEST = BudgetRequest()
