"""Reading from a bus with patience."""

from __future__ import annotations

import time
from collections.abc import Callable

from mlless_nb.bus import Bus

#: Seconds in which the next message has arrived, even on a busy machine.
SOON_S = 20.0


def receive(bus: Bus, topic: str, n: int) -> list[bytes]:
    """The next ``n`` messages, or those until none came soon: many of them may take any time."""
    messages: list[bytes] = []
    deadline = time.monotonic() + SOON_S
    while len(messages) < n and time.monotonic() < deadline:
        if more := bus.receive(topic, 1.0):
            messages += more
            deadline = time.monotonic() + SOON_S
    return messages


def repeat(action: Callable[[], object]) -> None:
    """Do it again and again until it raises, or ought to have done so by now."""
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        action()
