"""Prices, costs and budgets.

``catalogue`` reads the prices, ``meter`` turns seconds and requests into cost, and ``budget`` keeps each function
within the money that it was granted, so that a run never costs more than its cap.
"""

from .catalogue import PriceProfile, price_profile, profile_names
from .cost import Cost
from .meter import Rates

__all__ = ["Cost", "PriceProfile", "Rates", "price_profile", "profile_names"]
