"""The packages that functions import, in a folder: those of `function_set.txt`, and our own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import mlless_nb

from ..errors import JobError, ServiceError
from ..function.package_digest import ELSEWHERE, NOTED, SOURCES, digest_in

LOCK = Path(__file__).with_name("function_set.txt")
#: The C library of AWS Lambda's Linux by Python's minor version: Amazon Linux 2 until 3.11, then Amazon Linux 2023.
GLIBC = {11: (2, 26), 12: (2, 34), 13: (2, 34), 14: (2, 34)}
#: Longest time that pip may take, seconds.
PIP_S = 900.0
#: What packages hold beside code that functions run.
FOLDERS = ("tests", "__pycache__", "_examples", "f2py", "bin", "include")
FILES = ("*.pyi", "*.pyx", "*.pxd", "*.h", "*.c", "*.a", "*.pc", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_SYMBOL = re.compile(rb"GLIBC_(\d+)\.(\d+)")


def minor() -> int:
    """The minor version of this Python, which is the functions', too: Lithops ships code objects.

    Raises
    ------
    ServiceError
        If AWS Lambda does not have it.
    """
    found = sys.version_info.minor
    if found not in GLIBC:
        raise ServiceError(f"Python 3.{found}: AWS Lambda runs one of {', '.join(f'3.{each}' for each in GLIBC)}")
    return found


def extension_suffix() -> str:
    """How the file names of the functions' compiled modules end."""
    return f".cpython-3{minor()}-x86_64-linux-gnu.so"


def install(folder: Path, wheels: Path | None = None, locks: Sequence[Path] = ()) -> None:
    """Install what `LOCK` lists into ``folder``, for AWS Lambda's platform; nothing is compiled or run.

    Parameters
    ----------
    folder : Path
    wheels : Path, optional
        A folder with all of the wheels, instead of the package index.
    locks : sequence of Path
        Other lists, in the place of `LOCK`.

    Raises
    ------
    ServiceError
        With pip's last line, e.g. if a file does not have its hash.
    """
    newest = GLIBC[minor()][1]
    names = [f"manylinux_2_{each}_x86_64" for each in range(newest, 4, -1)]
    names += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", "install"]
    command += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-compile", "--target", str(folder)]
    command += ["--implementation", "cp", "--python-version", f"3.{minor()}"]
    command += [word for name in names for word in ("--platform", name)]
    command += ["--no-index", "--find-links", str(wheels)] if wheels is not None else []
    # pip would unpickle its own cache; its user's paths are not those of the functions.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_TARGET")}
    try:
        done = subprocess.run(
            [*command, *(word for lock in locks or (LOCK,) for word in ("-r", str(lock)))],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PIP_S,
        )
    except subprocess.TimeoutExpired:
        raise ServiceError(
            f"pip did not install the functions' packages within {PIP_S:.0f} s: is the index reachable?"
        ) from None
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr.strip()]
        raise ServiceError(f"pip could not install the functions' packages: {said[-1][-300:]}")


def add_own(folder: Path, wheel: Path | None = None) -> None:
    """Put mlless_nb into ``folder``: from ``wheel``, or as it is installed here.

    Raises
    ------
    JobError
        If its kernels are not for AWS Lambda.
    """
    target, suffix = folder / "mlless_nb", extension_suffix()
    n_kernels, asked = 0, wheel if wheel is not None else sysconfig.get_platform()
    for name, blob in _from_wheel(wheel) if wheel is not None else _from_here(suffix):
        if name.split("/")[0] in ELSEWHERE or not name.endswith((*SOURCES, suffix)):
            continue
        if name.endswith(suffix):
            n_kernels += 1
            _check_symbols(name, blob, asked)
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob)
    if not n_kernels:
        valid = f"a wheel of mlless_nb for Linux on x86-64 and Python 3.{minor()}; `make wheel` builds it on any Linux"
        raise JobError("wheel", str(asked), valid)
    (target / "function" / NOTED).write_text(digest_in({"": target}), "ascii")


def _from_here(suffix: str) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the installed package; in an editable install its folders lie apart."""
    from .. import kernels

    core, compiled = Path(mlless_nb.__file__).parent, Path(kernels.__file__).parent
    for root, prefix in ((core, ""), (compiled, "kernels/")):
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            if (
                path.is_file()
                and path.name.endswith((*SOURCES, suffix))
                and (prefix or not name.startswith("kernels/"))
            ):
                yield prefix + name, path.read_bytes()


def _from_wheel(wheel: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in sorted(archive.namelist()):
                inside = name.removeprefix("mlless_nb/")
                if inside != name and inside and not name.endswith("/") and ".." not in inside.split("/"):
                    yield inside, archive.read(name)
    except (OSError, zipfile.BadZipFile) as error:
        raise JobError("wheel", str(wheel), f"a wheel of mlless_nb: {error}") from None


def _check_symbols(name: str, blob: bytes, asked: object) -> None:
    """A module that was linked to a newer C library than the functions' would fail there when it is imported."""
    needed = max(((int(a), int(b)) for a, b in _SYMBOL.findall(blob)), default=(2, 0))
    if needed > GLIBC[minor()]:
        has, wants = (".".join(map(str, each)) for each in (GLIBC[minor()], needed))
        valid = f"one for the C library {has} of AWS Lambda: {name} needs {wants}; `make wheel` builds one for all"
        raise JobError("wheel", str(asked), valid)


def prune(folder: Path) -> None:
    """Remove what functions never read: tests, headers, type stubs, lists of installed files."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and path.name in FOLDERS:
            shutil.rmtree(path)
    for pattern in FILES:
        for path in folder.rglob(pattern):
            path.unlink()
