"""Prices, costs and budgets.

``catalogue`` reads the prices, ``meter`` converts seconds and requests to cost, and ``budget`` keeps each function
within its grant, so that a run never costs more than its cap.
"""

from .catalogue import PriceProfile, price_profile, profile_names
from .cost import Cost
from .meter import Rates

__all__ = ["Cost", "PriceProfile", "Rates", "price_profile", "profile_names"]
