"""How long a function's runtime has lived: providers bill from its start, not from the call that asked for it."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

from .lambda_handler import INVOKED


def is_cold() -> bool | None:
    """Whether this invocation is the first one of its runtime; None where no `lambda_handler` has noted that."""
    invoked = os.environ.get(INVOKED)
    return None if invoked is None else invoked == ""


def billed_s() -> float:
    """Seconds that this invocation has been billed for: since it began, with the runtime's start if it is the first.

    Where no `lambda_handler` has noted that, those since the runtime was started. Infinity where the system does not
    tell (no /proc, or the process group's leader, which is the runtime, is outside the container).
    """
    try:
        if invoked := os.environ.get(INVOKED):
            return max(time.clock_gettime(time.CLOCK_BOOTTIME) - float(invoked), 0.0)
        stat = Path(f"/proc/{os.getpgid(0) or os.getpid()}/stat").read_text()
        # "Field 22 (starttime)" of proc(5), in ticks since the boot; the name in field 2 may contain spaces.
        began_s = int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - began_s, 0.0)
    except (OSError, AttributeError, IndexError, ValueError):
        return math.inf
