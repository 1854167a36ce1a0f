"""Start-up script of local functions: imports once what every function needs, then runs Lithops' own runner.

Lithops starts it as ``preload.py RUNNER ARGUMENT...``; the modules that ``MLLESS_PRELOAD`` names are those that the
job's model needs. The functions are forked from it with everything loaded, so that
a run with eight workers starts in half a second.
"""

# ruff: noqa: E402 - the collector is off during the other imports
import functools
import gc
import importlib
import os
import runpy
import sys

gc.disable()  # imported objects are never garbage, and collecting would take a fifth of the imports' time

from mlless_nb.function.orphans import forget_driver, is_orphan

if __name__ == "__main__" and is_orphan():
    sys.exit()

import lithops.worker.handler  # noqa: F401
import numpy.random  # noqa: F401 - otherwise every function loads it on first use
import redis.utils

import mlless_nb.function.entry  # noqa: F401
from mlless_nb.money import profile_names


def _look_up_once() -> None:
    """Make redis-py look up its own version in the installed packages once, not for each connection (15 ms)."""
    look_up = getattr(redis.utils, "get_lib_version", None)  # not part of its public interface
    if look_up is not None:
        redis.utils.get_lib_version = functools.cache(look_up)
        redis.utils.get_lib_version()


if __name__ == "__main__":
    _look_up_once()
    for name in os.environ.get("MLLESS_PRELOAD", "").split():
        importlib.import_module(name)
    profile_names()  # reads and caches the catalogue
    # Exclude loaded objects from collection: forked functions then share their memory.
    gc.freeze()
    gc.enable()
    # As late as possible: by now its driver has told its watchdog of this process, unless it has stood still.
    if is_orphan():
        sys.exit()
    forget_driver()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
