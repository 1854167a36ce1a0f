"""A fitted model's arrays in one .npz file, never a pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DecodeError

_KIND = "kind"
#: First bytes of a zip archive that is not empty, and so of any .npz file.
_MAGIC = b"PK\x03\x04"


def write_arrays(path: str | Path, kind: str, params: dict[str, NDArray[Any]]) -> None:
    """Write ``params`` and their ``kind`` to exactly ``path`` (no suffix is added)."""
    with Path(path).open("wb") as file:
        np.savez(file, allow_pickle=False, **{_KIND: np.array(kind)}, **params)


def read_arrays(path: str | Path) -> tuple[str, dict[str, NDArray[Any]]]:
    """The kind and params that ``write_arrays`` wrote; DecodeError if it is another kind of file."""
    with Path(path).open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise _not_a_model(path, "this one is no .npz file")
        file.seek(0)
        try:
            members = dict(np.load(file, allow_pickle=False))
        except Exception as error:  # zipfile, zlib and NumPy each raise their own
            raise _not_a_model(path, "this one is cut off or damaged, or holds other things than arrays") from error
    arrays = {name: member for name, member in members.items() if isinstance(member, np.ndarray)}  # not bytes
    if _KIND not in arrays:
        raise _not_a_model(path, f"this one holds {', '.join(arrays) or 'nothing'}")
    return str(arrays.pop(_KIND)), arrays


def _not_a_model(path: str | Path, why: str) -> DecodeError:
    return DecodeError(f"{path}: must be a model's file, as model.save wrote it; {why}")
