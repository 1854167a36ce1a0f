"""The money of a stateless run: the grant of each function, what servers cost meanwhile, and the least budget. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..money.budget import EXIT_S
from ..money.start import FIRST_STEP_S, StartingMoney

#: What Lithops itself asks of the object storage for each function: its code, and two messages on its state.
LITHOPS_GETS, LITHOPS_PUTS = 1, 2
#: Reads of packed data by one function, beside those of the run's objects: two minibatches or their bundle's index.
DATA_GETS = 4
#: A function is granted so many times the longest span of an earlier one of its stage.
ROOM = 1.5
#: Stages that follow each other in a step, the last evaluation being one.
MOST_STAGES = 5


@dataclass(frozen=True)
class StatelessMoney(StartingMoney):
    """The grants of one run's functions. Every function is paid in advance; what it does not use is returned.

    Parameters
    ----------
    n_reducers : int
        Functions that merge updates in a step; the first parameters are those of `StartingMoney`.
    is_chained : bool
        Whether functions invoke each other: then a step has a launch function and a merger, too.
    """

    n_reducers: int = 1
    is_chained: bool = False

    def span_s(self, longest_s: float | None = None) -> float:
        """Prepaid seconds of a function; ``longest_s`` is the longest span of an earlier one of its stage."""
        span_s = self.start_s + FIRST_STEP_S if longest_s is None else ROOM * longest_s
        return span_s + EXIT_S

    def requests_nusd(self, stage: str, n_local_steps: int = 1, *, evaluates: bool = False) -> int:
        """Most that a function of ``stage`` may spend on requests, nano-dollars."""
        n_state = 1
        gets, puts = {
            "launch": (1, 0),
            "update": (1 + n_state + DATA_GETS * n_local_steps, n_state + self.n_reducers),
            "reduce": (1 + self.n_workers, 1),
            "merge": (2 + self.n_reducers, 2),
            "evaluate": (1, 0),
        }[stage]
        if evaluates or stage == "evaluate":
            gets += self.held_out_gets
        return self.rates.requests_nusd(gets + LITHOPS_GETS, puts + LITHOPS_PUTS)

    def grant_nusd(
        self, stage: str, longest_s: float | None = None, *, n_local_steps: int = 1, evaluates: bool = False
    ) -> int:
        """The grant of one function of ``stage``, nano-dollars."""
        requests = self.requests_nusd(stage, n_local_steps, evaluates=evaluates)
        return self.rates.function_nusd(self.span_s(longest_s)) + requests

    def end_nusd(self) -> int:
        """What the end of a run needs, nano-dollars: the last evaluation."""
        return self.n_workers * self.grant_nusd("evaluate") if self.held_out_gets else 0

    def least_nusd(self, spent_before_nusd: int) -> int:
        """The least budget that pays for a step and the end, after ``spent_before_nusd`` for the driver's requests."""
        step = self.n_workers * self.grant_nusd("update") + self.n_reducers * self.grant_nusd("reduce")
        if self.is_chained:
            step += 2 * self.grant_nusd("launch") + self.grant_nusd("merge")
        servers = self.rates.servers_nusd(self.servers_s(0.0))
        return spent_before_nusd + step + self.end_nusd() + servers

    def servers_s(self, time_s: float, step_s: float | None = None) -> float:
        """Seconds of the servers that are paid at ``time_s``, before another step of about ``step_s``."""
        step_s = MOST_STAGES * self.start_s if step_s is None else ROOM * step_s
        return time_s + step_s + self.start_s + EXIT_S + self.rates.tail_s
