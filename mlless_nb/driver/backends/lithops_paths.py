"""What Lithops creates on this machine for local functions."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading

from ...errors import ServiceError

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


def keep_private() -> str:
    """Make Lithops' folder private, and return it: payloads in it hold URLs with passwords.

    Raises
    ------
    ServiceError
        If it belongs to another user.
    """
    try:
        from lithops.constants import LITHOPS_TEMP_DIR  # importing Lithops makes the folder

        folder = str(LITHOPS_TEMP_DIR)
        os.makedirs(folder, exist_ok=True)
        if os.stat(folder).st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "of another user", folder)
    except PermissionError as error:
        raise ServiceError(
            f"backend: {error.filename} cannot be used, it belongs to another user: "
            "set TMPDIR to a folder of your own before Python starts"
        ) from None
    with contextlib.suppress(OSError):
        os.chmod(folder, 0o700)
    return folder
