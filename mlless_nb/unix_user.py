"""Names the Unix user for Lithops, whose folder of files is ``lithops-$USER`` in the temporary folder."""

from __future__ import annotations

import os
import pwd
import sys


def set_user() -> None:
    """Set ``USER`` where it is missing or names another user, as in containers and after ``su -m``.

    Lithops would take the folder of root there, which nobody else can write. Lithops reads ``USER`` once, when it is
    imported, and functions on this machine inherit it: if it was imported before, nothing is changed.
    """
    if "lithops" not in sys.modules and not _is_ours(os.environ.get("USER", "")):
        os.environ["USER"] = _own_name()


def _is_ours(name: str) -> bool:
    """Whether ``name`` is not that of another user; one that the system does not know may be given on purpose."""
    try:
        return pwd.getpwnam(name).pw_uid == os.getuid()
    except KeyError:
        return bool(name)


def _own_name() -> str:
    """The user's name, or number where there is none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
