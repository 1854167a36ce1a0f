"""The cost of a run, by component."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from .meter import NUSD
from .store_use import StoreUse

#: The components of every run's cost: functions, servers (``broker`` is 0 without RabbitMQ) and the object storage.
COMPONENTS = ("workers", "supervisor", "redis", "broker", "storage")
#: The component of functions that prepare stored files, their requests and the servers' seconds meanwhile.
PREPARATION = "preparation"
#: The components that are functions.
FUNCTIONS = "supervisor", "workers"


class Cost(Mapping[str, float]):
    """The cost of a run, US dollars, by component; ``total`` is the sum. ``cost["redis"]`` equals ``cost.redis``.

    Parameters
    ----------
    store : StoreUse, optional
        The requests and bytes of the store of frames, which are a part of some components.
    workers, supervisor : float
        The functions' seconds and invocations.
    redis, broker : float
        The servers' seconds; ``broker`` is 0 without RabbitMQ.
    storage : float
        Requests to the object storage, including those that packed the data.
    **others : float
        Other components that were billed, such as another store's requests.
    """

    def __init__(self, store: StoreUse | None = None, /, **usd: float) -> None:
        #: None while the run goes on, and where nobody has told of it.
        self.store = store
        self._usd: dict[str, float] = dict.fromkeys(COMPONENTS, 0.0) | usd

    @classmethod
    def of_nusd(cls, nusd: Mapping[str, int], store: StoreUse | None = None) -> Cost:
        """The cost, from nano-dollars by component."""
        return cls(store, **{component: amount / NUSD for component, amount in nusd.items()})

    @property
    def total(self) -> float:
        """Sum of all components, US dollars."""
        # All components are whole nano-dollars. Rounding keeps the sum from exceeding a cap by a float's last bit.
        return round(math.fsum(self._usd.values()), 9)

    def __getitem__(self, component: str) -> float:
        return self._usd[component]

    def __getattr__(self, component: str) -> float:
        if component.startswith("_") or component not in self._usd:
            raise AttributeError(f"a cost has no component {component!r}")
        return self._usd[component]

    def __iter__(self) -> Iterator[str]:
        return iter(self._usd)

    def __len__(self) -> int:
        return len(self._usd)

    def __hash__(self) -> int:
        return hash(frozenset(self._usd.items()))

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._usd]

    def __repr__(self) -> str:
        return f"Cost({', '.join(f'{component}={usd!r}' for component, usd in self._usd.items())})"

    def __str__(self) -> str:
        parts = ", ".join(f"{component} ${usd:.6f}" for component, usd in self._usd.items() if usd)
        return f"${self.total:.6f} ({parts})" + (f"; {self.store}" if self.store is not None else "")


def cut(costs: dict[str, int], most: int | None, first: str = "supervisor") -> dict[str, int]:
    """``costs`` by component, reduced so that their sum is at most ``most`` (None: not reduced), the ``first`` first.

    Functions that were lost are what may be on the bill for too long.
    """
    costs, over = dict(costs), 0 if most is None else max(sum(costs.values()) - most, 0)
    for component in sorted(costs, key=lambda name: name != first):
        less = min(over, costs[component])
        costs[component] -= less
        over -= less
    return costs
