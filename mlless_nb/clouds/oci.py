"""An image of containers as one file, in the format of the Open Container Initiative: no Docker is needed to write it.

The file is what ``skopeo copy oci-archive:...`` and ``podman load`` read. The same folders give the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
#: The key of an image's name in the index of the file.
REFERENCE = "org.opencontainers.image.ref.name"


@dataclass(frozen=True)
class Image:
    """An image that was written.

    Parameters
    ----------
    archive : Path
    name : str
        With its tag.
    digest : str
        Of its manifest: "sha256:...".
    unzipped_bytes, zipped_bytes : int
        Its layers.
    """

    archive: Path
    name: str
    digest: str
    unzipped_bytes: int
    zipped_bytes: int


@dataclass
class _Blobs:
    """The blobs of an archive by their digests."""

    all: dict[str, bytes] = field(default_factory=dict)

    def add(self, kind: str, blob: bytes) -> dict[str, Any]:
        """The descriptor of a blob."""
        digest = hashlib.sha256(blob).hexdigest()
        self.all[digest] = blob
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(blob)}


def write(archive: Path, name: str, layers: Sequence[Path], config: dict[str, Any]) -> Image:
    """Write ``archive``.

    Parameters
    ----------
    archive : Path
    name : str
        "registry.example/name:tag".
    layers : sequence of Path
        Folders, each over the ones before.
    config : dict
        What a container starts with: ``Env``, ``User``, ``WorkingDir``, ``Labels``.
    """
    blobs, packed = _Blobs(), [layer_of(folder) for folder in layers]
    zipped = [gzip.compress(layer, 6, mtime=0) for layer in packed]
    whole = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in packed]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blobs.add(CONFIG, _json(whole)),
        "layers": [blobs.add(LAYER, layer) for layer in zipped],
    }
    described = blobs.add(MANIFEST, _json(manifest))
    index = {"schemaVersion": 2, "manifests": [{**described, "annotations": {REFERENCE: name}}]}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index)}
    files |= {f"blobs/sha256/{digest}": blob for digest, blob in sorted(blobs.all.items())}
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as target:
        for path, blob in files.items():
            _add(target, path, blob)
    return Image(archive, name, described["digest"], sum(map(len, packed)), sum(map(len, zipped)))


def layer_of(folder: Path) -> bytes:
    """The files, folders and links below ``folder`` as a tar file: owned by root, of no time."""
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w", format=tarfile.PAX_FORMAT) as target:
        for path in sorted(folder.rglob("*")):
            name, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode
            entry = tarfile.TarInfo(name)
            if path.is_symlink():
                entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
                target.addfile(entry)
            elif path.is_dir():
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if mode & 0o1000 else 0o755
                target.addfile(entry)
            else:
                _add(target, name, path.read_bytes(), 0o755 if mode & 0o100 else 0o644)
    return memory.getvalue()


def _add(target: tarfile.TarFile, name: str, blob: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(blob), mode
    target.addfile(entry, io.BytesIO(blob))


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
