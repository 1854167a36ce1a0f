"""The price catalogue as data: ``prices.toml``, one profile a provider."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class FunctionPrice:
    """What a function costs: dollars a GB-second in quanta of ``quantum_s`` seconds, and dollars an invocation."""

    item: str
    usd_per_gb_s: float
    quantum_s: float
    minimum_s: float
    request_usd: float
    tail_s: float
    as_of: str
    source: str


@dataclass(frozen=True)
class ServerPrice:
    """What a server costs, dollars an hour, billed by the second."""

    item: str
    usd_per_h: float
    as_of: str
    source: str


@dataclass(frozen=True)
class StoragePrice:
    """What the object storage costs, dollars a request."""

    item: str
    put_usd: float
    get_usd: float
    as_of: str
    source: str


@dataclass(frozen=True)
class PriceProfile:
    """One provider's prices."""

    name: str
    label: str
    function: FunctionPrice
    redis: ServerPrice
    broker: ServerPrice
    storage: StoragePrice


@functools.cache
def _catalogue() -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / "prices.toml").read_text("utf-8"))


def profile_names() -> list[str]:
    """Names of the profiles in the catalogue."""
    return list(_catalogue())


def price_profile(name: str) -> PriceProfile:
    """The profile called ``name``; `KeyError` when there is none."""
    entry = _catalogue()[name]
    return PriceProfile(
        name,
        entry["label"],
        FunctionPrice(**entry["function"]),
        ServerPrice(**entry["redis"]),
        ServerPrice(**entry["broker"]),
        StoragePrice(**entry["storage"]),
    )
