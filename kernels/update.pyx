"""Adding updates to the parameters; and for local steps: saving rows before them, and extracting their total change.

Rows of ``params`` and ``base`` may be spaced, as in ``block[:, :width]``.
"""

from cython cimport view
from libc.stdint cimport int32_t, uint32_t


cdef extern from "update.h" nogil:
    ctypedef struct float_table:
        float *at
        Py_ssize_t stride
    void add_rows(Py_ssize_t m, Py_ssize_t width, const int32_t *rows, float_table x, const float *u)
    void take_rows(Py_ssize_t m, Py_ssize_t width, const int32_t *rows, float_table x, float_table base, float scale,
                   float *out)
    void copy_unmarked(Py_ssize_t m, Py_ssize_t width, const int32_t *rows, float_table x, float_table base,
                       uint32_t *marks, uint32_t round)

cdef extern from "levels.h" nogil:
    int level()

cdef extern from "checks.h":
    bint ids_ascend(const int32_t *ids, Py_ssize_t n, long long high) nogil
    Py_ssize_t row_stride(const char *name, Py_ssize_t n_rows, Py_ssize_t width, Py_ssize_t stride_bytes) except -1


def instruction_set():
    """The instruction set that the kernels of this process use: "generic", "avx2" or "avx512"."""
    return ("generic", "avx2", "avx512")[level()]


def apply_rows(
    float[:, ::view.contiguous] params not None, const int32_t[::1] rows, const float[:, ::1] update not None
):
    """``params[rows] += update``; all rows if ``rows`` is None.

    Parameters
    ----------
    params : float32 (n_rows, width)
        Changed in place.
    rows : int32 (m,) or None
        Strictly ascending.
    update : float32 (m, width), or (n_rows, width)

    Raises
    ------
    ValueError
        When a shape or type is wrong or a row out of range; nothing is written then.
    """
    cdef Py_ssize_t m = check_rows(rows, params.shape[0]), width = params.shape[1]
    cdef float_table x = table_of("params", params, params.shape[0], width)
    if update.shape[0] != m or update.shape[1] != width:
        raise ValueError(f"update has shape {update.shape[0], update.shape[1]}: must be {m, width}")
    if m and width:
        with nogil:
            add_rows(m, width, ids_of(rows), x, &update[0, 0])


def snapshot_rows(
    float[:, ::view.contiguous] params not None,
    const int32_t[::1] rows,
    float[:, ::view.contiguous] base not None,
    uint32_t[::1] marks not None,
    uint32_t round_id,
):
    """Copy to ``base`` each of ``rows`` (None: all) that no earlier call of this round has copied.

    Called before each local step of a round, with the rows that it will change.

    Parameters
    ----------
    params : float32 (n_rows, width)
    rows : int32 (m,) or None
        Strictly ascending.
    base : float32 (n_rows, width)
        Rows as they were when the round began.
    marks : uint32 (n_rows,)
        The round in which each row was last copied; changed in place.
    round_id : int
        Different from those of all earlier rounds, and from the initial ``marks``.

    Raises
    ------
    ValueError
        When a shape or type is wrong or a row out of range; nothing is written then.
    """
    cdef Py_ssize_t n_rows = params.shape[0], width = params.shape[1], m = check_rows(rows, n_rows)
    cdef float_table x = table_of("params", params, n_rows, width), kept = table_of("base", base, n_rows, width)
    if marks.shape[0] != n_rows:
        raise ValueError(f"marks has length {marks.shape[0]}: must be {n_rows}")
    if m:
        with nogil:
            copy_unmarked(m, width, ids_of(rows), x, kept, &marks[0], round_id)


def extract_delta(
    float[:, ::view.contiguous] params not None,
    const int32_t[::1] rows,
    float[:, ::view.contiguous] base not None,
    double scale,
    float[:, ::1] out not None,
):
    """``out = (params - base) * scale``, then ``params = base``, on ``rows`` (None: all).

    Afterwards ``params`` is bit-identical to what it was before the local steps, and ``out`` is the update to exchange.

    Parameters
    ----------
    params, base : float32 (n_rows, width)
        ``params`` changes in place.
    rows : int32 (m,) or None
        Strictly ascending; each was saved by :func:`snapshot_rows`.
    scale : float
    out : float32 (m, width), or (n_rows, width)
        Overwritten.

    Raises
    ------
    ValueError
        When a shape or type is wrong or a row out of range; nothing is written then.
    """
    cdef Py_ssize_t n_rows = params.shape[0], width = params.shape[1], m = check_rows(rows, n_rows)
    cdef float_table x = table_of("params", params, n_rows, width), kept = table_of("base", base, n_rows, width)
    if out.shape[0] != m or out.shape[1] != width:
        raise ValueError(f"out has shape {out.shape[0], out.shape[1]}: must be {m, width}")
    if m and width:
        with nogil:
            take_rows(m, width, ids_of(rows), x, kept, scale, &out[0, 0])


cdef Py_ssize_t check_rows(const int32_t[::1] rows, Py_ssize_t n_rows) except -1:
    """Check ``rows``; returns their number."""
    if rows is None:
        return n_rows
    if rows.shape[0] and not ids_ascend(&rows[0], rows.shape[0], n_rows):
        raise ValueError(f"rows must be strictly ascending rows of params, in [0, {n_rows})")
    return rows.shape[0]


cdef const int32_t *ids_of(const int32_t[::1] rows) noexcept nogil:
    """NULL for every row."""
    return <const int32_t *>NULL if rows is None else &rows[0]


cdef float_table table_of(str name, float[:, ::view.contiguous] table, Py_ssize_t n_rows, Py_ssize_t width) except *:
    """Address and stride of a table's rows."""
    cdef float_table found
    if table.shape[0] != n_rows or table.shape[1] != width:
        raise ValueError(f"{name} has shape {table.shape[0], table.shape[1]}: must be {n_rows, width}")
    found.at, found.stride = &table[0, 0], row_stride(name.encode(), n_rows, width, table.strides[0])
    return found
