"""The functions' image for Kubernetes: this machine's Python, the locked packages, Lithops and mlless_nb."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from ..errors import JobError
from ..function import pod_entry
from ..function.package_digest import digest_in
from . import base_layer, oci, packages

#: Where packages lie in the image, and what Lithops starts.
HOME, ENTRY = "lithops", "lithopsentry.py"
#: The locks of what containers import.
LOCKS = (packages.LOCK, packages.LOCK.with_name("container_set.txt"))
#: Characters of the digest of our sources that an image's tag has.
TAGGED = 12
#: The key of the whole digest among an image's labels.
LABEL = "mlless-nb.sources"
#: What Lithops' package holds that no function imports.
LEFT_OUT = ("tests", "__pycache__")
#: The services of AWS that functions use; boto3 describes all of them.
SERVICES = ("s3", "sts", "sso", "sso-oidc", "dynamodb")
_NAME = re.compile(r"[a-z0-9]+([._:/-]+[a-z0-9]+)*")


def tag_of(sources: str) -> str:
    """The tag of the image with this Python and digest of mlless_nb's sources: another version has another image."""
    return f"mlless-py3.{sys.version_info.minor}-{sources[:TAGGED]}"


def build(folder: Path, name: str, archive: Path, wheel: Path | None = None, wheels: Path | None = None) -> oci.Image:
    """Build the image as a file.

    Parameters
    ----------
    folder : Path
        For its layers; must be empty.
    name : str
        The image's, without a tag: "registry.example/mlless".
    archive : Path
        The file.
    wheel, wheels : Path, optional
        See `runtime.build`.

    Raises
    ------
    JobError, ServiceError
        If the name is none, the wheel is not for Linux on x86-64, a package cannot be had, or this is not Linux.
    """
    if _NAME.fullmatch(name) is None or ":" in name.rpartition("/")[2]:
        raise JobError("image", name, "the name of an image without a tag, such as registry.example/mlless")
    base, shared, own = (folder / each for each in ("base", "shared", "own"))
    home, ours = shared / HOME, own / HOME
    packages.install(home, wheels, LOCKS)
    packages.prune(home)
    for path in (home / "botocore" / "data").iterdir():
        if path.is_dir() and path.name not in SERVICES:
            shutil.rmtree(path)
    base_layer.lay_out(base, home / "certifi" / "cacert.pem")
    base_layer.add_libraries(base, home.rglob("*.so*"))
    import lithops

    shutil.copytree(Path(lithops.__file__).parent, home / "lithops", ignore=shutil.ignore_patterns(*LEFT_OUT))
    packages.add_own(ours, wheel)
    shutil.copyfile(pod_entry.__file__, ours / ENTRY)
    sources = digest_in({"": ours / "mlless_nb"})
    _compile({base: f"{base_layer.PREFIX}/lib", shared: HOME, own: HOME})
    config = {
        "Env": [
            f"PATH=/{base_layer.PREFIX}/bin",
            f"SSL_CERT_FILE=/{base_layer.CERTIFICATES}",
            "PYTHONUNBUFFERED=1",
            "PYTHONDONTWRITEBYTECODE=1",
            "OPENBLAS_NUM_THREADS=1",
            "LANG=C.UTF-8",
        ],
        "User": f"{base_layer.UID}:{base_layer.UID}",
        "WorkingDir": f"/{HOME}",
        "Labels": {LABEL: sources, "mlless-nb.python": python()},
    }
    return oci.write(archive, f"{name}:{tag_of(sources)}", [base, shared, own], config)


def _compile(layers: Mapping[Path, str]) -> None:
    """Compile the modules of layers: in a container, which keeps nothing, each function would do it at its start.

    Parameters
    ----------
    layers : Mapping
        Folders, and where in each the modules lie.
    """
    how = ["-q", "-q", "--invalidation-mode", "unchecked-hash", "-p", "/"]
    running = [
        subprocess.Popen([sys.executable, "-I", "-m", "compileall", *how, "-s", str(layer), str(layer / inside)])
        for layer, inside in layers.items()
    ]
    for process in running:
        process.wait()  # a module that cannot be compiled fails when it is imported, if it is


def python() -> str:
    """The version of the image's Python, which is this one."""
    return f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro} {sysconfig.get_platform()}"
