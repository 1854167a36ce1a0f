"""Stored files before functions have counted their rows: the first rows, which stand for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ..plurals import count
from .csr import Csr
from .format import BadLine
from .spans import Files
from .stored_files import StoredFiles, listed
from .stream import CsrStream, Rows


class ForeseenRows(CsrStream):
    """Rows of stored files of which only the first ones are here; the number of all is estimated from these.

    Parameters
    ----------
    head : Csr
        The first rows.
    n : int
        Estimated number of all.
    n_files, n_bytes : int
        Number and size of the files.
    """

    def __init__(self, head: Csr, n: int, n_files: int, n_bytes: int) -> None:
        def read(_keep: NDArray[np.bool_] | None) -> Iterator[Rows]:
            yield head.X, head.y

        n_values = round(head.X.nnz * n / head.n)
        super().__init__(read, n, head.shape[0], n_values, f"foreseen {n}", head.name, head.y)
        self.n_head, self.n_files, self.n_bytes, self._ids_per_row = head.n, n_files, n_bytes, head.ids_per_row

    @property
    def ids_per_row(self) -> float:
        """That of the first rows."""
        return self._ids_per_row

    @property
    def nothing_to_learn(self) -> str:
        """Not known: the first labels may be alike though others differ."""
        return ""

    @property
    def sentence(self) -> str:
        """How many rows there seem to be: ``1 file of 12 MB, about 110,000 rows by its first 37,000``."""
        files = count(self.n_files, "file")
        size = f"{files} of {max(self.n_bytes / 1e6, 0.1):,.3g} MB"
        if self.n_head == self.n:
            return f"{size}, {count(self.n, 'row')}"
        return f"{size}, about {_rounded(self.n):,} rows by the first {_rounded(self.n_head):,}"


def foreseen(spec: StoredFiles, files_of: Callable[[str], Files]) -> ForeseenRows:
    """The rows of ``spec``, by a listing and the first ones of the first file, a few MB.

    Raises
    ------
    DataError
        Naming the object and the line that is wrong.
    """
    bucket, form = spec.place[0], spec.form
    files = files_of(bucket)
    sizes = listed(files, spec)
    (key, size), place = sizes[0], f"{bucket}/{sizes[0][0]}"
    first = form.first_line(files, key, size)
    layout = form.layout(place, first)
    block, share = form.first_block(files, key, size, first)
    try:
        _, facts = form.facts_of(block, layout)
    except BadLine as bad:
        raise bad.error(place, 1 + layout.has_header, form.unit) from None
    form.check(place, facts)
    X, y = form.rows_of(block, layout, facts)
    n_bytes = sum(each for _, each in sizes)
    n = round(len(y) / share * n_bytes / size)
    return ForeseenRows(Csr(X, y, spec.name), n, len(sizes), n_bytes)


def _rounded(n: int) -> int:
    """``n`` to two digits."""
    return int(float(f"{n:.2g}"))
