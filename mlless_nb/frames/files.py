"""CSV and Parquet files as sources of columns, read in batches with pyarrow: a file may be larger than memory."""

from __future__ import annotations

import csv as text_rows
import importlib.util
import re
from collections.abc import Iterator, Mapping
from typing import IO, Any

from ..errors import DataError
from .locations import UNREADABLE, Location, check_unchanged, name_of, unreadable
from .sources import BATCH_ROWS, CODED, NUMBERS, TIMES, Batch, Source, arrow_batch, arrow_kind, different_names

SEPARATORS = (b"\t", b";", b",")
_PARQUET = b"PAR1"
#: pyarrow's errors are ValueErrors, OSErrors, and these.
_WRONG = (*UNREADABLE, ValueError, TypeError, LookupError, NotImplementedError)


def separator_of(first: bytes) -> bytes:
    """The separator of a text file's columns, by its first line."""
    return next((one for one in SEPARATORS if one in first), SEPARATORS[-1])


def file_source(files: tuple[Location, ...]) -> Source:
    """Files of one kind, CSV or Parquet, as a source; DataError if pyarrow is missing or the first file is neither."""
    if importlib.util.find_spec("pyarrow") is None:
        raise DataError("path", files[0].name, "read with pyarrow, which is missing: pip install 'mlless_nb[parquet]'")
    try:
        with files[0].opened() as opened:
            is_parquet = opened.read(len(_PARQUET)) == _PARQUET
    except UNREADABLE as error:
        raise unreadable(files[0], error) from None
    return ParquetSource(files) if is_parquet else CsvSource(files)


class _FileSource(Source):
    """What both kinds of files share."""

    is_in_memory = False

    def __init__(self, files: tuple[Location, ...]) -> None:
        self._files = files
        self.name = name_of(files)

    def batches(self, roles: Mapping[str, str]) -> Iterator[Batch]:
        """See `Source`."""
        check_unchanged(self._files)
        for file in self._files:
            try:
                for batch in self._batches(file, roles):
                    yield arrow_batch(batch, roles)
            except DataError:
                raise
            except _WRONG as error:
                raise self._refused(file, error) from None

    def _batches(self, file: Location, roles: Mapping[str, str]) -> Iterator[Any]:
        raise NotImplementedError

    def _refused(self, file: Location, error: Exception) -> DataError:
        return unreadable(file, error)


class ParquetSource(_FileSource):
    """Parquet files with the same columns."""

    def __init__(self, files: tuple[Location, ...]) -> None:
        super().__init__(files)
        try:
            with self._opened(files[0], []) as opened:
                schema = opened.schema_arrow
        except _WRONG as error:
            raise self._refused(files[0], error) from None
        self.columns = {field.name: arrow_kind(field.type) for field in schema}
        different_names(schema.names, "path")

    @staticmethod
    def _opened(file: Location, coded: list[str]) -> Any:
        from pyarrow.parquet import ParquetFile

        return ParquetFile(file.opened(), read_dictionary=coded)

    def _batches(self, file: Location, roles: Mapping[str, str]) -> Iterator[Any]:
        coded = [name for name, role in roles.items() if role == CODED and self.columns[name] != NUMBERS]
        with self._opened(file, coded) as opened:
            types = {field.name: field.type for field in opened.schema_arrow}
            if missing := [name for name in roles if name not in types]:
                raise DataError(file.name, f"without column {missing[0]!r}", "a file with the columns of the first one")
            for name in roles:
                if (kind := arrow_kind(types[name])) != self.columns[name] and str(types[name]) != "null":
                    raise DataError(
                        f"{file.name}, column {name!r}", kind, f"{self.columns[name]}, as in the first file"
                    )
            yield from opened.iter_batches(batch_size=BATCH_ROWS, columns=list(roles), use_threads=False)


class CsvSource(_FileSource):
    """CSV and TSV files with the same columns; quoted values are understood; blanks, NA, NaN and null have no value.

    A file whose first line has numbers only has no header: its columns are named "0", "1" and so on. What a column
    holds is decided by the first megabyte.
    """

    is_text_file = True

    def __init__(self, files: tuple[Location, ...]) -> None:
        super().__init__(files)
        with files[0].text() as opened:
            first = self._first_line(files[0], opened)
        self._separator = separator_of(first.encode()).decode()
        fields = [field.strip() for field in next(text_rows.reader([first], delimiter=self._separator), [])]
        self._has_header = not fields or not all(map(_is_number, fields))
        self._names = fields if self._has_header else [str(place) for place in range(len(fields))]
        if len(set(self._names)) < len(fields) or not fields:
            raise DataError("path", files[0].name, "a file whose first line has the columns' names, all different")
        self._types: dict[str, Any] = {}
        try:
            with files[0].text() as opened, self._reader(opened, self._names, {}) as reader:
                self._types = {field.name: field.type for field in reader.schema}
        except _WRONG as error:
            raise self._refused(files[0], error) from None
        self.columns = {name: self._kind(self._types[name]) for name in self._names}

    @staticmethod
    def _kind(of: Any) -> str:
        kind = arrow_kind(of)
        return "text that is not UTF-8" if kind == "binary" else kind

    def _reader(self, opened: Any, names: list[str], types: dict[str, Any]) -> Any:
        from pyarrow import csv

        return csv.open_csv(
            opened,
            csv.ReadOptions(column_names=self._names, skip_rows=int(self._has_header), use_threads=False),
            csv.ParseOptions(delimiter=self._separator, newlines_in_values=False),
            csv.ConvertOptions(include_columns=names, column_types=types, strings_can_be_null=True),
        )

    def _batches(self, file: Location, roles: Mapping[str, str]) -> Iterator[Any]:
        import pyarrow

        types = {name: self._types[name] for name in roles}
        for name, role in roles.items():
            if role == CODED:
                types[name] = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
            elif self.columns[name] != TIMES and not pyarrow.types.is_boolean(types[name]):
                types[name] = pyarrow.float64()
        if self._has_header:
            self._check_header(file)
        with file.text() as opened, self._reader(opened, list(roles), types) as reader:
            yield from reader

    @staticmethod
    def _first_line(file: Location, opened: IO[bytes]) -> str:
        try:
            return opened.readline(1 << 20).rstrip(b"\r\n").decode(errors="replace")
        except UNREADABLE as error:
            raise unreadable(file, error) from None

    def _check_header(self, file: Location) -> None:
        if file is self._files[0]:
            return
        with file.text() as opened:
            first = self._first_line(file, opened)
        if [field.strip() for field in next(text_rows.reader([first], delimiter=self._separator), [])] != self._names:
            raise DataError(f"{file.name}, line 1", first, f"the header of {self._files[0].name}")

    def _refused(self, file: Location, error: Exception) -> DataError:
        found = re.search(r"column #(\d+):.*(?:invalid value|value) '(.*?)'", " ".join(str(error).split()))
        if found is None:
            return super()._refused(file, error)
        name = self._names[int(found[1])]
        kind = "numbers" if self.columns[name] == NUMBERS else "as in its first rows"
        valid = f"{kind}; a column of texts from its first rows on, or categorical=[{name!r}], makes categories of it"
        return DataError(f"{file.name}, column {name!r}", found[2], valid)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
