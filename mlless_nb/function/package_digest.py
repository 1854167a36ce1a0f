"""Which version of mlless_nb this is, by its sources: functions must run the notebook's own."""

from __future__ import annotations

import contextlib
import hashlib
from functools import cache
from pathlib import Path

import mlless_nb

from ..errors import ServiceError

#: Folders of the package that functions do not have.
ELSEWHERE = frozenset(
    {"magics", "widgets", "simulate", "adviser", "estimators", "driver", "clouds", "terminal", "__main__.py"}
)
#: Files that count; what is compiled from them differs by machine.
SOURCES = (".py", ".lua", ".toml")
#: The file of a built runtime that has its digest, so that no function has to read all sources.
NOTED = "sources.digest"


def digest_in(roots: dict[str, Path]) -> str:
    """SHA-256 over the names and contents of the functions' sources, hexadecimal.

    Parameters
    ----------
    roots : dict
        Folders by what the names of their files begin with: ``""`` the package, ``"kernels/"`` its kernels.
    """
    found = {}
    for prefix, root in roots.items():
        for path in root.rglob("*"):
            name = prefix + path.relative_to(root).as_posix()
            if name.split("/")[0] not in ELSEWHERE and name.endswith(SOURCES):
                found[name] = path
    digest = hashlib.sha256()
    for name, path in sorted(found.items()):
        digest.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@cache
def digest_here() -> str:
    """The digest of the package that this process imported, as it was when it was first asked for."""
    from .. import kernels

    with contextlib.suppress(OSError):
        return Path(__file__).with_name(NOTED).read_text("ascii")
    return digest_in({"": Path(mlless_nb.__file__).parent, "kernels/": Path(kernels.__file__).parent})


class OtherVersionError(ServiceError):
    """A function has another version of mlless_nb than the notebook that invoked it."""


def checked(payload: str) -> str:
    """``payload``, an object as JSON, without the digest of its sender's package, if that is before it.

    Raises
    ------
    OtherVersionError
        If that is not the digest of the package that this process imported.
    """
    sources = payload.partition("{")[0]
    if sources and sources != (own := digest_here()):
        raise OtherVersionError(
            f"its runtime has another mlless_nb ({own[:8]}) than the notebook ({sources[:8]}): deploy it again "
            "(mlless-nb deploy aws), or build its image again"
        )
    return payload[len(sources) :]
