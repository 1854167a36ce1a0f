"""The lowest layer of an image: this machine's Python and the libraries that it needs, and no other program.

So an image needs no base from a registry, no Docker and no network; functions have the notebook's very Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from ..errors import ServiceError

#: Where Python lies in the image.
PREFIX = "usr/local"
#: What no function imports of Python's own library, or what is only for installing and for windows.
LEFT_OUT = (
    *("site-packages", "dist-packages", "test", "tests", "idlelib", "idle_test", "tkinter", "turtledemo", "ensurepip"),
    *("lib2to3", "pydoc_data", "distutils", "venv", "__pycache__", "config-*", "*.a", "turtle.py"),
    *("_tkinter.*", "_test*.so", "_ctypes_test.*", "xxlimited*.so"),
)
#: Who functions are: nobody that exists elsewhere.
UID = 1000
PASSWD = f"root:x:0:0:root:/:/sbin/nologin\nlithops:x:{UID}:{UID}:lithops:/tmp:/sbin/nologin\n"
GROUP = f"root:x:0:\nlithops:x:{UID}:\n"
#: How names of hosts are looked up.
NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\n"
#: Where certificates of authorities lie.
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
#: Of the C library, opened by name when hosts are looked up; newer ones have these within.
LOOKING_UP = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")
#: Longest time to list a program's libraries, seconds.
LDD_S = 60.0


def lay_out(folder: Path, authorities: Path) -> None:
    """Make the layer in ``folder``.

    Parameters
    ----------
    folder : Path
    authorities : Path
        A file with the certificates that functions trust.

    Raises
    ------
    ServiceError
        If this is not Linux on x86-64 with the GNU C library.
    """
    if sysconfig.get_platform() != "linux-x86_64" or shutil.which("ldd") is None:
        raise ServiceError(f"image: it is built on Linux on x86-64 with glibc; this is {sysconfig.get_platform()}")
    version = f"python3.{sys.version_info.minor}"
    program, library = folder / PREFIX / "bin" / version, folder / PREFIX / "lib" / version
    program.parent.mkdir(parents=True)
    shutil.copyfile(os.path.realpath(sys.executable), program)
    program.chmod(0o755)
    for name in ("python3", "python"):
        program.with_name(name).symlink_to(version)
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=shutil.ignore_patterns(*LEFT_OUT))
    add_libraries(folder, [Path(os.path.realpath(sys.executable)), *library.rglob("*.so")])
    for name, text in {"passwd": PASSWD, "group": GROUP, "nsswitch.conf": NSSWITCH}.items():
        (folder / "etc").mkdir(exist_ok=True)
        (folder / "etc" / name).write_text(text)
    (folder / CERTIFICATES).parent.mkdir(parents=True)
    shutil.copyfile(authorities, folder / CERTIFICATES)
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o1777)


def add_libraries(folder: Path, programs: Iterable[Path]) -> None:
    """Copy what ``programs`` are linked to into ``folder``, at the places where they are here and are looked for.

    What lies beside ``folder`` is in a layer already.

    Raises
    ------
    ServiceError
        If a library is missing here.
    """
    found = libraries_of(programs)
    found += [
        path
        for each in found
        if each.name == "libc.so.6"
        for name in LOOKING_UP
        if (path := each.with_name(name)).exists()
    ]
    for path in found:
        if path.resolve().is_relative_to(folder.parent.resolve()):
            continue
        target = folder / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copyfile(path, target)
            target.chmod(0o755)


def libraries_of(programs: Iterable[Path]) -> list[Path]:
    """The libraries that the system's loader finds for ``programs``, itself among them."""
    names = sorted({str(program) for program in programs})
    # Lists, and runs nothing of a program: these are Python's own and those of the locked packages.
    said = subprocess.run(
        ["ldd", *names], capture_output=True, text=True, check=False, timeout=LDD_S, env={"PATH": os.environ["PATH"]}
    ).stdout
    found: set[Path] = set()
    for line in said.splitlines():
        words = line.split()
        if "not found" in line:
            raise ServiceError(f"image: the library {words[0]} is not on this machine")
        paths = [word for word in words if word.startswith("/") and not word.endswith(":")]
        found.update(map(Path, paths[-1:]))
    return sorted(found)
