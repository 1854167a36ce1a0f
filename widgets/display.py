"""Shows a run as the front end allows: as a live widget, as lines of text, or not at all."""

from __future__ import annotations

import sys
import time
from typing import Any

from ..driver.interrupts import interrupted_line
from ..errors import WaitInterrupted
from .frontend import Frontend, can_click, detect
from .live_line import follow
from .static import static_bundle
from .view_model import estimate_text, line_of

#: Longest interval between two lines of text, seconds, and the first one. The interval doubles each time, so that a run
#: of a few seconds shows progress too.
LINE_EVERY_S, FIRST_LINE_S = 10.0, 1.0
#: Longest sleep of the main thread while it waits, seconds, so that an interrupt is handled at once.
_POLL_S = 0.05


def show(run: Any, wait: bool = False, frontend: Frontend | None = None) -> None:
    """Show ``run`` from now on.

    In an interactive notebook a live `Dashboard` is displayed; when the run ends, a static view replaces it, which
    stays in the saved notebook. Elsewhere lines are printed: one now, and with ``wait`` one every ten seconds (sooner
    at first) and one at the end; on a terminal it is one line that is rewritten.

    Parameters
    ----------
    run : TrainingRun
    wait : bool
        Return when the run has ended.
    frontend : Frontend, optional
        Replaces the result of `detect`.

    Raises
    ------
    WaitInterrupted
        On an interrupt while it waits, within 50 ms, as from ``run.wait()``.
    """
    try:
        _show(run, wait, frontend or detect())
    except KeyboardInterrupt:
        raise WaitInterrupted(interrupted_line(run.telemetry.state)) from None


def _show(run: Any, wait: bool, kind: Frontend) -> None:
    if can_click(kind):
        from .dashboard import Dashboard

        dashboard = Dashboard(run)
        dashboard.display()
        if wait:
            _follow(run, lambda: not dashboard.is_seen)
            dashboard.join()
        return
    if kind == "none":
        if wait:
            _follow(run, lambda: False)
        return
    print(line_of(run.telemetry.state), flush=True)
    from ..adviser import foresight  # takes a moment to import

    foresight.announce(run)
    if wait:
        if kind == "terminal" and sys.stdout.isatty():
            follow(run, sys.stdout)
        else:
            _follow(run, lambda: True)
        print(line_of(run.telemetry.state), flush=True)
        if kind == "batch":
            _publish(static_bundle(run))
        else:
            print(static_bundle(run)["text/plain"], flush=True)


def _follow(run: Any, may_print: Any) -> None:
    """Wait for the end of ``run`` and print lines, at least one every `LINE_EVERY_S`, while ``may_print()``."""
    gap_s = min(FIRST_LINE_S, LINE_EVERY_S)
    seen, next_line, is_foretold = 0, time.monotonic() + gap_s, False
    while run.telemetry.state.is_live:
        seen = run.telemetry.wait_for_change(seen, _POLL_S)
        if not is_foretold and run.telemetry.state.estimate and may_print():
            is_foretold = True
            print(f"{run.telemetry.state.name}: {estimate_text(run.telemetry.state)}", flush=True)
        if time.monotonic() >= next_line and run.telemetry.state.is_live:
            gap_s = min(2 * gap_s, LINE_EVERY_S)
            next_line += gap_s
            if may_print():
                print(line_of(run.telemetry.state), flush=True)


def _publish(bundle: dict[str, str]) -> None:
    from IPython.display import display

    display(bundle, raw=True)
