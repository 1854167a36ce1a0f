"""Prices, costs and budgets.

``catalogue`` reads the prices, ``meter`` converts seconds and requests to cost, and ``budget`` keeps each function
within its grant, so that a run never costs more than its cap. ``book`` has the rules of budgets that several runs
share, of a session or a project, and ``ledger`` keeps them in a file.
"""

from .catalogue import PriceProfile, price_profile, profile_names
from .cost import Cost
from .meter import Rates

__all__ = ["Cost", "PriceProfile", "Rates", "price_profile", "profile_names"]
