"""The rows that a job's ``data`` and ``validation`` name: a data set, files by their kind, or columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ..data import datasets
from ..data.movielens import EDITIONS
from ..errors import DataError
from ..models import Model
from .calls import KIND, CallError, Table, called, table_of

#: Data sets by name, as `mlless_nb.datasets` has them.
MAKERS: dict[str, Callable[..., Any]] = {
    name: getattr(datasets, name)
    for name in (
        "movielens", "ratings", "table", "csv", "parquet", "libsvm", "criteo",
        "synthetic_ratings", "synthetic_clicks", "StoredFiles",
    )
}  # fmt: skip
#: The parameter of those that read files, by name; in a table it is ``path``.
FILES = {"ratings": "users", "table": "frame", "csv": "path", "parquet": "path", "libsvm": "path", "criteo": "path"}
#: What reads a file, by its suffix; a table whose label is the number of a column is read as numbers.
SUFFIXES = {".csv": "table", ".tsv": "table", ".parquet": "table", ".svm": "libsvm", ".libsvm": "libsvm"}
NUMBERS_ONLY = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
#: The column of a table that a model learns to predict, unless another is named.
LABEL = "label"
PACKED = (".gz", ".bz2", ".xz", ".zip")
EXAMPLE = '"clicks.csv" or {path = "ratings.csv", user = "user", item = "film", rating = "stars"}'


def data_table(value: object, folder: Path) -> Table:
    """``value`` as a table with ``kind``; its relative paths begin in ``folder``.

    Raises
    ------
    CallError
        If it names no data.
    """
    if isinstance(value, str) and "(" not in value:
        edition = value.lower().removeprefix("movielens-")
        if value.lower().startswith("movielens-") and edition in EDITIONS:
            return {KIND: "movielens", "edition": edition}
        value = {"path": value}
    if isinstance(value, list):
        value = {"path": value}
    if isinstance(value, Mapping) and KIND not in value:
        value = {KIND: _kind_of(value), **value}
    table = table_of(value, MAKERS, EXAMPLE)
    if (parameter := FILES.get(table[KIND])) is None:
        return table
    if parameter in table and parameter != "path":
        table["path"] = table.pop(parameter)
    if "path" in table:
        table["path"] = _absolute(table["path"], folder)
    return table


def validation_table(value: object, folder: Path) -> Table:
    """``value`` as a table of held-out rows: other files are read as those of the training rows are.

    Raises
    ------
    CallError
        If it names no data.
    """
    table = {"path": value} if isinstance(value, list) or (isinstance(value, str) and "(" not in value) else value
    if isinstance(table, Mapping) and KIND not in table:
        return {**table, **({"path": _absolute(table["path"], folder)} if "path" in table else {})}
    return data_table(table, folder)


def rows_of(table: Table, model: Model | None, like: Any = None) -> Any:
    """The data set of ``table``, for ``model``; ``like`` is the training data where these are other rows.

    Raises
    ------
    CallError, DataError
    """
    kind, arguments = table[KIND], dict(table)
    if kind in FILES:
        if "path" not in arguments:
            raise CallError(f"{kind} with path = ...")
        arguments[FILES[kind]] = arguments.pop("path")
        if kind in ("table", "csv", "parquet") and model is not None and model.data_kind == "ratings":
            raise CallError(
                'ratings: {path = ..., user = "...", item = "...", rating = "..."}, with the columns\' names'
            )
    if kind == "table" and (model is None or model.needs_labels):
        arguments.setdefault("label", LABEL)
    if like is not None and kind in ("ratings", "table"):
        arguments.setdefault("like", like)
    if like is not None and kind == "libsvm":
        arguments.setdefault("n_features", like.shape[0])
    try:
        return called(arguments, MAKERS)
    except DataError as error:
        if error.field != "frame":
            raise
        raise DataError("path", error.value, error.valid) from None


def _kind_of(table: Mapping[str, Any]) -> str:
    """What reads ``table``, which does not say so: by its columns, or by its file's suffix."""
    if "user" in table or "item" in table:
        return "ratings"
    if set(table) - {"path", "label"} - {"n_features"}:
        return "table"
    paths = table.get("path")
    path = paths[0] if isinstance(paths, list) and paths else paths
    if not isinstance(path, str):
        raise CallError(f"a path, {EXAMPLE}, or one of {', '.join(MAKERS)} as {KIND}")
    name = PurePosixPath(path.lower())
    while name.suffix in PACKED:
        name = name.with_suffix("")
    if name.suffix not in SUFFIXES:
        editions = ", ".join(f"movielens-{each}" for each in EDITIONS)
        raise CallError(
            f"a file whose name ends in {', '.join(SUFFIXES)}; one of {editions}; or a table with {KIND} = ..., one of "
            + ", ".join(MAKERS)
        )
    readers = {**SUFFIXES, **NUMBERS_ONLY} if isinstance(table.get("label"), int) else SUFFIXES
    return readers[name.suffix]


def _absolute(path: Any, folder: Path) -> Any:
    if isinstance(path, list):
        return [_absolute(each, folder) for each in path]
    return str(folder / path) if isinstance(path, str) and "://" not in path else path
