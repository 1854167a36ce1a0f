"""Tables in memory as batches of columns: pandas, Polars, Arrow, NumPy, and dictionaries of columns.

Polars and Arrow tables, and others with the Arrow C stream interface (``__arrow_c_stream__``), are read with pyarrow;
pandas tables with what they bring themselves.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..validation import nearest
from .ids import Coded, are_numbers, array_of, coded, is_missing, plain_values

Float64 = NDArray[np.float64]
#: Rows of a batch.
BATCH_ROWS = 1 << 16
#: What a column is read as: numbers float64 (n,) with NaN where there is no value, points in time as numbers, `Coded`
#: values.
NUMBER, TIME, CODED = "number", "time", "coded"
#: What a column holds, if it can be read.
NUMBERS, TEXT, TIMES = "numbers", "text", "times"
Batch = dict[str, Any]
#: What pandas calls columns of objects that are numbers, beside missing values.
_INFERRED_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "boolean")


class Source(ABC):
    """A table whose columns are read in batches of rows, as often as it is asked for.

    Attributes
    ----------
    name : str
        Shown to users.
    columns : dict of str
        By column, what it holds: `NUMBERS`, `TEXT`, `TIMES`, or the name of another type.
    is_text_file : bool
        Whether whole numbers among texts are integers, and dates are texts where texts are wanted.
    is_in_memory : bool
    n_rows : int or None
        Number of rows, where that is known before they are read.
    """

    name: str
    columns: dict[str, str]
    is_text_file: bool = False
    is_in_memory: bool = True
    n_rows: int | None = None

    @abstractmethod
    def batches(self, roles: Mapping[str, str]) -> Iterator[Batch]:
        """The columns named in ``roles``, each as its role says: `NUMBER`, `TIME` or `CODED`."""

    @property
    def listed(self) -> str:
        """The names of the columns, of the first twenty if there are more."""
        return ", ".join(list(self.columns)[:20]) + (", ..." if len(self.columns) > 20 else "")

    def check_column(self, field: str, column: object, *others: str) -> str:
        """The name of a column that the table has and that can be read as one of ``others``; else DataError."""
        if isinstance(column, int) and not isinstance(column, bool) and str(column) in self.columns:
            column = str(column)
        if not isinstance(column, str) or column not in self.columns:
            near = nearest(column, self.columns) if isinstance(column, str) else None
            meant = f"; is {near} meant?" if near is not None else ""
            raise DataError(field, column, f"the name of a column; there are {self.listed}{meant}")
        kind = self.columns[column]
        is_dates_as_text = kind == TIMES and TEXT in others and self.is_text_file
        if kind not in others and not is_dates_as_text:
            raise DataError(f"{field}, column {column!r}", kind, self.remedy(kind, others))
        return column

    @staticmethod
    def remedy(kind: str, others: tuple[str, ...]) -> str:
        """What a column of a wrong kind must be."""
        valid = " or ".join(others)
        if kind == TIMES:
            return f"{valid}; the days since a date are numbers, for instance, or leave it out"
        if kind == TEXT:
            return f"{valid}; convert it to numbers first"
        return f"{valid}; convert it to numbers or text first, or leave it out"


def different_names(names: list[str], field: str = "frame") -> list[str]:
    """``names`` of columns; DataError if two of them are the same."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(field, f"two columns {twice!r}", "a table whose columns have different names")
    return names


class FrameSource(Source):
    """A pandas DataFrame."""

    def __init__(self, frame: Any) -> None:
        import sys

        self._pandas, self._frame, self.name = sys.modules["pandas"], frame, "DataFrame"
        self.n_rows, names = len(frame), different_names([str(name) for name in frame.columns])
        self._place = {name: place for place, name in enumerate(names)}
        self.columns = {name: self._kind_of(frame.iloc[:, place]) for name, place in self._place.items()}

    def _kind_of(self, series: Any) -> str:
        if series.dtype == object and len(series):
            inferred = self._pandas.api.types.infer_dtype(series)
            if inferred in _INFERRED_NUMBERS or inferred == "empty":  # all are missing, as numbers may be
                return NUMBERS
        return self._kind(series.dtype)

    def _kind(self, dtype: Any) -> str:
        types = self._pandas.api.types
        if isinstance(dtype, self._pandas.CategoricalDtype):
            return self._kind(dtype.categories.dtype) if types.is_datetime64_any_dtype(dtype.categories) else TEXT
        if types.is_datetime64_any_dtype(dtype):
            return TIMES
        if types.is_complex_dtype(dtype) or types.is_timedelta64_dtype(dtype):
            return str(dtype)
        if types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype):
            return NUMBERS
        is_text = types.is_object_dtype(dtype) or types.is_string_dtype(dtype)
        return TEXT if is_text else str(dtype)

    def batches(self, roles: Mapping[str, str]) -> Iterator[Batch]:
        """See `Source`."""
        for begin in range(0, max(len(self._frame), 1), BATCH_ROWS):
            part = self._frame.iloc[begin : begin + BATCH_ROWS]
            yield {name: self._read(name, part.iloc[:, self._place[name]], role) for name, role in roles.items()}

    def _read(self, name: str, series: Any, role: str) -> Any:
        if role == NUMBER:
            try:
                values: Float64 = series.to_numpy(np.float64, na_value=np.nan)
            except (TypeError, ValueError) as error:
                raise DataError(f"column {name!r}", str(series.dtype), f"numbers ({error})") from None
            return values
        if role == TIME and self.columns[name] == TIMES:
            if hasattr(series.dtype, "pyarrow_dtype"):
                import pyarrow

                return _arrow_column(name, pyarrow.array(series.array), role)
            if getattr(series.dt, "tz", None) is not None:
                series = series.dt.tz_convert("UTC").dt.tz_localize(None)
            return _times(series.to_numpy("datetime64[us]"))
        if role == TIME:
            return self._read(name, series, NUMBER)
        codes, values = self._pandas.factorize(series)
        return Coded(codes, plain_values(f"column {name!r}", values.tolist()))


class ArraySource(Source):
    """Columns by name: a dictionary of arrays, a structured array, or a 2-D array whose columns have numbers."""

    def __init__(self, arrays: dict[str, NDArray[Any]], name: str) -> None:
        self.name, self._arrays = name, arrays
        for name, array in arrays.items():
            if array.ndim != 1:
                raise DataError(f"column {name!r}", f"shape {array.shape}", "one-dimensional")
        lengths = {len(array) for array in arrays.values()}
        if len(lengths) > 1:
            shown = ", ".join(f"{name} {len(array)}" for name, array in arrays.items())
            raise DataError("frame", f"columns of lengths {shown}", "columns of the same length")
        self.columns = {name: self._kind(array) for name, array in arrays.items()}
        self.n_rows = max(lengths, default=0)

    @staticmethod
    def _kind(array: NDArray[Any]) -> str:
        if array.dtype.kind == "O" and are_numbers(array):
            return NUMBERS
        kinds = {**dict.fromkeys("biuf", NUMBERS), **dict.fromkeys("UO", TEXT), "M": TIMES}
        return kinds.get(array.dtype.kind, str(array.dtype))

    def batches(self, roles: Mapping[str, str]) -> Iterator[Batch]:
        """See `Source`."""
        for begin in range(0, max(self.n_rows or 0, 1), BATCH_ROWS):
            end = begin + BATCH_ROWS
            yield {name: self._read(name, self._arrays[name][begin:end], role) for name, role in roles.items()}

    def _read(self, name: str, array: NDArray[Any], role: str) -> Any:
        if role == CODED:
            return coded(f"column {name!r}", array)
        return _times(array) if array.dtype.kind == "M" else array.astype(np.float64)


class ArrowSource(Source):
    """A Polars or Arrow table, or what else has the Arrow C stream interface."""

    def __init__(self, table: Any, name: str) -> None:
        self.name, self._table, self.n_rows = name, table, table.num_rows
        different_names(table.column_names)
        self.columns = {field.name: arrow_kind(field.type) for field in table.schema}

    def batches(self, roles: Mapping[str, str]) -> Iterator[Batch]:
        """See `Source`."""
        for batch in self._table.select(list(roles)).to_batches(max_chunksize=BATCH_ROWS):
            yield arrow_batch(batch, roles)


def arrow_kind(kind: Any) -> str:
    """What a column of an Arrow type holds."""
    from pyarrow import types

    if types.is_dictionary(kind):
        inner = arrow_kind(kind.value_type)
        return TEXT if inner in (TEXT, NUMBERS) else inner
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    if is_number:
        return NUMBERS
    if types.is_string(kind) or types.is_large_string(kind) or str(kind) in ("string_view", "extension<arrow.uuid>"):
        return TEXT
    if types.is_null(kind):
        return NUMBERS
    return TIMES if types.is_timestamp(kind) or types.is_date(kind) else str(kind)


def arrow_batch(batch: Any, roles: Mapping[str, str]) -> Batch:
    """The columns of an Arrow record batch or table, as `Source.batches` has them."""
    return {name: _arrow_column(name, batch.column(name), role) for name, role in roles.items()}


def _arrow_column(name: str, column: Any, role: str) -> Any:
    import pyarrow
    from pyarrow import types

    if role != CODED:
        if types.is_date(column.type):
            column = column.cast(pyarrow.timestamp("s"))
        if types.is_timestamp(column.type):
            microseconds = column.cast(pyarrow.timestamp("us", column.type.tz), safe=False)
            return _times(microseconds.to_numpy(zero_copy_only=False))
        if types.is_boolean(column.type):
            column = column.cast(pyarrow.int8())
        # not safe: large integers are rounded, as those of pandas and NumPy are
        values: Float64 = column.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
        return values
    if str(column.type) == "string_view":
        column = column.cast(pyarrow.large_string())
    if str(column.type) == "extension<arrow.uuid>":
        return coded(f"column {name!r}", np.array([*column.to_pylist(), None], object)[:-1])
    if not types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices.cast(pyarrow.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    listed = column.dictionary.to_pylist()
    # a dictionary may have missing values among its values
    for place in reversed([place for place, value in enumerate(listed) if is_missing(value)]):
        codes = np.where(codes == place, -1, codes - (codes > place))
        del listed[place]
    return Coded(codes, plain_values(f"column {name!r}", listed))


def _times(array: NDArray[Any]) -> Float64:
    """Seconds since 1970, NaN where there is no value."""
    found: Float64 = np.where(np.isnat(array), np.nan, array.astype("datetime64[us]").astype(np.int64) * 1e-6)
    return found


def source_of(frame: Any, field: str = "frame") -> Source:
    """``frame`` as a source; DataError if it is no table."""
    kind = type(frame)
    if kind.__module__.partition(".")[0] == "pandas" and kind.__name__ == "DataFrame":
        return _checked(FrameSource(frame), field)
    if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):  # a LazyFrame of Polars
        frame = frame.collect()
    if hasattr(frame, "__arrow_c_stream__") and not hasattr(frame, "dtype"):
        if importlib.util.find_spec("pyarrow") is None:
            valid = "read with pyarrow, which is missing: pip install 'mlless_nb[parquet]'"
            raise DataError(field, kind.__name__, valid)
        import pyarrow

        return _checked(ArrowSource(pyarrow.table(frame), kind.__name__), field)
    if isinstance(frame, Mapping):
        names = different_names([str(name) for name in frame])
        columns = {
            name: array_of(f"column {name!r}", values) for name, values in zip(names, frame.values(), strict=True)
        }
        return _checked(ArraySource(columns, "columns"), field)
    if isinstance(frame, np.ndarray) and frame.dtype.names:
        return _checked(ArraySource({name: frame[name] for name in frame.dtype.names}, "array"), field)
    if isinstance(frame, np.ndarray) and frame.ndim == 2:
        return _checked(ArraySource({str(k): frame[:, k] for k in range(frame.shape[1])}, "array"), field)
    if hasattr(frame, "tocsr"):
        raise DataError(field, frame, "a table with columns; rows of a sparse matrix are taken by datasets.csr(X, y)")
    valid = "a table (pandas, Polars, Arrow, NumPy, a dictionary of columns), or the path of a CSV or Parquet file"
    raise DataError(field, f"a {kind.__name__}", valid)


def is_frame(value: object) -> bool:
    """Whether ``value`` is a table that `source_of` reads, but no plain array."""
    is_pandas = type(value).__module__.partition(".")[0] == "pandas" and type(value).__name__ == "DataFrame"
    has_stream = hasattr(value, "__arrow_c_stream__") and not hasattr(value, "dtype")
    has_names = isinstance(value, np.ndarray) and value.dtype.names is not None
    return is_pandas or has_stream or isinstance(value, Mapping) or has_names or hasattr(value, "collect_schema")


def column_names(value: Any) -> list[str]:
    """The names of the columns of a table for which `is_frame` holds, without reading it; for errors."""
    if isinstance(value, np.ndarray):
        return list(value.dtype.names or ())
    if isinstance(value, Mapping):
        return [str(name) for name in value]
    named: Any = next((getattr(value, name) for name in ("columns", "column_names") if hasattr(value, name)), [])
    return [str(name) for name in named]


def described(value: object) -> object:
    """What an error shows of a value that should be a dataset: of a table its kind and columns, else ``value``."""
    if not is_frame(value) or isinstance(value, Mapping):
        return value
    names = column_names(value)
    return f"{type(value).__name__} with columns {', '.join(names[:8])}" + (", ..." if len(names) > 8 else "")


def _checked(source: Source, field: str) -> Source:
    if not source.columns:
        raise DataError(field, "a table without columns", "a table with columns")
    return source
