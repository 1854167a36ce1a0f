"""What a stateless run needs of the platform that its functions run on, and how a run ends in the middle of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..bus.messages import Message
from ..job.stop_rules import Verdict

CAPPED = Verdict("capped", "the budget does not pay for another step")


class Ends(Exception):  # noqa: N818 - it is how a run ends, not a mistake
    """The run ends in the middle of a step; its last model is that of the step before."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.verdict = Verdict(status, reason)


class Functions(Protocol):
    """Invokes functions, and knows about their processes if these are on this machine.

    Attributes
    ----------
    are_serial : bool
        Whether functions that are invoked wait until those invoked before have all ended.
    """

    @property
    def are_serial(self) -> bool:
        """See above."""

    def invoke(self, calls: Sequence[Message]) -> None:
        """Start a function for each call."""

    def are_gone(self) -> bool:
        """Whether the functions that were invoked last have all ended; False if that cannot be known."""

    def kill(self) -> None:
        """Kill the functions, if that is possible."""
