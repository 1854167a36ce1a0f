"""The money that every function is given before it starts, and the least budget that pays for a start."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .budget import EXIT_S
from .meter import NUSD, Rates

#: Seconds that a function on this machine is given to start on, seconds more for each function, and those on a cloud.
#: Four functions start in half a second on two idle cores; other load or a slower machine makes that three times as
#: long. What is not needed is given back.
LOCAL_START_S, LOCAL_START_EACH_S, CLOUD_START_S = 1.5, 0.06, 5.0
#: Seconds that the first step is given.
FIRST_STEP_S = 0.1


@dataclass(frozen=True)
class StartingMoney:
    """Grants of one run's functions.

    Parameters
    ----------
    rates : Rates
    n_workers : int
    is_local : bool
        Whether the functions run on this machine.
    held_out_gets : int
        Requests that a worker reads its share of the held-out rows with, at most.
    is_resumed : bool
        Whether each worker reads what it goes on from.
    """

    rates: Rates
    n_workers: int
    is_local: bool
    held_out_gets: int = 0
    is_resumed: bool = False

    @property
    def start_s(self) -> float:
        """Seconds that a function is given to start on."""
        return LOCAL_START_S + LOCAL_START_EACH_S * (self.n_workers + 1) if self.is_local else CLOUD_START_S

    @property
    def _span_s(self) -> float:
        return self.start_s + EXIT_S + FIRST_STEP_S

    def worker_nusd(self, slot: int) -> int:
        """Nano-dollars that worker ``slot`` starts on: to start, take a step and end in good order."""
        # The first worker writes the checkpoints and the model.
        requests = self.rates.requests_nusd(6 + self.held_out_gets + self.is_resumed, 2 if slot == 0 else 0)
        return self.rates.function_nusd(self._span_s) + requests

    @property
    def supervisor_nusd(self) -> int:
        """Nano-dollars that the supervisor starts on, the servers' time included; it ends after the workers."""
        span_s = self._span_s + 2 * FIRST_STEP_S
        return self.rates.function_nusd(span_s) + self.rates.servers_nusd(span_s) + self.rates.requests_nusd(1, 1)

    def slice_nusd(self, from_s: float, span_s: float) -> dict[int, int]:
        """What it costs, by slot, to wait ``span_s`` seconds longer than ``from_s`` for the functions to start."""
        rates, until_s = self.rates, from_s + span_s
        each = rates.function_nusd(until_s) - rates.function_nusd(from_s)
        tail_s = rates.profile.function.tail_s
        servers = rates.servers_nusd(until_s + tail_s) - rates.servers_nusd(from_s + tail_s)
        return {-1: each + servers, **dict.fromkeys(range(self.n_workers), each)}

    def least_nusd(self, spent_before_nusd: int) -> int:
        """The least budget that allows a step when the driver spends ``spent_before_nusd`` on storage requests."""
        workers = sum(self.worker_nusd(slot) for slot in range(self.n_workers))
        return workers + self.supervisor_nusd + spent_before_nusd


def least_usd(nusd: int) -> float:
    """Nano-dollars as dollars, rounded up to three significant digits: a budget to name in a sentence."""
    if nusd <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(nusd / NUSD)) - 2)
    return float(f"{math.ceil(nusd / NUSD / unit) * unit:.12g}")
