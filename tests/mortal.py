"""A worker that dies by itself at a chosen step, once in a run: tests see no race between its end and the run's.

The test's environment says which (`worker`): `runtime_server` prepares functions that it forks, `sitecustomize` others.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

#: Seconds that a worker waits for a checkpoint to go on from.
PATIENCE_S = 120.0
#: Variables: the slot and the step, and a file that is made by the one who dies.
WHO, MARK = "MORTAL_WORKER", "MORTAL_MARK"


def worker(slot: int, step: int, mark: Path) -> dict[str, str]:
    """The environment of a run in which the worker of ``slot`` dies at ``step`` and makes the file ``mark``."""
    return {WHO: f"{slot}:{step}", MARK: str(mark)}


def prepare() -> None:
    """Let a worker of this process die, if the environment says so: before it publishes, once a checkpoint is whole."""
    if WHO not in os.environ:
        return
    from mlless_nb.storage.run_objects import newest_whole
    from mlless_nb.worker.checkpoints import Checkpoints

    slot, step = map(int, os.environ[WHO].split(":"))
    is_due = Checkpoints.is_due

    def dies(self: Checkpoints, at: int) -> bool:
        if self._slot == slot and at >= step and not os.path.exists(os.environ[MARK]):
            give_up_at = time.monotonic() + PATIENCE_S
            while not newest_whole(self._objects, self._job_id).checkpoint.step:
                if time.monotonic() > give_up_at:
                    raise TimeoutError("there is no checkpoint")
                time.sleep(0.002)
            Path(os.environ[MARK]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return is_due(self, at)

    Checkpoints.is_due = dies  # type: ignore[method-assign]
