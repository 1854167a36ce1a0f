"""A process asks a run of another one to stop: by a file in the folder of the run's record, for which its driver looks.

So every live run can be stopped from elsewhere, also one that lives in a notebook or a script and cannot be attached
to.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from ...errors import MllessError
from ...telemetry.record import runs_folder
from ..run import TrainingRun

#: The file's name, and what it says if the run is a trial whose sweep is to be stopped.
STOP, SWEEP = "stop", "sweep"
#: Seconds between two looks for it.
LOOK_S = 0.25


def request_of(run_id: str) -> Path:
    """The file that asks the run to stop. It is removed once the run has taken the request."""
    return runs_folder() / run_id / STOP


def heed(run: TrainingRun) -> None:
    """Stop ``run`` if it is asked to; returns at its end."""
    request = request_of(run.id)
    while not run._over.wait(LOOK_S):
        with contextlib.suppress(OSError, MllessError):  # its servers do not answer: it is asked again
            if request.exists():
                run.stops_sweep = asks_sweep(run)
                run.stop()
                request.unlink()
    with contextlib.suppress(OSError):
        run.stops_sweep = asks_sweep(run)  # it may have come in the run's last moment
        request.unlink()


def asks_sweep(run: TrainingRun) -> bool:
    """Whether somebody has asked for the end of the sweep that ``run`` is a trial of, also at its end."""
    try:
        return request_of(run.id).read_text("ascii") == SWEEP or run.stops_sweep
    except OSError:  # nobody has, or the request was taken
        return run.stops_sweep
