"""What a folder holds while other processes add and remove files in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def paths_below(folder: Path) -> Iterator[Path]:
    """All files and folders below ``folder``; what is removed meanwhile is skipped, where `Path.rglob` fails."""
    for root, folders, files in os.walk(folder):
        yield from (Path(root, name) for name in (*folders, *files))
