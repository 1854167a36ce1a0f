"""The meter: seconds and requests in, nano-dollars out. Pure.

Amounts are kept as integers of 1e-9 US dollars (``nusd``), rounded up, so that sums are exact and never too low.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from .catalogue import PriceProfile

NUSD = 1_000_000_000
#: Bills of requests that are kept, so that they are not computed in every step.
MOST_KNOWN = 1000


def to_nusd(usd: float) -> int:
    """Dollars as whole nano-dollars, rounded down (a cap never grows by rounding).

    The decimal form counts: 0.29 is 290,000,000 nano-dollars, although its binary form is slightly smaller.
    """
    return math.floor(Decimal(repr(float(usd))) * NUSD)


def _up(usd: float) -> int:
    """Dollars as whole nano-dollars, rounded up; errors in a float's last bits are ignored."""
    return math.ceil(usd * NUSD - 0.0005)


@dataclass(frozen=True)
class Rates:
    """Prices of one job's components.

    Parameters
    ----------
    profile : PriceProfile
    memory_mb : int
        Memory of a function, MB.
    n_redis : int
        Redis servers in use.
    has_broker : bool
        Whether a RabbitMQ server is in use.
    store_servers : (str, int)
        Component and number of the servers that keep frames instead of Redis; ("", 0) if there are none.
    """

    profile: PriceProfile
    memory_mb: int
    n_redis: int = 1
    has_broker: bool = False
    store_servers: tuple[str, int] = ("", 0)

    @cached_property
    def function_usd_s(self) -> float:
        """Dollars per second of one function."""
        return self.profile.function.usd_per_gb_s * self.memory_mb / 1024

    @cached_property
    def core_share(self) -> float:
        """Share of a core that a function has by its memory, at most 1."""
        return min(self.memory_mb / self.profile.function.core_mb, 1.0)

    @cached_property
    def tail_s(self) -> float:
        """Seconds that a function is billed after it has returned; they grow as its share of a core shrinks."""
        return self.profile.function.tail_s / self.core_share

    @cached_property
    def server_usd_s(self) -> dict[str, float]:
        """Dollars per second of the servers in use, by component of `PriceProfile.servers`; a store's come last."""
        n_servers = {"redis": self.n_redis, "broker": int(self.has_broker)}
        if self.store_servers[1]:
            name, n = self.store_servers
            n_servers[name] = n
        return {name: n * self.profile.servers[name].usd_per_h / 3600 for name, n in n_servers.items()}

    @cached_property
    def servers_usd_s(self) -> float:
        """Dollars per second of all servers together."""
        return sum(self.server_usd_s.values())

    @cached_property
    def servers_start_usd(self) -> float:
        """Dollars of the start-up of the store's servers, billed once."""
        name, n_servers = self.store_servers
        return self.profile.servers[name].start_s * self.server_usd_s[name] if n_servers else 0.0

    def run_usd_s(self, n_functions: int) -> float:
        """Dollars per second of a run with ``n_functions``, servers included."""
        return n_functions * self.function_usd_s + self.servers_usd_s

    def function_nusd(self, span_s: float) -> int:
        """Bill of one function that ran for ``span_s`` seconds: whole quanta, the tail and the invocation."""
        price = self.profile.function
        quanta = math.ceil(max(span_s + self.tail_s, price.minimum_s) / price.quantum_s - 1e-9)
        return _up(quanta * price.quantum_s * self.function_usd_s + price.request_usd)

    def lost_nusd(self, span_s: float) -> int:
        """Bill of a function that was lost after ``span_s`` seconds: what it is billed after a return is in them."""
        return self.function_nusd(max(span_s - self.tail_s, 0.0))

    def late_end_nusd(self, *, with_servers: bool = False) -> int:
        """The most by which a runtime that ends late raises the bill of its function, and of the servers meanwhile."""
        price, servers = self.profile.function, self.servers_usd_s if with_servers else 0.0
        late_s = math.ceil(price.tail_margin_s / price.quantum_s) * price.quantum_s
        # The bills with and without it are rounded up, each.
        return _up(late_s * self.function_usd_s) + _up(math.ceil(late_s) * servers) + 2

    def servers_nusd(self, span_s: float) -> int:
        """Bill of the servers' start-up and of ``span_s`` seconds, rounded up to whole ones."""
        return _up(math.ceil(span_s - 1e-9) * self.servers_usd_s + self.servers_start_usd)

    @property
    def outliving_nusd(self) -> int:
        """A second of the servers, reserved beyond a supervisor's grant: if they do not answer, workers outlive it."""
        return _up(self.servers_usd_s)

    def servers_by_component(self, nusd: int) -> dict[str, int]:
        """The servers' bill of ``nusd`` split by component; the parts sum to ``nusd``."""
        *names, last = self.server_usd_s
        running = max(nusd - _up(self.servers_start_usd), 0)  # the start-up is that of the last one
        parts = {name: round(running * self.server_usd_s[name] / self.servers_usd_s) if nusd else 0 for name in names}
        return {**parts, last: nusd - sum(parts.values())}

    def store_nusd(self, component: str, **counts: int) -> int:
        """Bill of a store's requests; ``counts`` are numbers of requests by kind, as in `PriceProfile.requests`."""
        price = self.profile.requests[component]
        return _up(sum(count * price.usd[kind] for kind, count in counts.items()))

    def requests_nusd(self, gets: int, puts: int) -> int:
        """Bill of ``gets`` reads and ``puts`` writes of the object storage."""
        known = self._known_requests  # called in every step, mostly for the numbers of the step before
        nusd = known.get((gets, puts))
        if nusd is None:
            if len(known) >= MOST_KNOWN:
                known.clear()
            nusd = known[gets, puts] = self.store_nusd("storage", get=gets, put=puts)
        return nusd

    @cached_property
    def _known_requests(self) -> dict[tuple[int, int], int]:
        return {}

    def seconds_for(self, nusd: int, *, with_servers: bool = False) -> float:
        """How long ``nusd`` pays for a function, seconds, never overestimated; negative if not at all."""
        price, servers = self.profile.function, self.servers_usd_s if with_servers else 0.0
        # A started quantum is billed whole, and each amount is rounded up.
        left = (nusd - 2) / NUSD - price.request_usd
        if not servers:
            return left / self.function_usd_s - price.quantum_s - self.tail_s
        left -= self.servers_start_usd

        def span_s(whole_s: int) -> float:
            """Seconds with ``whole_s`` seconds of the servers billed: limited by these, or by the function's rest."""
            return min(whole_s, (left - whole_s * servers) / self.function_usd_s - price.quantum_s) - self.tail_s

        # A started second of the servers is billed whole too, and one more may leave less for the function.
        around_s = math.floor(left / (self.function_usd_s + servers))
        return max(map(span_s, range(around_s - 1, around_s + 3)))
