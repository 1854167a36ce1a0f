"""Adding updates to the parameters, and the significance split of ISP.

In three layers: loops in C (``filter_loops.h``), one typed call, a ``def`` that checks everything once.
"""

from libc.stdint cimport int32_t, uint32_t


cdef extern from "filter.h" nogil:
    Py_ssize_t split_flat(Py_ssize_t n, const float *x, const float *u, float *residual, float threshold,
                          uint32_t *positions, float *values)
    Py_ssize_t split_rows(Py_ssize_t m, Py_ssize_t width, const int32_t *rows, const float *x, const float *u,
                          float *residual, float threshold, uint32_t *positions, float *values)
    Py_ssize_t flush_flat(Py_ssize_t n, float *residual, uint32_t *positions, float *values)
    void add_flat(Py_ssize_t n, float *x, const float *u)
    void add_rows(Py_ssize_t m, Py_ssize_t width, const int32_t *rows, float *x, const float *u)

cdef extern from "checks.h" nogil:
    bint ids_ascend(const int32_t *ids, Py_ssize_t n, long long high)


def apply_rows(float[:, ::1] params not None, const int32_t[::1] rows, const float[:, ::1] update not None):
    """``params[rows] += update``; every row where ``rows`` is None.

    Parameters
    ----------
    params : float32 (n_rows, width)
        Changed in place.
    rows : int32 (m,) or None
        Strictly ascending.
    update : float32 (m, width), or (n_rows, width)
    """
    check_update(params, rows, update)
    if update.shape[0] == 0 or update.shape[1] == 0:
        return
    with nogil:
        if rows is None:
            add_flat(update.shape[0] * update.shape[1], &params[0, 0], &update[0, 0])
        else:
            add_rows(rows.shape[0], params.shape[1], &rows[0], &params[0, 0], &update[0, 0])


def split_significant(
    const float[:, ::1] params not None,
    const int32_t[::1] rows,
    const float[:, ::1] update not None,
    float[:, ::1] residual not None,
    double threshold,
    uint32_t[::1] positions not None,
    float[::1] values not None,
):
    """Add ``update`` to ``residual`` and take out what is significant; returns how many values that are.

    ``residual += update``; where ``|residual| > threshold * |params|`` (so always where the parameter is 0 and the
    residual is not) the value is emitted and the residual becomes 0: nothing is lost. A threshold of 0 emits every
    non-zero. A NaN is significant: it must not hide.

    Parameters
    ----------
    params : float32 (n_rows, width)
    rows : int32 (m,) or None
        Rows of ``update``, strictly ascending; None: all.
    update : float32 (m, width), or (n_rows, width)
    residual : float32 (n_rows, width)
        Changed in place.
    threshold : float
        ``v_t``, at least 0.
    positions : uint32, at least ``update.size`` long
        ``row * width + column`` of what is emitted, ascending; the rest of the array is left undefined.
    values : float32, as long
        What is emitted.

    References
    ----------
    MLLess (journal), section 4.1.
    """
    cdef Py_ssize_t size = update.shape[0] * update.shape[1], count = 0
    check_update(params, rows, update)
    if residual.shape[0] != params.shape[0] or residual.shape[1] != params.shape[1]:
        raise ValueError(
            f"residual has shape {residual.shape[0], residual.shape[1]}: must be {params.shape[0], params.shape[1]}"
        )
    check_room(params.shape[0] * params.shape[1], size, positions, values)
    if not threshold >= 0:
        raise ValueError(f"threshold={threshold}: must be >= 0")
    if size == 0:
        return 0
    with nogil:
        if rows is None:
            count = split_flat(size, &params[0, 0], &update[0, 0], &residual[0, 0], threshold, &positions[0],
                               &values[0])
        else:
            count = split_rows(rows.shape[0], params.shape[1], &rows[0], &params[0, 0], &update[0, 0],
                               &residual[0, 0], threshold, &positions[0], &values[0])
    return count


def flush_residual(float[:, ::1] residual not None, uint32_t[::1] positions not None, float[::1] values not None):
    """Emit every non-zero of ``residual``, which becomes 0; returns how many. Arrays as :func:`split_significant`'s."""
    cdef Py_ssize_t size = residual.shape[0] * residual.shape[1], count = 0
    check_room(size, size, positions, values)
    if size:
        with nogil:
            count = flush_flat(size, &residual[0, 0], &positions[0], &values[0])
    return count


cdef int check_update(const float[:, ::1] params, const int32_t[::1] rows, const float[:, ::1] update) except -1:
    cdef Py_ssize_t m = params.shape[0] if rows is None else rows.shape[0]
    if update.shape[0] != m or update.shape[1] != params.shape[1]:
        raise ValueError(f"update has shape {update.shape[0], update.shape[1]}: must be {m, params.shape[1]}")
    if rows is not None and m and not ids_ascend(&rows[0], m, params.shape[0]):
        raise ValueError(f"rows must be strictly ascending rows of params, in [0, {params.shape[0]})")
    return 0


cdef int check_room(Py_ssize_t table, Py_ssize_t size, uint32_t[::1] positions, float[::1] values) except -1:
    if table > 0xFFFFFFFF:
        raise ValueError(f"the table has {table} entries: must be below 2**32")
    if positions.shape[0] < size or values.shape[0] < size:
        raise ValueError(
            f"positions and values have lengths {positions.shape[0]}, {values.shape[0]}: must be at least {size}"
        )
    return 0
