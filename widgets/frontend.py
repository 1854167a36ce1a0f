"""Detects the kind of front end that shows a run."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal

from ..errors import JobError

Frontend = Literal["live", "voila", "batch", "terminal", "none"]
_FORCED: dict[str, Frontend] = {"widget": "live", "text": "batch", "none": "none"}


def detect(shell: Any = None) -> Frontend:
    """The front end of this process.

    * ``live``: an interactive notebook: a widget is shown, and cells return at once;
    * ``voila``: like live; the page is blank until all cells have run, so a cell never waits;
    * ``batch``: nbclient, nbconvert, papermill: lines of text are printed, and cells wait for their run;
    * ``terminal``: ipython or plain Python: like batch;
    * ``none``: nothing is printed.

    ``MLLESS_PROGRESS=widget|text|none`` overrides the detection. ``shell`` is for tests.
    """
    asked = os.environ.get("MLLESS_PROGRESS", "").strip().lower()
    if asked:
        if asked not in _FORCED:
            raise JobError("MLLESS_PROGRESS", asked, "widget, text or none")
        return _FORCED[asked]
    kernel = getattr(shell_here() if shell is None else shell, "kernel", None)
    if kernel is None:
        return "terminal"
    if os.environ.get("SERVER_SOFTWARE", "").startswith("voila"):
        return "voila"
    # a client that cannot answer input() has no user in front of it
    return "live" if getattr(kernel, "_allow_stdin", True) else "batch"


def shell_here() -> Any:
    """The shell of IPython, also that of a notebook's kernel; None in plain Python."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def can_click(frontend: Frontend) -> bool:
    """Whether a user can press Stop; if not, a cell waits for its run."""
    return frontend in ("live", "voila")
