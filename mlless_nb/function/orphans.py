"""Functions of this machine whose driver is killed as it starts them, before its watchdog knows of them.

The driver tells the watchdog of a process right after it has started it. One that begins later than its driver ends
looks for itself: nobody would kill it, nor remove what it writes.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

_DRIVER = "MLLESS_DRIVER"
_lock = threading.Lock()
_n_naming = 0


@contextlib.contextmanager
def naming_driver() -> Iterator[None]:
    """Let processes that this one starts meanwhile know whose they are; several threads may do so at once."""
    global _n_naming  # the environment is one for all threads, too
    with _lock:
        _n_naming += 1
        os.environ[_DRIVER] = str(os.getpid())
    try:
        yield
    finally:
        with _lock:
            _n_naming -= 1
            if not _n_naming:
                os.environ[_DRIVER] = ""  # not removed: another thread may be copying the environment


def is_orphan() -> bool:
    """Whether this process was started by a driver that has ended since."""
    return os.environ.get(_DRIVER, "") not in ("", str(os.getppid()))


def forget_driver() -> None:
    """Do not tell what this process starts of the driver: a function may end before one that it has invoked."""
    os.environ.pop(_DRIVER, None)
