"""What Lithops looks for on AWS: its names of layers and functions, its handler, and its note of what a runtime has.

All of it is what `lithops.serverless.backends.aws_lambda` would make itself at a run's launch, when the clock runs.
"""

from __future__ import annotations

import hashlib
import json
import pkgutil
import sys
import zipfile
from pathlib import Path
from typing import Any

from lithops.constants import RUNTIMES_PREFIX
from lithops.utils import create_handler_zip
from lithops.version import __version__

from ..function import lambda_handler

#: Of Lithops; it is in its names of functions.
VERSION: str = __version__
#: How AWS Lambda is to start a function.
HANDLER = "mlless_handler.lambda_handler"


def runtime_name(python: str) -> str:
    """Lithops' name of a runtime that is a layer."""
    return f"default-runtime-v{python.replace('.', '')}"


def _user_key(user: str) -> str:
    return user.split(":")[0][-4:].lower()


def layer_name(user: str, namespace: str, python: str) -> str:
    """The layer's name; Lithops builds none where it finds one."""
    return f"lithops_v{__version__.replace('.', '')}_{_user_key(user)}_{namespace}_{runtime_name(python)}_layer"


def function_name(user: str, namespace: str, runtime: str, memory_mb: int) -> str:
    """The name of the function with this memory."""
    name = f"{runtime}-{memory_mb}-{__version__}"
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:10]
    return f"{namespace}-lithops-worker-{_user_key(user)}-{__version__.replace('.', '')}-{digest}"


def handler(folder: Path) -> bytes:
    """The function's own archive: Lithops with its entry point, and ours, which calls that."""
    import lithops.serverless.backends.aws_lambda as backend

    path = folder / "handler.zip"
    # Imported by its file: the module itself needs no import here.
    create_handler_zip(str(path), str(Path(backend.__file__).with_name("entry_point.py")), "entry_point.py")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.write(lambda_handler.__file__, f"{HANDLER.partition('.')[0]}.py")
    return path.read_bytes()


def metadata(
    function: str, region: str, modules: list[tuple[str, bool]], python: str, lifetime_s: int
) -> tuple[str, bytes]:
    """Key and content of the object that tells Lithops what is in a runtime; without it a function is started to ask.

    Parameters
    ----------
    function, region : str
    modules : list of (str, bool)
        What can be imported from the layer; Lithops sends no code of these.
    python : str
    lifetime_s : int
    """
    known = dict(modules) | {"lithops": True}
    # Python's own modules are where this one has them: the versions are the same.
    paths = [path for path in sys.path if path.endswith((f"python{python}", f"python{python}/lib-dynload"))]
    known |= {module.name: module.ispkg for module in pkgutil.iter_modules(paths)}
    note: dict[str, Any] = {
        "preinstalls": sorted([name, is_package] for name, is_package in known.items()),
        "python_version": python,
        "lithops_version": __version__,
        "runtime_timeout": lifetime_s,
    }
    key = f"{RUNTIMES_PREFIX}/aws_lambda/{__version__}/{region}/{function}.meta.json"
    return key, json.dumps(note).encode()
