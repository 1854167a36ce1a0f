"""A job as bytes, with its rows: so it is handed over to a process of this machine that drives it. Nothing is pickled.

One line of JSON, then the arrays that it names one after the other. The bytes may hold passwords: they go through pipes
and private sockets, and into no file.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...data.csr import Csr
from ...data.dataset import Dataset
from ...data.ratings import Ratings
from ...data.stored_files import StoredFiles
from ...errors import DecodeError, JobError, MllessError
from ...frames.names import Names, names_of
from ...job.algorithm import DecidedSteps, algorithm_from_json
from ...job.job import TrainingJob
from ...job.limits import AllottedBudget, Budget, Stop
from ...job.optimizers import optimizer_from_json
from ...job.scale_in import ScaleIn
from ...job.sync import sync_from_json
from ...models import model_from_json

#: The datasets whose attributes are arrays, numbers and texts.
DATASETS: dict[str, type[Dataset]] = {each.__name__: each for each in (Ratings, Csr, StoredFiles)}
#: How specifications are read again.
_READERS: dict[str, Any] = {
    "model": model_from_json,
    "optimizer": optimizer_from_json,
    "sync": sync_from_json,
    "algorithm": algorithm_from_json,
    "scale_in": lambda fields: ScaleIn(**fields),
    "stop": lambda fields: Stop(**fields),
}
#: Longest first line, bytes.
MOST_HEADER = 64 << 20


class Sink(Protocol):
    """Takes bytes: a file, or a connection as one."""

    def write(self, data: Any, /) -> Any:
        """Take all of ``data``."""


def write(to: Sink, job: TrainingJob, **more: Any) -> None:
    """Write ``job``, and ``more`` as plain JSON.

    Raises
    ------
    JobError
        If the job cannot be handed over: its rows are read from a file as they are needed, or a class of it is defined
        outside this package. Nothing was written then.
    """
    arrays: list[NDArray[Any]] = []
    fields = {entry.name: _field(entry.name, getattr(job, entry.name), arrays) for entry in dataclasses.fields(job)}
    listed = [[array.dtype.str, list(array.shape)] for array in arrays]
    try:
        header = json.dumps({**more, "job": fields, "arrays": listed}, allow_nan=False)
    except (TypeError, ValueError):
        raise JobError("detach", True, "False with a backend= of other values than texts and numbers") from None
    to.write(header.encode() + b"\n")
    for array in arrays:
        to.write(np.ascontiguousarray(array).data.cast("B") if array.size else b"")


def read(source: IO[bytes]) -> tuple[TrainingJob, dict[str, Any]]:
    """The job that `write` wrote, and the rest of its first line.

    Raises
    ------
    DecodeError
        If the bytes are cut off or not such a job.
    JobError
        If a field of the job is not valid here.
    """
    try:
        more = json.loads(source.readline(MOST_HEADER))
        arrays = [_array(source, np.dtype(dtype), shape) for dtype, shape in more.pop("arrays")]
        fields = {name: _value(name, value, arrays) for name, value in more.pop("job").items()}
        return TrainingJob(**fields), more
    except MllessError:
        raise
    except Exception as error:  # whatever a job makes of fields that are not a job's
        raise DecodeError(f"a job that was handed over is damaged: {type(error).__name__}: {error}") from None


def _field(name: str, value: Any, arrays: list[NDArray[Any]]) -> Any:
    if name in _READERS and value is not None:
        if not type(value).__module__.startswith(__name__.partition(".")[0] + "."):
            raise JobError("detach", True, f"False with {name}={value!r}, whose class is not of mlless_nb")
        return dataclasses.asdict(value) if isinstance(value, Stop) else value.to_json()
    if isinstance(value, Budget):
        return {"usd": value.usd, "is_allotted": isinstance(value, AllottedBudget)}
    if isinstance(value, DecidedSteps):
        return {"decided": int(value)}
    if isinstance(value, Dataset):
        if type(value) not in DATASETS.values():
            valid = (
                "False with data that is read from its file as it is needed; or read it into a DataFrame before, "
                "or put the file into the object storage, as StoredFiles"
            )
            raise JobError("detach", True, valid)
        return {
            "dataset": type(value).__name__,
            "parts": {key: _part(each, arrays) for key, each in vars(value).items()},
        }
    return value


def _part(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """An attribute of a dataset as JSON; arrays are numbers of ``arrays``."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise JobError("detach", True, "False with arrays of Python objects")
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if hasattr(value, "indptr"):
        parts = [_part(array, arrays)["array"] for array in (value.data, value.indices, value.indptr)]
        return {"csr": parts, "shape": list(value.shape)}
    if isinstance(value, tuple):
        return {"tuple": [_part(each, arrays) for each in value]}
    if isinstance(value, list):
        return [_part(each, arrays) for each in value]
    if isinstance(value, dict):
        return {"dict": [[_part(key, arrays), _part(each, arrays)] for key, each in value.items()]}
    if isinstance(value, Names):
        return {"names": {key: _part(array, arrays)["array"] for key, array in value.to_arrays().items()}}
    if not isinstance(value, (str, int, float, bool, type(None))):
        raise JobError("detach", True, f"False with data that holds a {type(value).__name__}")
    return value


def _array(source: IO[bytes], dtype: np.dtype[Any], shape: list[int]) -> NDArray[Any]:
    if dtype.hasobject:
        raise DecodeError("a job that was handed over holds Python objects")
    n_bytes = dtype.itemsize * math.prod(shape)
    blob = source.read(n_bytes) if n_bytes >= 0 else b""
    if len(blob) != n_bytes:
        raise DecodeError(f"a job that was handed over ends after {len(blob)} of {n_bytes} bytes of an array")
    return np.frombuffer(blob, dtype).reshape(shape)


def _value(name: str, value: Any, arrays: list[NDArray[Any]]) -> Any:
    if name in _READERS and value is not None:
        return _READERS[name](value)
    if isinstance(value, dict) and name == "budget":
        return (AllottedBudget if value["is_allotted"] else Budget)(value["usd"])
    if isinstance(value, dict) and name == "local_steps":
        return DecidedSteps(value["decided"])
    if isinstance(value, dict) and "dataset" in value:
        kind = DATASETS[value["dataset"]]
        dataset = kind.__new__(kind)
        vars(dataset).update((key, _whole(each, arrays)) for key, each in value["parts"].items())
        return dataset
    return value


def _whole(part: Any, arrays: list[NDArray[Any]]) -> Any:
    """The attribute that `_part` turned into JSON."""
    if isinstance(part, list):
        return [_whole(each, arrays) for each in part]
    if not isinstance(part, dict):
        return part
    if "array" in part:
        return arrays[part["array"]]
    if "csr" in part:
        from scipy.sparse import csr_array

        data, indices, indptr = (arrays[number] for number in part["csr"])
        return csr_array((data, indices, indptr), shape=tuple(part["shape"]))
    if "names" in part:
        return names_of({key: arrays[number] for key, number in part["names"].items()})
    if "tuple" in part:
        return tuple(_whole(each, arrays) for each in part["tuple"])
    return {_whole(key, arrays): _whole(each, arrays) for key, each in part["dict"]}
