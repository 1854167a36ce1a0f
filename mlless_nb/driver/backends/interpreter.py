"""The interpreter of local functions: a script that runs this one, with what functions need set before it starts."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import platformdirs

from ...errors import ServiceError
from ...function.malloc import large_pages

#: The script that the interpreter of local functions runs.
PRELOAD = Path(__file__).resolve().parents[2] / "function" / "preload.py"


def interpreter(modules: Sequence[str] = ()) -> str:
    """A script that runs `PRELOAD` with this interpreter; Lithops' ``runtime`` is one path without arguments.

    ``modules`` are imported in it as well, before any function is forked.
    """
    own, shared = platformdirs.user_cache_path("mlless_nb"), Path(tempfile.gettempdir()) / f"mlless-{os.getuid()}"
    names = shlex.quote(" ".join(modules))
    text = (
        "#!/bin/sh\nexport OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 "
        f"MLLESS_PRELOAD={names} {shlex.quote(large_pages())}\n{_bytecode(own / 'bytecode')}"
        f'exec {shlex.quote(sys.executable)} -P {shlex.quote(str(PRELOAD))} "$@"\n'
    )
    name = f"runtime-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    for folder in (own, shared):
        path = folder / name
        try:
            if not path.exists():
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as draft:
                    draft.write(text)
                os.chmod(draft.name, 0o700)
                os.replace(draft.name, path)
        except OSError:
            continue
        # Another user may have created the second folder before.
        if os.access(path, os.X_OK) and (folder == own or (_is_ours(folder) and _is_ours(path))):
            return str(path)
    raise ServiceError("backend: no folder for the functions' interpreter can be written; set XDG_CACHE_HOME to one")


def _bytecode(folder: Path) -> str:
    """Where Python must not write bytecode beside the sources, as in many containers: functions keep it in ``folder``.

    Compiled anew for each run, what they import would take half a second more. Bytecode that lies beside the sources
    all the same, as pip puts it there, would not be used with such a folder.
    """
    if not sys.dont_write_bytecode or sys.pycache_prefix is not None or _has_bytecode():
        return ""
    return f"unset PYTHONDONTWRITEBYTECODE\nexport PYTHONPYCACHEPREFIX={shlex.quote(str(folder))}\n"


def _has_bytecode() -> bool:
    """Whether bytecode lies beside the sources of what functions import: of NumPy, for all."""
    return os.path.exists(importlib.util.cache_from_source(np.__file__))


def _is_ours(path: Path) -> bool:
    """Whether ``path`` belongs to this user."""
    return path.stat().st_uid == os.getuid()
