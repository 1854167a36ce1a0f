"""A function's request for money, and how much of it the budget grants. Pure."""

from __future__ import annotations

from typing import NamedTuple

#: Where little of the budget is left, nobody is given more than such a part of it beyond the least that lets it go on:
#: the last of the money is granted in small parts.
SHARES = 16


class BudgetRequest(NamedTuple):
    """Money a worker asks for, nano-dollars: what it would like, and the least that lets it go on."""

    nusd: int = 0
    least_nusd: int = 0

    def grant(self, room_nusd: int | None) -> int:
        """What is given of it where the cap leaves ``room_nusd`` (None: there is no cap); 0 when not even the least."""
        if room_nusd is None:
            return self.nusd
        if room_nusd < self.least_nusd:
            return 0
        return self.least_nusd + min(self.nusd - self.least_nusd, (room_nusd - self.least_nusd) // SHARES)
