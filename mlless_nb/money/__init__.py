"""Prices, costs and budgets. A run's metered cost never exceeds its cap.

*Metered* means: measured seconds and counted requests, times the list prices of a profile. The provider's bill may
differ.

::

    catalogue.py  reads the prices from prices.toml
    meter.py      seconds and requests -> cost                                                 pure
    cost.py       the cost of a run, by component; store_use.py: what of it is for the store of frames
    budget.py     a function spends prepaid grants only, and ends when it gets no further one
    request.py    a function's request for a grant, and how much of it is granted              pure
    questions.py  requests that are under way, and how slow answers are
    request_gate.py  ends a function before a request that is not reserved
    start.py      the first grants, and the least budget of a run
    book.py       rules of the budgets of sessions, projects and sweeps                        pure
    ledger.py     the file that keeps them; ledger_rows.py sqlite_file.py: its format and access
    owner.py      the process that a reservation belongs to
"""

from .catalogue import PriceProfile, price_profile, profile_names
from .cost import Cost
from .meter import Rates
from .store_use import StoreUse

__all__ = ["Cost", "PriceProfile", "Rates", "StoreUse", "price_profile", "profile_names"]
