"""A fitted model's arrays in one .npz file, never a pickle."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DecodeError

_KIND = "kind"


def write_arrays(path: str | Path, kind: str, params: dict[str, NDArray[Any]]) -> None:
    """Write ``params`` and what they are to ``path``, exactly (no suffix is added)."""
    with Path(path).open("wb") as file:
        np.savez(file, allow_pickle=False, **{_KIND: np.array(kind)}, **params)


def read_arrays(path: str | Path) -> tuple[str, dict[str, NDArray[Any]]]:
    """What ``write_arrays`` wrote: kind and params. DecodeError when the file is not one."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        kind = str(arrays.pop(_KIND))
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        raise DecodeError(f"{path}: is not a model that mlless_nb saved ({error})") from None
    return kind, arrays
