"""What a run's workers did to the store of their frames: requests, bytes and its start-up, with their dollars."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ..plurals import count
from .meter import NUSD, Rates


@dataclass(frozen=True)
class StoreUse:
    """The requests to a run's store of frames, and the frames' bytes: a part of the run's bill.

    ``requests_usd`` is what the workers' requests cost by the profile, 0 where it has no price for them: where servers
    are billed by the hour. ``start_s`` seconds of their start-up are billed, as ``start_usd``. No profile has a price
    of bytes that stay in a region; DynamoDB's requests are priced by size. All dollars are in `Cost`, too.
    """

    name: str
    n_puts: int
    n_gets: int
    put_bytes: int
    got_bytes: int
    requests_usd: float = 0.0
    start_s: float = 0.0
    start_usd: float = 0.0

    @classmethod
    def of(cls, name: str, told: Mapping[str, int], rates: Rates) -> Self | None:
        """The use of the store ``name`` by what a supervisor ``told`` (`Ended.store_use`); None if it told nothing."""
        if not told:
            return None
        servers, n_servers = rates.store_servers
        start_s = rates.profile.servers[servers].start_s if n_servers else 0.0
        return cls(
            name,
            told.get("n_puts", 0),
            told.get("n_gets", 0),
            told.get("put_bytes", 0),
            told.get("got_bytes", 0),
            told.get("nusd", 0) / NUSD,
            start_s,
            rates.servers_start_usd,
        )

    @classmethod
    def from_json(cls, fields: Any) -> Self | None:
        """From a record; None for one of an earlier version, which has none."""
        return cls(**fields) if isinstance(fields, dict) else None

    def to_json(self) -> dict[str, Any]:
        """The fields, for a record."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        requests = f" (${self.requests_usd:.6f})" if self.requests_usd else ""
        start = f", {self.start_s:g} s of start-up (${self.start_usd:.6f})" if self.start_s else ""
        moved = (
            f"{count(self.n_puts, 'put')} of {self.put_bytes:,} B, {count(self.n_gets, 'get')} of {self.got_bytes:,} B"
        )
        return f"frames in {self.name}: {moved}{requests}{start}"
