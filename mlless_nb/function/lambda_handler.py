"""What AWS Lambda calls: notes when it did, and hands the invocation to Lithops' own handler.

Lies at the root of a function's archive, beside Lithops' ``entry_point``, and imports nothing of this package before an
invocation: what is wrong with that is reported by Lithops, with its cause.
"""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

#: When the invocation began, on the clock that counts from the machine's boot, seconds; "" for the first one of a
#: runtime, whose start is billed, too. Processes that Lithops forks inherit it.
INVOKED = "MLLESS_INVOKED_S"

#: The key of an event that asks for the link to a Redis, see `mlless_nb.function.probing`.
PROBE = "mlless_probe"

_began: list[float] = []


def lambda_handler(event: Any, context: Any) -> Any:
    """Run one invocation."""
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    os.environ[INVOKED] = repr(now_s) if _began else ""
    _began.append(now_s)
    if isinstance(event, dict) and PROBE in event:
        return importlib.import_module("mlless_nb.function.probing").answer(event[PROBE])
    return importlib.import_module("entry_point").lambda_handler(event, context)
