"""A second supervisor, in the driver's process: it concludes a run whose supervisor sent no final message."""

from __future__ import annotations

from ..bus.messages import Ended
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
