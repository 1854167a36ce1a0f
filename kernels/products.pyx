"""Products of sparse rows with a table of several columns, for models with one column for each class or cluster.

Three layers, as in ``linear``: loops in C, one typed call, and a ``def`` that checks all arguments.
"""

from libc.stdint cimport int32_t, uint16_t


cdef extern from "products.h" nogil:
    ctypedef struct sparse_rows:
        Py_ssize_t n
        const int32_t *indptr
        const void *indices
        bint is_wide
        const float *values
        Py_ssize_t n_columns
        const int32_t *columns
        const float *dense
    void product(sparse_rows x, const double *table, Py_ssize_t width, double *out, int to_rows)

cdef extern from "checks.h":
    bint ids_within(const int32_t *ids, Py_ssize_t n, long long high) nogil
    bint short_ids_within(const uint16_t *ids, Py_ssize_t n, long long high) nogil
    bint ids_ascend(const int32_t *ids, Py_ssize_t n, long long high) nogil
    bint indptr_fits(const int32_t *indptr, Py_ssize_t n, long long nnz) nogil


def rows_product(
    const int32_t[::1] columns not None,
    const float[:, ::1] dense not None,
    const int32_t[::1] indptr not None,
    indices not None,
    const float[::1] values not None,
    const double[:, ::1] weights not None,
    double[:, ::1] out not None,
):
    """Add ``X weights`` to ``out``; X are a minibatch's rows.

    It is fastest if the width is a multiple of 8.

    Parameters
    ----------
    columns, dense, indptr, indices, values
        As in `linear_gradient`.
    weights : float64 (m, width)
        One row for each of the minibatch's m features.
    out : float64 (n, width)
        Changed in place.

    Raises
    ------
    TypeError
        When ``indices`` is not an array.
    ValueError
        When a shape or type is wrong or an index out of range; nothing is written then.
    """
    cdef object held = memoryview(indices)  # nobody resizes it while the loops run
    cdef sparse_rows x = rows_of(columns, dense, indptr, held, values, out.shape[0], weights.shape[0])
    multiply(x, weights, out, 1)


def transposed_product(
    const int32_t[::1] columns not None,
    const float[:, ::1] dense not None,
    const int32_t[::1] indptr not None,
    indices not None,
    const float[::1] values not None,
    const double[:, ::1] slopes not None,
    double[:, ::1] out not None,
):
    """Add ``X^T slopes`` to ``out``, float64 (m, width); ``slopes`` is float64 (n, width). As `rows_product`."""
    cdef object held = memoryview(indices)  # nobody resizes it while the loops run
    cdef sparse_rows x = rows_of(columns, dense, indptr, held, values, slopes.shape[0], out.shape[0])
    multiply(x, slopes, out, 0)


cdef int multiply(sparse_rows x, const double[:, ::1] table, double[:, ::1] out, int to_rows) except -1:
    cdef Py_ssize_t width = table.shape[1]
    if out.shape[1] != width:
        raise ValueError(f"out has {out.shape[1]} columns: must have {width}, as the table")
    if table.shape[0] and out.shape[0] and width:
        with nogil:
            product(x, &table[0, 0], width, &out[0, 0], to_rows)
    return 0


cdef sparse_rows rows_of(
    const int32_t[::1] columns, const float[:, ::1] dense, const int32_t[::1] indptr, object indices,
    const float[::1] values, Py_ssize_t n, Py_ssize_t m,
) except *:
    """The rows as the loops take them, checked; they point into the arguments."""
    cdef Py_ssize_t nnz
    cdef const uint16_t[::1] narrow
    cdef const int32_t[::1] wide
    cdef sparse_rows x
    x.n, x.n_columns = n, columns.shape[0]
    if indptr.shape[0] != n + 1:
        raise ValueError(f"indptr has length {indptr.shape[0]}: must be {n + 1}, one more than the rows")
    x.is_wide = indices.itemsize != 2
    if x.is_wide:
        wide = indices
        nnz = wide.shape[0]
        x.indices = &wide[0] if nnz else NULL
    else:
        narrow = indices
        nnz = narrow.shape[0]
        x.indices = &narrow[0] if nnz else NULL
    if values.shape[0] not in (0, nnz):
        raise ValueError(f"indices and values have lengths {nnz}, {values.shape[0]}: must be equal, or values empty")
    if dense.shape[0] != x.n_columns or dense.shape[1] != n:
        raise ValueError(f"dense has shape {dense.shape[0], dense.shape[1]}: must be {x.n_columns, n}")
    if x.n_columns and not ids_ascend(&columns[0], x.n_columns, m):
        raise ValueError(f"columns must be strictly ascending, in [0, {m})")
    if not indptr_fits(&indptr[0], n, nnz):
        raise ValueError(f"indptr must rise from 0 to the number of indices, {nnz}")
    if not (ids_within(<const int32_t *>x.indices, nnz, m) if x.is_wide
            else short_ids_within(<const uint16_t *>x.indices, nnz, m)):
        raise ValueError(f"indices must be in [0, {m})")
    x.indptr = &indptr[0]
    x.values = &values[0] if values.shape[0] else NULL
    x.columns = &columns[0] if x.n_columns else NULL
    x.dense = &dense[0, 0] if x.n_columns and n else NULL
    return x
