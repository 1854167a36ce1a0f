"""The meter: seconds and requests in, nano-dollars out. Pure.

Amounts are kept as integers of 1e-9 US dollars (``nusd``), rounded up, so that sums are exact and never too low.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from decimal import Decimal

from .catalogue import PriceProfile

NUSD = 1_000_000_000


def to_nusd(usd: float) -> int:
    """Dollars as whole nano-dollars, rounded down (a cap never grows by rounding).

    Dollars are taken as they are written: 0.29 is 290,000,000 nano-dollars, though its binary form lies below.
    """
    return math.floor(Decimal(repr(float(usd))) * NUSD)


def _up(usd: float) -> int:
    """Dollars as whole nano-dollars, rounded up; the noise of the last bits of a float costs nothing."""
    return math.ceil(round(usd * NUSD, 3))


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
    """

    profile: PriceProfile
    memory_mb: int
    n_redis: int = 1
    has_broker: bool = False

    @property
    def function_usd_s(self) -> float:
        """Dollars a second of one function."""
        return self.profile.function.usd_per_gb_s * self.memory_mb / 1024

    @property
    def servers_usd_s(self) -> float:
        """Dollars a second of the Redis servers and the broker."""
        return self.redis_usd_s + self.broker_usd_s

    @property
    def redis_usd_s(self) -> float:
        """Dollars a second of the Redis servers."""
        return self.n_redis * self.profile.redis.usd_per_h / 3600

    @property
    def broker_usd_s(self) -> float:
        """Dollars a second of the broker."""
        return self.profile.broker.usd_per_h / 3600 if self.has_broker else 0.0

    def function_nusd(self, span_s: float) -> int:
        """Bill of one function that ran for ``span_s`` seconds: whole quanta, the tail and the invocation."""
        price = self.profile.function
        quanta = math.ceil(max(span_s + price.tail_s, price.minimum_s) / price.quantum_s - 1e-9)
        return _up(quanta * price.quantum_s * self.function_usd_s + price.request_usd)

    def servers_nusd(self, span_s: float) -> int:
        """Bill of the servers over ``span_s`` seconds, whole seconds up."""
        return _up(math.ceil(span_s - 1e-9) * self.servers_usd_s)

    def others_nusd(self, span_s: float) -> dict[str, int]:
        """Bills by component of the supervisor, and of the servers while it lasts, after ``span_s`` seconds."""
        servers = self.servers_nusd(span_s + self.profile.function.tail_s)
        redis = round(servers * self.redis_usd_s / self.servers_usd_s) if servers else 0
        return {"supervisor": self.function_nusd(span_s), "redis": redis, "broker": servers - redis}

    def requests_nusd(self, gets: int, puts: int) -> int:
        """Bill of so many reads and writes of the object storage."""
        return _up(gets * self.profile.storage.get_usd + puts * self.profile.storage.put_usd)

    def seconds_for(self, nusd: int, *, with_servers: bool = False) -> float:
        """How long a function may run on ``nusd``, seconds; below 0 when not at all. Never too long."""
        price, servers = self.profile.function, self.servers_usd_s if with_servers else 0.0
        # A started quantum is billed whole, and each amount is rounded up.
        left = (nusd - 2) / NUSD - price.request_usd
        if not servers:
            return left / self.function_usd_s - price.quantum_s - price.tail_s

        def span_s(whole_s: int) -> float:
            """Until ``whole_s`` seconds of the servers are over, or what they leave for the function is used up."""
            return min(whole_s, (left - whole_s * servers) / self.function_usd_s - price.quantum_s) - price.tail_s

        # So is a started second of the servers: one more may leave less for the function.
        around_s = math.floor(left / (self.function_usd_s + servers))
        return max(map(span_s, range(around_s - 1, around_s + 3)))


@dataclass(frozen=True)
class Cost:
    """What a run cost, US dollars, by component; ``total`` is their sum.

    Attributes
    ----------
    workers, supervisor : float
        The functions' seconds and invocations.
    redis, broker : float
        The servers' seconds; ``broker`` is 0 without RabbitMQ.
    storage : float
        Requests to the object storage, packing the data included.
    """

    workers: float = 0.0
    supervisor: float = 0.0
    redis: float = 0.0
    broker: float = 0.0
    storage: float = 0.0

    @property
    def total(self) -> float:
        """Sum of all components, US dollars."""
        # All are whole nano-dollars: so is their sum, and it never passes a cap by the last bit of a float.
        return round(math.fsum(dataclasses.astuple(self)), 9)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} ${usd:.6f}" for name, usd in dataclasses.asdict(self).items() if usd)
        return f"${self.total:.6f} ({parts})"
