"""A second supervisor, in the driver's process: it concludes a run whose supervisor sent no final message."""

from __future__ import annotations

import contextlib

from ...bus.messages import Ended
from ...exchange import LostData
from ...exchange.plan import NO_PLAN
from ...supervisor.ending import judged
from ...supervisor.loop import Supervisor
from ...supervisor.takeover import whole_log


class SubstituteSupervisor(Supervisor):
    """A `Supervisor` for a run whose functions have all ended: it reads their messages and reports, decides nothing.

    Attributes
    ----------
    over_s : float
        When they had ended, seconds after the run.
    plan : Plan
        The newest one that the driver knows; servers that lost their data have none.
    """

    over_s, plan = 0.0, NO_PLAN

    @property
    def _time_s(self) -> float:
        return self.over_s

    def conclude(self, aborted: tuple[str, str] | None) -> Ended:
        """Send all rows again, then the final message, which is returned.

        Parameters
        ----------
        aborted : tuple or None
            Status and reason with which the run was aborted, if it was.
        """
        self._workers.aborted = aborted
        self._bill.stand_in()
        if not self._bus.tells_again("supervisor"):
            self._bill.miss_past()
        while self._incoming.receive(0.0, is_past=True):
            pass
        with contextlib.suppress(LostData):
            for entries in whole_log(self._log, self._rows):  # after who was replaced: it says what they have spent
                self._take_in(entries)
            while self._read_steps(0.001):  # the server's clock may have been set back
                pass
        return self._final_message()

    def _judge(self) -> tuple[str, str]:
        plan = max(self.plan, self._log.read_plan(), key=lambda one: one.version)
        return judged(self._job.job_id, plan, self._rows.step, self._objects)
