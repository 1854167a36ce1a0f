"""Functions of this machine whose driver is killed as it starts them, before its watchdog knows of them.

The driver tells the watchdog of a process right after it has started it. One that begins later than its driver ends
looks for itself: nobody would kill it, nor remove what it writes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_DRIVER = "MLLESS_DRIVER"


@contextlib.contextmanager
def naming_driver() -> Iterator[None]:
    """Let processes that this one starts meanwhile know whose they are."""
    os.environ[_DRIVER] = str(os.getpid())
    try:
        yield
    finally:
        os.environ.pop(_DRIVER, None)


def is_orphan() -> bool:
    """Whether this process was started by a driver that has ended since.

    What this process starts is not told of the driver: a function may end before one that it has invoked.
    """
    return os.environ.pop(_DRIVER, str(os.getppid())) != str(os.getppid())
