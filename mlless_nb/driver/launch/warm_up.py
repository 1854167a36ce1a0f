"""What the first local run needs, prepared in a thread while a user is still typing."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading

from ..backends.lithops_paths import COPYING, keep_private

#: Modules that a local launch imports: Lithops, its backends that are imported by name, and the functions' entry.
IMPORTED = (
    "lithops",
    "lithops.storage.backends.localhost",
    "lithops.monitoring.backends.storage",
    "mlless_nb.function.entry",
)


def warm_up(view: str | None = None) -> None:
    """Prepare the first run in a thread: imports, and Lithops' copy of itself, which take 0.2 to 0.5 s.

    ``view``: the module that will show the run, imported last; importing it takes as long again.
    """
    threading.Thread(target=_warm_up, args=(view,), name="mlless-warm-up", daemon=True).start()


def _warm_up(view: str | None) -> None:
    with contextlib.suppress(Exception):  # the launch will do it then, and report errors
        for name in IMPORTED:
            importlib.import_module(name)
        from lithops.localhost.v1.localhost import DefaultEnvironment

        keep_private()
        with COPYING:
            DefaultEnvironment({"runtime": sys.executable}).setup()
    if view is not None:
        with contextlib.suppress(ImportError):  # who shows the run will say what is missing
            importlib.import_module(view)
