"""Removes a run's objects from a storage elsewhere after its driver was killed: a program that the watchdog starts.

Its standard input has one line of JSON: Lithops' configuration of the ``storage``, and the ``prefixes`` of the names.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Any

#: Passes over the objects: requests of a dying function may arrive after the first.
PASSES, PAUSE_S = 3, 0.2


def sweep(storage: Any, prefixes: list[str]) -> None:
    """Remove the objects of a Lithops storage whose names begin with one of ``prefixes``."""
    for prefix in prefixes:
        keys = storage.list_keys(storage.bucket, prefix)
        if keys:
            storage.delete_objects(storage.bucket, keys)


if __name__ == "__main__":
    import lithops

    spec = json.loads(sys.stdin.readline())
    opened = lithops.Storage(storage_config=spec["storage"])
    for left in reversed(range(PASSES)):
        with contextlib.suppress(Exception):  # nobody is there to be told
            sweep(opened, spec["prefixes"])
        time.sleep(PAUSE_S if left else 0)
