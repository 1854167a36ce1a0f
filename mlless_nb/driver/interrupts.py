"""What is said when an interrupt has ended the waiting for a run. Pure, but for who is there to read it."""

from __future__ import annotations

import sys

from ..one_line import shell_here
from ..telemetry.live import RunState


def is_interactive() -> bool:
    """Whether this process outlives an interrupt: that of a notebook or of a prompt, not that of a script."""
    return shell_here() is not None or hasattr(sys, "ps1")


def interrupted_line(state: RunState) -> str:
    """What becomes of a run when an interrupt has ended the waiting for it."""
    so_far = f"step {state.step:,}, ${state.spent_usd:.4g} so far"
    hourly = f", ${state.rate_usd_s * 3600:.3g} an hour" if state.rate_usd_s > 0 else ""
    if not state.is_live:
        return f"run {state.name!r} has ended: {state.status}"
    if state.is_detached or is_interactive():
        return f"run {state.name!r} goes on ({so_far}{hourly}); mlless_nb.attach({state.name!r}).stop() ends it"
    return (
        f"run {state.name!r} ends with this script ({so_far}); what it has learnt is kept: "
        f"mlless_nb.attach({state.name!r}).model"
    )
