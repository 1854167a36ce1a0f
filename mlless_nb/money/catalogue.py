"""Reads the price catalogue ``prices.toml``: one profile per provider.

An entry with ``usd_per_h`` is a server, one with prices ``<kind>_usd`` is a store that is billed per request. A new
component is one entry there: the meter and `Cost` use its name.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class FunctionPrice:
    """Price of a function: dollars per GB-second in quanta of ``quantum_s`` seconds, and dollars per invocation.

    ``core_mb`` is the memory that has a whole core, MB; ``tail_s`` is what such a function is billed after its return.
    That may take ``tail_margin_s`` longer.
    """

    item: str
    usd_per_gb_s: float
    core_mb: int
    quantum_s: float
    minimum_s: float
    request_usd: float
    tail_s: float
    tail_margin_s: float
    as_of: str
    source: str


@dataclass(frozen=True)
class ServerPrice:
    """Price of a server, dollars per hour, billed by the second; ``start_s`` seconds of its start-up are billed too."""

    item: str
    usd_per_h: float
    as_of: str
    source: str
    start_s: float = 0.0


@dataclass(frozen=True)
class RequestPrice:
    """Prices of a store, dollars per request by kind: an object storage has "get" and "put"."""

    item: str
    usd: Mapping[str, float]
    as_of: str
    source: str


@dataclass(frozen=True)
class PriceProfile:
    """One provider's prices: of functions, and of servers and stores by component of a run's cost."""

    name: str
    label: str
    function: FunctionPrice
    servers: Mapping[str, ServerPrice]
    requests: Mapping[str, RequestPrice]

    @property
    def components(self) -> set[str]:
        """Names of the servers and stores that have a price."""
        return {*self.servers, *self.requests}


@functools.cache
def _catalogue() -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / "prices.toml").read_text("utf-8"))


def profile_names() -> list[str]:
    """Names of the profiles in the catalogue."""
    return list(_catalogue())


def price_profile(name: str) -> PriceProfile:
    """The profile called ``name``; `KeyError` if there is none."""
    entry = dict(_catalogue()[name])
    label, function = entry.pop("label"), FunctionPrice(**entry.pop("function"))
    servers = {component: ServerPrice(**price) for component, price in entry.items() if "usd_per_h" in price}
    requests = {component: _request_price(price) for component, price in entry.items() if component not in servers}
    return PriceProfile(name, label, function, servers, requests)


def _request_price(entry: Mapping[str, Any]) -> RequestPrice:
    """The prices of a store's entry: each ``<kind>_usd`` is the price of one kind of request."""
    usd = {key.removesuffix("_usd"): price for key, price in entry.items() if key.endswith("_usd")}
    return RequestPrice(entry["item"], usd, entry["as_of"], entry["source"])
