"""What AWS Lambda calls: notes when it did, and hands the invocation to Lithops' own handler.

Lies at the root of a function's archive, beside Lithops' ``entry_point``, and imports nothing of this package: what is
wrong with that is reported by Lithops, with its cause.
"""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

#: When the invocation began, on the clock that counts from the machine's boot, seconds; "" for the first one of a
#: runtime, whose start is billed, too. Processes that Lithops forks inherit it.
INVOKED = "MLLESS_INVOKED_S"

_began: list[float] = []


def lambda_handler(event: Any, context: Any) -> Any:
    """Run one invocation."""
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    os.environ[INVOKED] = repr(now_s) if _began else ""
    _began.append(now_s)
    return importlib.import_module("entry_point").lambda_handler(event, context)
