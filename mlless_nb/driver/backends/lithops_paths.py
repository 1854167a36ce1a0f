"""What Lithops creates on this machine for local functions."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading

#: Held while Lithops copies its runner into its folder: the file it renames has the process' name, not the thread's.
COPYING = threading.Lock()


def paths_of(bucket: str, job: str) -> list[str]:
    """Files and folders of one of Lithops' jobs."""
    from lithops.constants import JOBS_DIR, JOBS_PREFIX, LITHOPS_TEMP_DIR, LOGS_DIR, MODULES_DIR

    jobs = f"{LITHOPS_TEMP_DIR}/{bucket}/{JOBS_PREFIX}"
    return [
        f"{JOBS_DIR}/{job}.done",
        f"{LOGS_DIR}/{job}.log",
        f"{MODULES_DIR}/{job}",
        f"{jobs}/{job}",
        f"{jobs}/{job}-job.json",
    ]


def remove(paths: list[str]) -> None:
    """Remove files and folders, those that exist."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.remove(path)


def keep_private() -> None:
    """Make Lithops' folder private: payloads in it hold URLs with passwords."""
    from lithops.constants import LITHOPS_TEMP_DIR

    os.makedirs(LITHOPS_TEMP_DIR, exist_ok=True)
    with contextlib.suppress(OSError):
        os.chmod(LITHOPS_TEMP_DIR, 0o700)
