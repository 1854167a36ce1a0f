"""Linear models over sparse rows: gradient, loss and margins. The margin is ``z = w.x + intercept``.

Three layers: loops in C (``linear_loops.h``; one header for each loss), one typed call, and a ``def`` that checks all
arguments.
"""

from cython cimport view
from libc.stdint cimport int32_t, uint16_t
from libc.stdlib cimport free, malloc


cdef extern from "linear.h" nogil:
    ctypedef struct float_table:
        float *at
        Py_ssize_t stride
    ctypedef struct sparse_rows:
        Py_ssize_t n
        const int32_t *indptr
        const void *indices
        bint is_wide
        const float *values
        Py_ssize_t n_columns
        const int32_t *columns
        const float *dense
    double linear(int loss, const float *weights, Py_ssize_t m, sparse_rows x, const float *labels, float share,
                  float *grad)
    void margins(float_table params, Py_ssize_t n_features, const int32_t *indptr, const int32_t *indices,
                 const float *values, Py_ssize_t n, float *out)

cdef extern from "checks.h":
    bint ids_within(const int32_t *ids, Py_ssize_t n, long long high) nogil
    bint short_ids_within(const uint16_t *ids, Py_ssize_t n, long long high) nogil
    bint ids_ascend(const int32_t *ids, Py_ssize_t n, long long high) nogil
    bint indptr_fits(const int32_t *indptr, Py_ssize_t n, long long nnz) nogil
    Py_ssize_t row_stride(const char *name, Py_ssize_t n_rows, Py_ssize_t width, Py_ssize_t stride_bytes) except -1

cdef extern from "string.h" nogil:
    void *memset(void *target, int value, size_t n)


#: Places of the losses in LOSS_BLOCKS of linear_loops.h.
cdef dict LOSSES = {"logistic": 0, "squared": 1, "hinge": 2}


def linear_gradient(
    str loss not None,
    const float[:, ::view.contiguous] params not None,
    const int32_t[::1] ids not None,
    const int32_t[::1] columns not None,
    const float[:, ::1] dense not None,
    const int32_t[::1] indptr not None,
    indices not None,
    const float[::1] values not None,
    const float[::1] labels not None,
    double divisor,
    float[:, ::1] grad not None,
):
    """Overwrite ``grad`` with the gradient of a minibatch's losses; returns their sum before any update.

    The gradient is divided by ``divisor``. The x of row ``k`` is the sum of its values in the dense columns and its
    entries, ``indptr[k]`` to ``indptr[k + 1]``.

    Parameters
    ----------
    loss : str
        ``"logistic"``: ``log(1 + exp(z)) - y*z`` for labels 0 and 1. ``"squared"``: ``(z - y)**2``, with the gradient
        of half of it. ``"hinge"``: ``max(0, 1 - s*z)``; s is 1 if the label is above 0, else -1.
    params : float32 (n_features + 1, 1)
        One row for each feature, then the intercept's.
    ids : int32 (m,)
        The minibatch's features, strictly ascending.
    columns : int32 (n_columns,)
        Positions in ``ids`` of the columns in ``dense``, strictly ascending.
    dense : float32 (n_columns, n)
    indptr : int32 (n + 1,)
    indices : uint16 or int32 (nnz,)
        Positions in ``ids``.
    values : float32 (nnz,)
        Empty if every value is 1.
    labels : float32 (n,)
    divisor : float
        Above 0.
    grad : float32 (m + 1, 1)
        Overwritten: the gradient for each of ``ids``, then for the intercept.

    Raises
    ------
    TypeError
        When ``indices`` is not an array.
    ValueError
        When there is no such loss, a shape or type is wrong or an index out of range; nothing is written then.
    """
    cdef object held = memoryview(indices)  # nobody resizes it while the loops run
    cdef sparse_rows x = minibatch(params, ids, columns, dense, indptr, held, values, labels)
    if grad.shape[0] != ids.shape[0] + 1 or grad.shape[1] != 1:
        raise ValueError(f"grad has shape {grad.shape[0], grad.shape[1]}: must be {ids.shape[0] + 1, 1}")
    if not divisor > 0:
        raise ValueError(f"divisor={divisor}: must be > 0")
    return total_loss(number_of(loss), params, ids, x, labels, 1.0 / divisor, &grad[0, 0])


def linear_loss(
    str loss not None,
    const float[:, ::view.contiguous] params not None,
    const int32_t[::1] ids not None,
    const int32_t[::1] columns not None,
    const float[:, ::1] dense not None,
    const int32_t[::1] indptr not None,
    indices not None,
    const float[::1] values not None,
    const float[::1] labels not None,
):
    """Sum of the losses of a minibatch; arguments as :func:`linear_gradient`'s."""
    cdef object held = memoryview(indices)  # nobody resizes it while the loops run
    cdef sparse_rows x = minibatch(params, ids, columns, dense, indptr, held, values, labels)
    return total_loss(number_of(loss), params, ids, x, labels, 0.0, NULL)


def linear_margins(
    const float[:, ::view.contiguous] params not None,
    const int32_t[::1] indptr not None,
    const int32_t[::1] indices not None,
    const float[::1] values not None,
    float[::1] out not None,
):
    """Write ``w.x + intercept`` to ``out``, float32 (n,).

    ``params`` is float32 (n_features + 1, 1), the intercept last; ``indices`` are features. ValueError when one is out
    of range.
    """
    cdef Py_ssize_t n = out.shape[0], n_features = params.shape[0] - 1
    if params.shape[1] != 1 or n_features < 0:
        raise ValueError(f"params has shape {params.shape[0], params.shape[1]}: must be (n_features + 1, 1)")
    if indptr.shape[0] != n + 1:
        raise ValueError(f"indptr has length {indptr.shape[0]}: must be {n + 1}, one more than out")
    if indices.shape[0] != values.shape[0]:
        raise ValueError(f"indices and values have lengths {indices.shape[0]}, {values.shape[0]}: must be equal")
    check_indptr(indptr, n, indices.shape[0])
    if indices.shape[0] and not ids_within(&indices[0], indices.shape[0], n_features):
        raise ValueError(f"indices must be in [0, {n_features})")
    cdef float_table x
    x.at, x.stride = <float *>&params[0, 0], row_stride("params", n_features + 1, 1, params.strides[0])
    if n:
        with nogil:
            margins(x, n_features, &indptr[0], &indices[0] if indices.shape[0] else NULL,
                    &values[0] if values.shape[0] else NULL, n, &out[0])


cdef int number_of(str loss) except -1:
    """Place of a loss in LOSS_BLOCKS."""
    cdef object number = LOSSES.get(loss)
    if number is None:
        raise ValueError(f"loss={loss!r}: must be one of {', '.join(LOSSES)}")
    return number


cdef double total_loss(int loss, const float[:, ::view.contiguous] params, const int32_t[::1] ids, sparse_rows x,
                       const float[::1] labels, double share, float *grad) except? -1.0:
    """The minibatch's own weights are gathered once, so that the loops index one small array."""
    cdef Py_ssize_t m = ids.shape[0], k
    cdef double total
    cdef float *weights = <float *>malloc(sizeof(float) * (m + 1))
    if weights == NULL:
        raise MemoryError(f"no memory for {m + 1} weights")
    with nogil:
        for k in range(m):
            weights[k] = params[ids[k], 0]
        weights[m] = params[params.shape[0] - 1, 0]
        if grad != NULL:
            memset(grad, 0, sizeof(float) * (m + 1))
        total = linear(loss, weights, m, x, &labels[0] if x.n else NULL, share, grad)
        free(weights)
    return total


cdef sparse_rows minibatch(
    const float[:, ::view.contiguous] params, const int32_t[::1] ids, const int32_t[::1] columns,
    const float[:, ::1] dense, const int32_t[::1] indptr, object indices, const float[::1] values,
    const float[::1] labels,
) except *:
    """The rows as the loops take them, checked; they point into the arguments."""
    cdef Py_ssize_t m = ids.shape[0], n_features = params.shape[0] - 1, nnz
    cdef const uint16_t[::1] narrow
    cdef const int32_t[::1] wide
    cdef sparse_rows x
    x.n, x.n_columns = labels.shape[0], columns.shape[0]
    if params.shape[1] != 1 or n_features < 0:
        raise ValueError(f"params has shape {params.shape[0], params.shape[1]}: must be (n_features + 1, 1)")
    if indptr.shape[0] != x.n + 1:
        raise ValueError(f"indptr has length {indptr.shape[0]}: must be {x.n + 1}, one more than labels")
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
    if dense.shape[0] != x.n_columns or dense.shape[1] != x.n:
        raise ValueError(f"dense has shape {dense.shape[0], dense.shape[1]}: must be {x.n_columns, x.n}")
    if m and not ids_ascend(&ids[0], m, n_features):
        raise ValueError(f"ids must be strictly ascending, in [0, {n_features})")
    if x.n_columns and not ids_ascend(&columns[0], x.n_columns, m):
        raise ValueError(f"columns must be strictly ascending, in [0, {m})")
    check_indptr(indptr, x.n, nnz)
    if not (ids_within(<const int32_t *>x.indices, nnz, m) if x.is_wide
            else short_ids_within(<const uint16_t *>x.indices, nnz, m)):
        raise ValueError(f"indices must be in [0, {m})")
    x.indptr = &indptr[0]
    x.values = &values[0] if values.shape[0] else NULL
    x.columns = &columns[0] if x.n_columns else NULL
    x.dense = &dense[0, 0] if x.n_columns and x.n else NULL
    return x


cdef int check_indptr(const int32_t[::1] indptr, Py_ssize_t n, Py_ssize_t nnz) except -1:
    if not indptr_fits(&indptr[0], n, nnz):
        raise ValueError(f"indptr must rise from 0 to the number of indices, {nnz}")
    return 0
