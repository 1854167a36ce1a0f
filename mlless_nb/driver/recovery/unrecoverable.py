"""What ends a run that cannot go on."""

from __future__ import annotations


class Unrecoverable(Exception):  # noqa: N818 - it is how a run ends
    """The run cannot go on; ``status`` is how it ends."""

    def __init__(self, reason: str, status: str = "failed") -> None:
        super().__init__(reason)
        self.status = status
