"""The initial grants of functions, and the least budget that pays for a start."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .budget import EXIT_S
from .meter import NUSD, Rates

#: Prepaid start-up seconds of a local function, and more for each function of the run. Four functions start in half a
#: second on two idle cores; other load or a slower machine makes that three times as long. The unused rest is returned.
LOCAL_START_S, LOCAL_START_EACH_S = 1.5, 0.06
#: Those of a cloud function, and of a core in addition: its memory gives it a share of one.
CLOUD_START_S, CLOUD_START_CORE_S = 6.0, 4.0
#: Prepaid seconds of the first step.
FIRST_STEP_S = 0.1


@dataclass(frozen=True)
class StartingMoney:
    """Initial grants of one run's functions.

    Parameters
    ----------
    rates : Rates
    n_workers : int
    is_local : bool
        Whether the functions run on this machine.
    held_out_gets : int
        Most requests that a worker needs to read its share of the held-out rows.
    is_resumed : bool
        Whether each worker reads an earlier run's progress.
    store_end_nusd : int
        Nano-dollars that each worker keeps for its last requests to the frame store.
    coordination_nusd : int
        Nano-dollars that each function keeps for the requests by which it starts and ends, without a Redis.
    n_inviters : int
        Workers that invoke others, those of the lowest slots.
    inviting_nusd : int
        Nano-dollars of the requests that each of these makes for it.
    """

    rates: Rates
    n_workers: int
    is_local: bool
    held_out_gets: int = 0
    is_resumed: bool = False
    store_end_nusd: int = 0
    coordination_nusd: int = 0
    n_inviters: int = 0
    inviting_nusd: int = 0

    @property
    def start_s(self) -> float:
        """Prepaid start-up seconds of a function."""
        if self.is_local:
            return LOCAL_START_S + LOCAL_START_EACH_S * (self.n_workers + 1)
        return CLOUD_START_S + CLOUD_START_CORE_S / self.rates.core_share

    @property
    def unheard_start_s(self) -> float:
        """Seconds to be billed for a start that nobody hears of: on a cloud all that were granted."""
        return 0.0 if self.is_local else self.start_s

    def end_margin_nusd(self, *, is_supervisor: bool) -> int:
        """The part of a grant that is neither spent nor returned: a cloud's runtime may end later than is estimated."""
        return 0 if self.is_local else self.rates.late_end_nusd(with_servers=is_supervisor)

    @property
    def _span_s(self) -> float:
        return self.start_s + EXIT_S + FIRST_STEP_S

    def worker_nusd(self, slot: int) -> int:
        """Initial grant of worker ``slot``, nano-dollars: to start, take a step and end in good order."""
        # The first worker writes the checkpoints and the model.
        requests = self.rates.requests_nusd(6 + self.held_out_gets + self.is_resumed, 2 if slot == 0 else 0)
        requests += self.inviting_nusd * (slot < self.n_inviters)
        requests += self.store_end_nusd + self.coordination_nusd
        return self.rates.function_nusd(self._span_s) + requests + self.end_margin_nusd(is_supervisor=False)

    @property
    def supervisor_nusd(self) -> int:
        """Initial grant of the supervisor, nano-dollars, including the servers' time; it ends after the workers.

        `Rates.outliving_nusd` is in it, too, which is not to be spent.
        """
        span_s = self._span_s + 2 * FIRST_STEP_S
        requests = self.rates.requests_nusd(1, 1) + self.coordination_nusd
        seconds = self.rates.function_nusd(span_s) + self.rates.servers_nusd(span_s) + self.rates.outliving_nusd
        return seconds + requests + self.end_margin_nusd(is_supervisor=True)

    def slice_nusd(self, from_s: float, span_s: float) -> dict[int, int]:
        """Nano-dollars by slot for ``span_s`` more seconds of start-up after ``from_s``; -1 is the supervisor."""
        rates, until_s = self.rates, from_s + span_s
        each = rates.function_nusd(until_s) - rates.function_nusd(from_s)
        servers = rates.servers_nusd(until_s + rates.tail_s) - rates.servers_nusd(from_s + rates.tail_s)
        return {-1: each + servers, **dict.fromkeys(range(self.n_workers), each)}

    def least_nusd(self, spent_before_nusd: int) -> int:
        """The least budget that pays for one step, if the driver spends ``spent_before_nusd`` on storage requests."""
        workers = sum(self.worker_nusd(slot) for slot in range(self.n_workers))
        return workers + self.supervisor_nusd + spent_before_nusd


def least_usd(nusd: int) -> float:
    """Nano-dollars as dollars, rounded up to three significant digits, for messages."""
    if nusd <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(nusd / NUSD)) - 2)
    return float(f"{math.ceil(nusd / NUSD / unit) * unit:.12g}")
