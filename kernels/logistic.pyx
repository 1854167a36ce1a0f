"""Logistic regression over CSR rows: gradient, loss and margins.

In three layers: loops in C (``logistic_loops.h``), one typed call, a ``def`` that checks everything once.
"""

from cython cimport view
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc


cdef extern from "logistic.h" nogil:
    ctypedef struct float_table:
        float *at
        Py_ssize_t stride
    double logistic(const float *weights, Py_ssize_t m, const int32_t *indptr, const int32_t *indices,
                    const float *values, const float *labels, Py_ssize_t n, float share, float *grad)
    void margins(float_table params, Py_ssize_t n_features, const int32_t *indptr, const int32_t *indices,
                 const float *values, Py_ssize_t n, float *out)

cdef extern from "checks.h":
    bint ids_within(const int32_t *ids, Py_ssize_t n, long long high) nogil
    bint ids_ascend(const int32_t *ids, Py_ssize_t n, long long high) nogil
    bint indptr_fits(const int32_t *indptr, Py_ssize_t n, long long nnz) nogil
    Py_ssize_t row_stride(const char *name, Py_ssize_t n_rows, Py_ssize_t width, Py_ssize_t stride_bytes) except -1

cdef extern from "string.h" nogil:
    void *memset(void *target, int value, size_t n)


def logistic_gradient(
    const float[:, ::view.contiguous] params not None,
    const int32_t[::1] rows not None,
    const int32_t[::1] indptr not None,
    const int32_t[::1] indices not None,
    const float[::1] values not None,
    const float[::1] labels not None,
    double divisor,
    float[:, ::1] grad not None,
):
    """Overwrite ``grad`` with the gradient of a minibatch's log losses; returns their sum before any update.

    The loss of a row is ``log(1 + exp(z)) - y*z``, ``z = w.x + intercept``; the gradient is divided by ``divisor``.

    Parameters
    ----------
    params : float32 (n_rows, 1)
    rows : int32 (m,)
        The minibatch's rows of ``params``, strictly ascending; the last is the intercept's.
    indptr : int32 (n + 1,)
    indices : int32 (nnz,)
        Positions in ``rows``.
    values : float32 (nnz,)
    labels : float32 (n,)
        0 or 1.
    divisor : float
    grad : float32 (m, 1)
        Overwritten.

    Raises
    ------
    ValueError
        When a shape or type is wrong or an index out of range; nothing is written then.
    """
    check_minibatch(params, rows, indptr, indices, values, labels)
    if grad.shape[0] != rows.shape[0] or grad.shape[1] != 1:
        raise ValueError(f"grad has shape {grad.shape[0], grad.shape[1]}: must be {rows.shape[0], 1}")
    if not divisor > 0:
        raise ValueError(f"divisor={divisor}: must be > 0")
    return loss(params, rows, indptr, indices, values, labels, 1.0 / divisor, &grad[0, 0])


def logistic_loss(
    const float[:, ::view.contiguous] params not None,
    const int32_t[::1] rows not None,
    const int32_t[::1] indptr not None,
    const int32_t[::1] indices not None,
    const float[::1] values not None,
    const float[::1] labels not None,
):
    """Sum of the log losses of a minibatch, in nats; arguments as :func:`logistic_gradient`'s."""
    check_minibatch(params, rows, indptr, indices, values, labels)
    return loss(params, rows, indptr, indices, values, labels, 0.0, NULL)


def logistic_margins(
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
    check_csr(indptr, indices, values, n, n_features)
    cdef float_table x
    x.at, x.stride = <float *>&params[0, 0], row_stride("params", n_features + 1, 1, params.strides[0])
    if n:
        with nogil:
            margins(x, n_features, &indptr[0], &indices[0] if indices.shape[0] else NULL,
                    &values[0] if values.shape[0] else NULL, n, &out[0])


cdef double loss(const float[:, ::view.contiguous] params, const int32_t[::1] rows, const int32_t[::1] indptr,
                 const int32_t[::1] indices, const float[::1] values, const float[::1] labels, double share,
                 float *grad) except? -1.0:
    """The minibatch's own weights are gathered once, so that the loops index one small array."""
    cdef Py_ssize_t m = rows.shape[0], k
    cdef double total
    cdef float *weights = <float *>malloc(sizeof(float) * m)
    if weights == NULL:
        raise MemoryError(f"no memory for {m} weights")
    with nogil:
        for k in range(m):
            weights[k] = params[rows[k], 0]
        if grad != NULL:
            memset(grad, 0, sizeof(float) * m)
        total = logistic(weights, m, &indptr[0], &indices[0] if indices.shape[0] else NULL,
                         &values[0] if values.shape[0] else NULL, &labels[0] if labels.shape[0] else NULL,
                         labels.shape[0], share, grad)
        free(weights)
    return total


cdef int check_minibatch(const float[:, ::view.contiguous] params, const int32_t[::1] rows, const int32_t[::1] indptr,
                         const int32_t[::1] indices, const float[::1] values, const float[::1] labels) except -1:
    cdef Py_ssize_t n = labels.shape[0], m = rows.shape[0]
    if params.shape[1] != 1:
        raise ValueError(f"params has width {params.shape[1]}: must be 1")
    if m == 0:
        raise ValueError("rows is empty: its last entry must be the intercept's row")
    if indptr.shape[0] != n + 1:
        raise ValueError(f"indptr has length {indptr.shape[0]}: must be {n + 1}, one more than labels")
    if indices.shape[0] != values.shape[0]:
        raise ValueError(f"indices and values have lengths {indices.shape[0]}, {values.shape[0]}: must be equal")
    if not ids_ascend(&rows[0], m, params.shape[0]):
        raise ValueError(f"rows must be strictly ascending rows of params, in [0, {params.shape[0]})")
    return check_csr(indptr, indices, values, n, m)


cdef int check_csr(const int32_t[::1] indptr, const int32_t[::1] indices, const float[::1] values, Py_ssize_t n,
                   Py_ssize_t high) except -1:
    cdef Py_ssize_t nnz = indices.shape[0]
    if nnz != values.shape[0]:
        raise ValueError(f"indices and values have lengths {nnz}, {values.shape[0]}: must be equal")
    if not indptr_fits(&indptr[0], n, nnz):
        raise ValueError(f"indptr must rise from 0 to the number of indices, {nnz}")
    if nnz and not ids_within(&indices[0], nnz, high):
        raise ValueError(f"indices must be in [0, {high})")
    return 0
