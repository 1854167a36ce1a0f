"""The driver's lease, without which functions end; kept also while the driver waits for a cloud."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from ...exchange import Coordinator

#: Lease of the driver, seconds; when it expires the run ends.
DRIVER_LEASE_S = 30.0


@contextlib.contextmanager
def kept(log: Coordinator, every_s: float = DRIVER_LEASE_S / 10) -> Iterator[None]:
    """Renew the driver's lease in a thread every ``every_s`` seconds, unless the process is about to exit.

    For calls whose end depends on others, e.g. on a cluster that pulls an image before a function can be invoked.
    """
    is_over = threading.Event()

    def renew() -> None:
        while not is_over.wait(every_s) and threading.main_thread().is_alive():
            with contextlib.suppress(Exception):  # the driver meets the same error, and handles it
                log.renew("driver", DRIVER_LEASE_S)

    thread = threading.Thread(target=renew, name="mlless-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
