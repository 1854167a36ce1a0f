"""A second supervisor, run by the driver: it ends a run whose own supervisor sent no final message."""

from __future__ import annotations

from ..bus.messages import Ended
from ..job.stop_rules import StopRules
from ..supervisor.loop import Supervisor


class Successor(Supervisor):
    """See `Supervisor`. All functions of the run are gone; what they left is read, nothing is decided."""

    def conclude(self, called_off: tuple[str, str] | None) -> Ended:
        """Send every row again, and the final message; returns it.

        Parameters
        ----------
        called_off : tuple or None
            Status and reason with which the run was aborted, if it was.
        """
        self._workers.aborted = called_off
        while self._read_steps(0.001):
            pass
        while self._hear(0.0):
            pass
        return self._last_word()

    def _judge(self) -> tuple[str, str]:
        """How the run ended by the plan or the rules."""
        plan, rules = self._log.read_plan(), StopRules(self._job.stop, self._metric)
        step = self._rows.step
        if plan.stop_after is not None and step >= plan.stop_after:
            return plan.stop_status, plan.stop_reason
        verdict = rules.end(step, self._rows.epoch) if step else None
        return (verdict.status, verdict.reason) if verdict is not None else super()._judge()
