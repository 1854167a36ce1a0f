"""A fitted model's arrays in one .npz file, never a pickle."""

from __future__ import annotations

import math
import os
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..errors import DecodeError, MissingFileError

_KIND = "kind"
#: Most arrays of a model.
MOST_ARRAYS = 10_000
#: First bytes of a zip archive that is not empty, and so of any .npz file.
_MAGIC = b"PK\x03\x04"


def write_arrays(path: str | Path, kind: str, params: dict[str, NDArray[Any]]) -> None:
    """Write ``params`` and their ``kind`` to exactly ``path`` (no suffix is added)."""
    with for_writing(path) as file:
        np.savez(file, allow_pickle=False, **{_KIND: np.array(kind)}, **params)


def for_writing(path: str | Path) -> BinaryIO:
    """The file ``path``, empty; MissingFileError if its folder is not there."""
    try:
        return Path(path).open("wb")
    except FileNotFoundError:
        raise MissingFileError(f"{path}: there is no folder {Path(path).parent}; it has to be made before") from None


def read_arrays(path: str | Path) -> tuple[str, dict[str, NDArray[Any]]]:
    """The kind and params that ``write_arrays`` wrote; DecodeError for another file, MissingFileError for none."""
    try:
        with Path(path).open("rb") as file:
            members = _members(path, file)
    except FileNotFoundError:
        raise MissingFileError(f"{path}: there is no such file; model.save writes one") from None
    arrays = {name: member for name, member in members.items() if isinstance(member, np.ndarray)}  # not bytes
    if _KIND not in arrays:
        raise _not_a_model(path, f"this one holds {', '.join(arrays) or 'nothing'}")
    return str(arrays.pop(_KIND)), arrays


def _members(path: str | Path, file: BinaryIO) -> dict[str, Any]:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise _not_a_model(path, "this one is no .npz file")
    file.seek(0)
    try:
        _check_sizes(file)
        return dict(np.load(file, allow_pickle=False))
    except Exception as error:  # zipfile, zlib and NumPy each raise their own
        raise _not_a_model(path, "this one is cut off or damaged, or holds other things than arrays") from error


def _check_sizes(file: BinaryIO) -> None:
    """Raise ValueError if the arrays say that they take more memory than the file has bytes."""
    n_bytes = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if len(entries) > MOST_ARRAYS or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("compressed, or of too many arrays")
        for entry in entries:
            with archive.open(entry) as member:
                version = np.lib.format.read_magic(member)
                read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
                shape, _, dtype = read[version](member)
            if math.prod(shape) * dtype.itemsize > n_bytes:
                raise ValueError(f"{entry.filename} is larger than its file")
    file.seek(0)


def _not_a_model(path: str | Path, why: str) -> DecodeError:
    return DecodeError(f"{path}: must be a model's file, as model.save wrote it; {why}")
