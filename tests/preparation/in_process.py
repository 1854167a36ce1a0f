"""A preparation whose functions are calls in this process, on an object store in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlless_nb.data.prepare import Manifest
from mlless_nb.data.stored_files import StoredFiles, StoredRows
from mlless_nb.preparation.prepare import Place, pack, scanned
from mlless_nb.preparation.stages import work
from mlless_nb.storage.objects import MemoryObjects

FOLDER = "runs/a-run/data/"


class InProcess:
    """Stored files, and functions that prepare them one after the other."""

    def __init__(self, texts: list[bytes]) -> None:
        self.files, self.objects = MemoryObjects(), MemoryObjects()
        for number, text in enumerate(texts):
            self.files.put(f"data/part-{number:05d}", text)
        self.place = Place(self.objects, FOLDER)
        self.n_called: list[tuple[str, int]] = []

    def run_stage(self, stage: str, plan: dict[str, Any], n: int) -> list[dict[str, Any]]:
        """As the functions of a stage: all that they are told and all that they find is JSON."""
        self.n_called.append((stage, n))
        told = json.dumps(plan)
        found = [work(stage, json.loads(told), index, self.objects, self.files) for index in range(n)]
        return [json.loads(json.dumps(one)) for one in found]

    def scanned(self, format: str, functions: int = 3, **more: Any) -> StoredRows:
        """The rows once they were counted."""
        return scanned(StoredFiles("bucket/data/", format, functions, **more), self.files, self.place, self.run_stage)

    def pack(self, datasets: list[tuple[StoredRows, int | None]], size: int) -> dict[str, Manifest]:
        """Pack the parts of the files."""
        return pack(datasets, size, self.place, self.run_stage)


def written(folder: Path, texts: list[bytes]) -> Path:
    """One local file with the lines of all ``texts``; a header is only that of the first."""
    path = folder / "whole"
    header = texts[0].splitlines(keepends=True)[0] if texts[0].lower().startswith((b"label", b"x")) else b""
    parts = [text if text.endswith(b"\n") else text + b"\n" for text in texts]
    path.write_bytes(header + b"".join(part.removeprefix(header) for part in parts))
    return path
