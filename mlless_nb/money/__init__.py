"""Money: the price catalogue, the meter, and the prepaid slices that keep a run under its cap."""

from .catalogue import PriceProfile, price_profile, profile_names
from .meter import Cost, Rates

__all__ = ["Cost", "PriceProfile", "Rates", "price_profile", "profile_names"]
