"""Money: the price catalogue, the meter, and the prepaid slices that keep a run under its cap."""

from .catalogue import PriceProfile, price_profile, profile_names
from .cost import Cost
from .meter import Rates

__all__ = ["Cost", "PriceProfile", "Rates", "price_profile", "profile_names"]
