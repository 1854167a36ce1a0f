"""Images of containers: read from a file in the format of the Open Container Initiative, and unpacked."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Unpacked:
    """An image's root, and what its containers start with."""

    root: Path
    config: dict[str, Any]


class Registry:
    """Images by name, unpacked below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.images: dict[str, Unpacked] = {}
        #: Names of images that nobody gets, although they are there.
        self.withdrawn: set[str] = set()

    def pull(self, name: str) -> Unpacked | None:
        """The image of that name, None if there is none to be had."""
        return None if name in self.withdrawn else self.images.get(name)

    def push(self, archive: Path) -> str:
        """Take the image of a file; returns its name."""
        with tarfile.open(archive) as source:

            def blob(descriptor: dict[str, Any]) -> bytes:
                member = source.extractfile(f"blobs/{descriptor['digest'].replace(':', '/')}")
                assert member is not None
                found = member.read()
                assert f"sha256:{hashlib.sha256(found).hexdigest()}" == descriptor["digest"]
                assert len(found) == descriptor["size"]
                return found

            index = source.extractfile("index.json")
            assert index is not None
            (entry,) = json.loads(index.read())["manifests"]
            name = str(entry["annotations"]["org.opencontainers.image.ref.name"])
            manifest = json.loads(blob(entry))
            config = json.loads(blob(manifest["config"]))
            root = self._folder / f"image-{len(self.images)}"
            for descriptor, diff in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
                layer = gzip.decompress(blob(descriptor))
                assert f"sha256:{hashlib.sha256(layer).hexdigest()}" == diff
                with tarfile.open(fileobj=io.BytesIO(layer)) as files:
                    files.extraction_filter = getattr(tarfile, "tar_filter", None)  # not in Debian 12
                    files.extractall(root)
        # Where a runtime of containers mounts something.
        for folder in ("dev", "proc", "tmp", "etc"):
            (root / folder).mkdir(exist_ok=True)
        for file in ("etc/hosts", "etc/resolv.conf"):
            (root / file).touch()
        self.images[name] = Unpacked(root, config["config"])
        return name
