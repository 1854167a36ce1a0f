"""Short-lived functions through Lithops, for stateless runs and for the preparation of data."""

from __future__ import annotations

from collections.abc import Sequence

from ...bus.messages import Message
from ..servers.services import Services


class LithopsFunctions:
    """Stateless functions through Lithops: every call of `invoke` is a map."""

    def __init__(self, services: Services, folder: str) -> None:
        self._services, self._folder = services, folder
        #: Whether one map waits for the other: so does Lithops on this machine.
        self.are_serial = services.launcher.is_local

    def invoke(self, calls: Sequence[Message]) -> None:
        """Start a function for each call."""
        self._services.launcher.forget_ended()
        self._services.invoke_functions([call.encode().decode() for call in calls], self._folder)

    def are_gone(self) -> bool:
        """Whether all functions that were invoked last have ended; False if that cannot be known."""
        launcher = self._services.launcher
        return launcher.has_job_ended(launcher.newest)

    def kill(self) -> None:
        """Kill the functions on this machine."""
        self._services.launcher.kill()
