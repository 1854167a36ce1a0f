"""A second supervisor, in the driver's process: it concludes a run whose supervisor sent no final message."""

from __future__ import annotations

from ..bus.messages import Ended
from ..job.stop_rules import StopRules
from ..storage import run_objects
from ..supervisor.loop import Supervisor
from ..supervisor.takeover import whole_log


class Successor(Supervisor):
    """A `Supervisor` for a run whose functions have all ended: it reads their messages and reports, decides nothing.

    Attributes
    ----------
    over_s : float
        When they had ended, seconds after the run.
    """

    over_s = 0.0

    @property
    def _time_s(self) -> float:
        return self.over_s

    def conclude(self, called_off: tuple[str, str] | None) -> Ended:
        """Send all rows again, then the final message, which is returned.

        Parameters
        ----------
        called_off : tuple or None
            Status and reason with which the run was aborted, if it was.
        """
        self._workers.aborted = called_off
        for entries in whole_log(self._log, self._rows):
            self._take_in(entries)
        while self._hearing.hear(0.0):
            pass
        return self._last_word()

    def _judge(self) -> tuple[str, str]:
        """Status and reason by the plan or the stop rules."""
        plan, rules = self._log.read_plan(), StopRules(self._job.stop, self._rows.model.metric)
        step = self._rows.step
        if plan.stop_after is not None and step >= plan.stop_after:
            return plan.stop_status, plan.stop_reason
        # All steps are of no use without their model, which workers store last.
        is_stored = run_objects.model_key(self._job.job_id) in self._objects.list(f"runs/{self._job.job_id}/")
        verdict = rules.end(step, self._rows.epoch) if step and is_stored else None
        return (verdict.status, verdict.reason) if verdict is not None else super()._judge()
