"""Wheels that tests make."""

from __future__ import annotations

import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, files: dict[str, str], version: str = "1.0") -> Path:
    """A wheel without dependencies."""
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as target:
        for inside, text in {**files, f"{info}/RECORD": record}.items():
            target.writestr(inside, text)
    return path
