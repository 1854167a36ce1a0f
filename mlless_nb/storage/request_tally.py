"""What the functions of this machine have requested of the object storage, also those that were killed.

What a function has told of itself is lost with a server that loses its data; what it has not told, with the function.
On this machine each keeps its count in a file of the run, as a record of its own, which the driver reads at the end.
"""

from __future__ import annotations

import contextlib
import os
import struct

#: A function's reads and writes so far.
_RECORD = struct.Struct("=QQ")


class RequestTally:
    """The records of a run's functions, for its driver.

    Parameters
    ----------
    path : str
        The file, which is there and empty. It may be removed while it is open.

    Raises
    ------
    OSError
        It cannot be read.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._counts: tuple[int, int] | None = None

    def counts(self) -> tuple[int, int]:
        """The reads and the writes of all functions so far, or up to `close`."""
        if self._counts is not None:
            return self._counts
        blob = os.pread(self._file, os.fstat(self._file).st_size, 0)
        records = [*_RECORD.iter_unpack(blob[: len(blob) // _RECORD.size * _RECORD.size])]
        return sum(gets for gets, _ in records), sum(puts for _, puts in records)

    def close(self) -> None:
        """Read it for the last time: the functions have ended. Idempotent."""
        if self._counts is None:
            try:
                self._counts = self.counts()
            finally:
                self._counts = self._counts or (0, 0)
                os.close(self._file)


class TallyEntry:
    """The record of one function.

    Parameters
    ----------
    path : str

    Raises
    ------
    OSError
        The file cannot be written; `FileNotFoundError` if there is none.
    """

    def __init__(self, path: str) -> None:
        adding = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(adding, bytes(_RECORD.size))
            self._at = os.lseek(adding, 0, os.SEEK_CUR) - _RECORD.size
        finally:
            os.close(adding)
        # One with O_APPEND writes at the end, whatever the offset. This one is open until the process ends.
        self._file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def note(self, gets: int, puts: int) -> None:
        """The function has made so many requests."""
        with contextlib.suppress(OSError):  # a disk that fails refuses the request, too
            os.pwrite(self._file, _RECORD.pack(gets, puts), self._at)
