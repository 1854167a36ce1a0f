"""Interpreter of localhost functions: imports what every function needs once, then becomes Lithops' own runner.

Lithops starts it as ``preload.py RUNNER ARGUMENT...``; the functions are forked from it with everything loaded, which
is what makes a run with eight workers start in half a second.
"""

# ruff: noqa: E402 - the collector is off while the rest is imported
import functools
import gc
import runpy
import sys

gc.disable()  # of what the imports make nothing can go: looking through it again and again takes a fifth of their time

import lithops.worker.handler  # noqa: F401
import numpy.random  # noqa: F401 - loaded at its first use otherwise, by every function
import redis.utils

import mlless_nb.function.entry  # noqa: F401
from mlless_nb.money import profile_names


def _look_up_once() -> None:
    """Have redis-py look its own version up in the installed packages once, not for each connection (15 ms)."""
    look_up = getattr(redis.utils, "get_lib_version", None)  # not part of its interface
    if look_up is not None:
        redis.utils.get_lib_version = functools.cache(look_up)
        redis.utils.get_lib_version()


if __name__ == "__main__":
    _look_up_once()
    profile_names()  # reads the catalogue, which is kept
    # What is loaded stays: the functions need not look through it, and share its memory.
    gc.freeze()
    gc.enable()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
