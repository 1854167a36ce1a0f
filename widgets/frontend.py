"""Which kind of front end a run is watched from."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal

from ..errors import JobError

Frontend = Literal["live", "voila", "batch", "terminal", "none"]
_FORCED: dict[str, Frontend] = {"widget": "live", "text": "batch", "none": "none"}


def detect(shell: Any = None) -> Frontend:
    """The front end of this process.

    * ``live``: a notebook that a user can click in: a widget is shown, and nothing blocks;
    * ``voila``: as live; the page is blank until its cells are over, so a cell never waits;
    * ``batch``: nbclient, nbconvert, papermill: whole lines are printed, and cells wait for their run;
    * ``terminal``: ipython or plain Python: as batch;
    * ``none``: nothing is printed.

    ``MLLESS_PROGRESS=widget|text|none`` decides instead. ``shell`` is for tests.
    """
    asked = os.environ.get("MLLESS_PROGRESS", "").strip().lower()
    if asked:
        if asked not in _FORCED:
            raise JobError("MLLESS_PROGRESS", asked, "widget, text or none")
        return _FORCED[asked]
    if shell is None:
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython is not None else None
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return "terminal"
    if os.environ.get("SERVER_SOFTWARE", "").startswith("voila"):
        return "voila"
    # a client that cannot answer input() has nobody in front of it
    return "live" if getattr(kernel, "_allow_stdin", True) else "batch"


def can_click(frontend: Frontend) -> bool:
    """Whether someone there can press Stop: where nobody can, a cell waits for its run."""
    return frontend in ("live", "voila")
