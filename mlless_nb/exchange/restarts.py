"""How a worker's rounds end before the run does: the run is aborted, or goes on from a checkpoint."""

from __future__ import annotations

from typing import NamedTuple


class RoundEnded(Exception):  # noqa: N818 - it is news, not a mistake
    """A round was not completed. ``granted_nusd``: money, nano-dollars, that its worker was granted in it."""

    granted_nusd = 0

    def keep_grant(self, nusd: int) -> None:
        """The round had granted ``nusd``: the worker has heard nothing of it, and is to spend or to return it."""
        self.granted_nusd = nusd


class Aborted(RoundEnded):
    """The run was aborted; the message is the reason, ``status`` the run's status."""

    def __init__(self, reason: str, status: str = "failed") -> None:
        super().__init__(reason)
        self.status = status


class Fenced(Aborted):
    """Another invocation has this function's slot: it must end, and send nothing more."""


class LostData(Aborted):
    """Data of the run is missing from a server. The run can go on from a checkpoint, if the driver is there."""

    def keep_grant(self, nusd: int) -> None:
        """Nothing: that the money was reserved may be gone with the data."""


class Restart(NamedTuple):
    """From where the run's workers go on after a fault.

    ``number`` counts the restarts of the run, 0 before the first; rounds of different numbers do not meet. ``step`` is
    that of the checkpoint from which all workers go on; 0: from the start. That checkpoint was stored after the restart
    of number ``origin``.
    """

    number: int = 0
    step: int = 0
    origin: int = 0


#: Of a run that was not restarted.
FROM_THE_START = Restart()


class Restarted(RoundEnded):
    """The run goes on from a checkpoint: the rounds of this worker are those of an earlier restart."""

    def keep_grant(self, nusd: int) -> None:
        """Nothing: the run's data may have been lost and restored meanwhile, without what was reserved in the round."""

    def __init__(self, restart: Restart) -> None:
        super().__init__(f"the run goes on from step {restart.step}")
        self.restart = restart


def rounds_prefix(prefix: str, restart: Restart) -> str:
    """The prefix of the keys of rounds after ``restart``, for a job whose keys begin with ``prefix``."""
    return f"{prefix}{restart.number}:" if restart.number else prefix
