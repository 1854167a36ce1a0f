"""A folder as a zip archive: the same files give the same bytes, whenever and by whomever they were packed."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from ..errors import ServiceError

#: AWS Lambda's limits: a function's code with its layers, unzipped; a layer that is sent without S3.
UNZIPPED_BYTES, ZIPPED_BYTES = 262_144_000, 52_428_800
#: The earliest time that a zip archive can hold.
EPOCH = (1980, 1, 1, 0, 0, 0)


def files_in(folder: Path) -> list[Path]:
    """The files below ``folder``, ordered by name."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def digest_of(folder: Path) -> str:
    """SHA-256 over names, modes and contents of the files below ``folder``, hexadecimal."""
    digest = hashlib.sha256()
    for path in files_in(folder):
        name = path.relative_to(folder).as_posix()
        digest.update(f"{name}\0{_mode_of(path):o}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def pack(folder: Path, archive: Path) -> int:
    """Write ``folder`` as the zip file ``archive``; returns its unzipped size, bytes.

    Raises
    ------
    ServiceError
        If AWS Lambda would refuse it for its size.
    """
    unzipped = sum(path.stat().st_size for path in files_in(folder))
    if unzipped > UNZIPPED_BYTES:
        raise ServiceError(
            f"layer: {unzipped / 1e6:.0f} MB unzipped; AWS Lambda takes at most {UNZIPPED_BYTES / 1e6:.0f} MB"
        )
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as target:
        for path in files_in(folder):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), EPOCH)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3  # Unix, whose modes count
            entry.external_attr = (0o100000 | _mode_of(path)) << 16
            target.writestr(entry, path.read_bytes())
    zipped = archive.stat().st_size
    if zipped > ZIPPED_BYTES:
        raise ServiceError(f"layer: {zipped / 1e6:.0f} MB zipped; AWS Lambda takes at most {ZIPPED_BYTES / 1e6:.0f} MB")
    return unzipped


def _mode_of(path: Path) -> int:
    """Two modes only: which other bits a file has depends on the user who packs it."""
    return 0o755 if path.stat().st_mode & 0o100 else 0o644
