"""The runtime of functions: a layer with all that they import, built without Docker and named by what is in it."""

from __future__ import annotations

import pkgutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ..function.package_digest import digest_in
from . import packages
from .archive import digest_of, pack
from .lithops_lambda import runtime_name

#: A program that AWS Lambda starts instead of Python's, with Python's command line as its arguments.
WRAPPER = "mlless-preload"
#: A new environment imports what functions need before its first invocation: Lithops forks a process for each of them.
#: One thread of BLAS: a function has the share of one core or two.
WRAPPER_TEXT = """\
#!/bin/sh
export PYTHONPATH="/opt/mlless-preload.d:$PYTHONPATH" OPENBLAS_NUM_THREADS=1
exec "$@"
"""
#: Imported by Python's start in such an environment. It reports no failure: the invocation will, with its cause.
PRELOAD_TEXT = """\
import contextlib, sys

sys.path.extend(path for path in ["/opt/python"] if path not in sys.path)
with contextlib.suppress(Exception):
    import numpy.random, mlless_nb.function.entry, mlless_nb.worker.loop, mlless_nb.supervisor.loop
"""


@dataclass(frozen=True)
class Runtime:
    """A layer that was built.

    Parameters
    ----------
    archive : Path
        The zip file.
    digest : str
        Of the layer's files, hexadecimal.
    sources : str
        Of our own package's sources (`function.package_digest`).
    python : str
        "3.11"
    modules : list of (str, bool)
        Modules that can be imported from the layer, and whether each is a package.
    unzipped_bytes, zipped_bytes : int
    """

    archive: Path
    digest: str
    sources: str
    python: str
    modules: list[tuple[str, bool]]
    unzipped_bytes: int
    zipped_bytes: int

    @property
    def name(self) -> str:
        """Lithops' name of it."""
        return runtime_name(self.python)


def build(folder: Path, wheel: Path | None = None, wheels: Path | None = None) -> Runtime:
    """Build the layer in ``folder``, which must be empty.

    Parameters
    ----------
    folder : Path
    wheel : Path, optional
        A wheel of mlless_nb; None: the package as it is installed here.
    wheels : Path, optional
        A folder with the wheels of the other packages; None: the package index.

    Raises
    ------
    JobError, ServiceError
        If the wheel is not for AWS Lambda, a package cannot be had, or the layer is too large.
    """
    layer = folder / "layer"
    python = layer / "python"
    packages.install(python, wheels)
    packages.add_own(python, wheel)
    packages.prune(python)
    (layer / WRAPPER).write_text(WRAPPER_TEXT)
    (layer / WRAPPER).chmod(0o755)
    (layer / f"{WRAPPER}.d").mkdir()
    (layer / f"{WRAPPER}.d" / "sitecustomize.py").write_text(PRELOAD_TEXT)
    archive = folder / "layer.zip"
    unzipped = pack(layer, archive)
    return Runtime(
        archive,
        digest_of(layer),
        digest_in({"": python / "mlless_nb"}),
        f"3.{sys.version_info.minor}",
        sorted((module.name, module.ispkg) for module in pkgutil.iter_modules([str(python)])),
        unzipped,
        archive.stat().st_size,
    )
