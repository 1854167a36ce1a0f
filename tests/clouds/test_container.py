"""The image of functions: written without Docker, the same again, and complete."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from mlless_nb.clouds import base_layer, container, oci
from mlless_nb.errors import JobError


def folder(root: Path) -> Path:
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "program").write_text("#!/bin/sh\n")
    (root / "bin" / "program").chmod(0o700)
    (root / "bin" / "link").symlink_to("program")
    (root / "text").write_text(str(root.name))
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    return root


def blobs(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as source:
        found = {member.name: source.extractfile(member).read() for member in source if member.isfile()}  # type: ignore[union-attr]
    for name, blob in found.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}"
    return found


def test_an_image_is_a_file_in_the_open_format(tmp_path: Path) -> None:
    layers = [folder(tmp_path / "a"), folder(tmp_path / "b")]
    made = oci.write(tmp_path / "image.tar", "registry.example/name:tag", layers, {"User": "1000:1000"})
    found = blobs(made.archive)
    assert json.loads(found["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads(found["index.json"])["manifests"]
    assert entry["digest"] == made.digest
    assert entry["annotations"][oci.REFERENCE] == made.name

    def blob(descriptor: dict[str, Any]) -> bytes:
        content = found[f"blobs/{descriptor['digest'].replace(':', '/')}"]
        assert len(content) == descriptor["size"]
        return content

    manifest = json.loads(blob(entry))
    config = json.loads(blob(manifest["config"]))
    assert (config["architecture"], config["os"], config["config"]) == ("amd64", "linux", {"User": "1000:1000"})
    packed = [gzip.decompress(blob(layer)) for layer in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in packed]
    assert made.unzipped_bytes == sum(map(len, packed))
    with tarfile.open(fileobj=io.BytesIO(packed[1])) as files:
        entries = {member.name: member for member in files}
        assert files.extractfile("text").read() == b"b"  # type: ignore[union-attr]
    assert {name: entries[name].mode for name in ("bin", "bin/program", "text", "tmp")} == {
        "bin": 0o755,
        "bin/program": 0o755,
        "text": 0o644,
        "tmp": 0o1777,
    }
    assert entries["bin/link"].linkname == "program"
    assert {(member.uid, member.mtime) for member in entries.values()} == {(0, 0)}
    os.utime(tmp_path / "a" / "text", (1, 1))
    again = oci.write(tmp_path / "again.tar", made.name, layers, {"User": "1000:1000"})
    assert again.archive.read_bytes() == made.archive.read_bytes()


@pytest.mark.parametrize("name", ["Mlless", "registry.example/mlless:tag", "", "a b", "-a"])
def test_a_name_that_is_none_is_refused_before_anything_is_built(tmp_path: Path, name: str) -> None:
    with pytest.raises(JobError, match=r"image=.*: must be the name of an image without a tag"):
        container.build(tmp_path, name, tmp_path / "image.tar")
    assert list(tmp_path.iterdir()) == []


def test_the_libraries_of_a_program_are_found_with_their_loader() -> None:
    import numpy._core._multiarray_umath as compiled

    names = [path.name for path in base_layer.libraries_of([Path(str(compiled.__file__))])]
    assert "libc.so.6" in names
    assert [name for name in names if name.startswith("ld-linux")]
