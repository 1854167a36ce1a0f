"""Matrix factorisation with biases (PMF): gradient, loss and predictions over (user, item, rating).

Three layers: vector loops in C (``factorization_loops.h``), one typed call, and a ``def`` that checks all arguments.
"""

from cython cimport view
from libc.stdint cimport int32_t


cdef extern from "factorization.h" nogil:
    ctypedef struct float_table:
        float *at
        Py_ssize_t stride
    double pmf(float_table params, const int32_t *rows, Py_ssize_t width, const int32_t *user, const int32_t *item,
               const float *rating, Py_ssize_t n, float mean, float l2, float share, bint biases, float *grad)
    double pmf_sgd(float_table params, const int32_t *rows, Py_ssize_t width, const int32_t *user, const int32_t *item,
                   const float *rating, Py_ssize_t n, float mean, float l2, float rate, bint biases)
    double pmf_scores(float_table params, const int32_t *rows, Py_ssize_t width, const int32_t *user,
                      const int32_t *item, const float *rating, Py_ssize_t n, float mean, bint biases, float *out)

cdef extern from "checks.h":
    bint ids_within(const int32_t *ids, Py_ssize_t n, long long high) nogil
    bint ids_ascend(const int32_t *ids, Py_ssize_t n, long long high) nogil
    bint users_first(const int32_t *user, const int32_t *item, Py_ssize_t n) nogil
    Py_ssize_t row_stride(const char *name, Py_ssize_t n_rows, Py_ssize_t width, Py_ssize_t stride_bytes) except -1

cdef extern from "string.h" nogil:
    void *memset(void *target, int value, size_t n)


def pmf_gradient(
    const float[:, ::view.contiguous] params not None,
    const int32_t[::1] rows not None,
    const int32_t[::1] user not None,
    const int32_t[::1] item not None,
    const float[::1] rating not None,
    double mean,
    double l2,
    double divisor,
    bint biases,
    float[:, ::1] grad not None,
):
    """Overwrite ``grad`` with the gradient of a minibatch's squared errors; returns their sum before any update.

    The loss is the sum over the minibatch of ``e^2/2 + l2/2 * (|p_u|^2 + |q_i|^2 + b_u^2 + b_i^2)``, divided by
    ``divisor``, with ``e = rating - mean - b_u - b_i - p_u.q_i``. The biases, if any, are the last column of
    ``params``.

    Parameters
    ----------
    params : float32 (n_rows, width)
        User rows, then item rows; they may be spaced.
    rows : int32 (m,)
        The minibatch's rows of ``params``, strictly ascending.
    user, item : int32 (n,)
        Positions in ``rows``, users' before items'. Fastest if sorted by user.
    rating : float32 (n,)
    mean, l2, divisor : float
    biases : bool
    grad : float32 (m, width)
        Overwritten.

    Raises
    ------
    ValueError
        When a shape or type is wrong or an index out of range; nothing is written then.

    References
    ----------
    Salakhutdinov and Mnih 2007, equation 4; MLLess (journal), section 6.
    """
    cdef float_table x = check_minibatch(params, rows, user, item, rating, biases)
    check_parts(user, item)
    if grad.shape[0] != rows.shape[0] or grad.shape[1] != params.shape[1]:
        raise ValueError(f"grad has shape {grad.shape[0], grad.shape[1]}: must be {rows.shape[0], params.shape[1]}")
    if not divisor > 0:
        raise ValueError(f"divisor={divisor}: must be > 0")
    if rows.shape[0] == 0:
        return 0.0
    cdef Py_ssize_t n = user.shape[0], width = params.shape[1]
    cdef double squared = 0.0
    with nogil:
        memset(&grad[0, 0], 0, sizeof(float) * rows.shape[0] * width)
        if n:
            squared = pmf(x, &rows[0], width, &user[0], &item[0], &rating[0], n, mean, l2 / divisor,
                          1.0 / divisor, biases, &grad[0, 0])
    return squared


def pmf_sgd_pass(
    float[:, ::view.contiguous] params not None,
    const int32_t[::1] rows not None,
    const int32_t[::1] user not None,
    const int32_t[::1] item not None,
    const float[::1] rating not None,
    double mean,
    double l2,
    double rate,
    bint biases,
):
    """One step of SGD for each rating, in the order given; returns the sum of squared errors, each before its step.

    ``e = rating - mean - b_u - b_i - p.q``; ``p += rate * (e*q - l2*p)`` and, with the old p, ``q += rate * (e*p -
    l2*q)``; ``b += rate * (e - l2*b)``. Other arguments as :func:`pmf_gradient`'s.

    Parameters
    ----------
    params : float32 (n_rows, width)
        Changed in place.
    rate : float
        Learning rate of each step.

    Raises
    ------
    ValueError
        When a shape or type is wrong or an index out of range; nothing is written then.

    References
    ----------
    Koren, Bell and Volinsky 2009, "Matrix Factorization Techniques for Recommender Systems", equations 5 and 6.
    """
    cdef float_table x = check_minibatch(params, rows, user, item, rating, biases)
    cdef Py_ssize_t n = user.shape[0]
    cdef double squared = 0.0
    check_parts(user, item)
    if n:
        with nogil:
            squared = pmf_sgd(x, &rows[0], params.shape[1], &user[0], &item[0], &rating[0], n, mean, l2, rate, biases)
    return squared


def pmf_squared_error(
    const float[:, ::view.contiguous] params not None,
    const int32_t[::1] rows not None,
    const int32_t[::1] user not None,
    const int32_t[::1] item not None,
    const float[::1] rating not None,
    double mean,
    bint biases,
):
    """Sum of the squared errors of a minibatch; arguments as :func:`pmf_gradient`'s."""
    cdef float_table x = check_minibatch(params, rows, user, item, rating, biases)
    cdef Py_ssize_t n = user.shape[0]
    cdef double squared = 0.0
    if n:
        with nogil:
            squared = pmf_scores(x, &rows[0], params.shape[1], &user[0], &item[0], &rating[0], n, mean,
                                 biases, NULL)
    return squared


def pmf_predict(
    const float[:, ::view.contiguous] params not None,
    const int32_t[::1] user not None,
    const int32_t[::1] item not None,
    double mean,
    bint biases,
    float[::1] out not None,
):
    """Write the predictions ``mean + b_u + b_i + p_u.q_i`` to ``out``, float32 (n,).

    ``user`` and ``item``, int32 (n,), are rows of ``params`` themselves. ValueError when one is out of range.
    """
    cdef Py_ssize_t n = user.shape[0]
    if item.shape[0] != n or out.shape[0] != n:
        raise ValueError(f"user, item and out have lengths {n}, {item.shape[0]}, {out.shape[0]}: must be equal")
    if params.shape[1] < 1 + biases:
        raise ValueError(f"params has width {params.shape[1]}: must be at least {1 + biases}")
    if n == 0:
        return
    if not ids_within(&user[0], n, params.shape[0]) or not ids_within(&item[0], n, params.shape[0]):
        raise ValueError(f"user and item must be rows of params, in [0, {params.shape[0]})")
    cdef float_table x = table_of(params)
    with nogil:
        pmf_scores(x, NULL, params.shape[1], &user[0], &item[0], NULL, n, mean, biases, &out[0])


cdef float_table check_minibatch(const float[:, ::view.contiguous] params, const int32_t[::1] rows, const int32_t[::1] user,
                         const int32_t[::1] item, const float[::1] rating, bint biases) except *:
    cdef Py_ssize_t n = user.shape[0], m = rows.shape[0]
    if item.shape[0] != n or rating.shape[0] != n:
        raise ValueError(f"user, item and rating have lengths {n}, {item.shape[0]}, {rating.shape[0]}: must be equal")
    if params.shape[1] < 1 + biases:
        raise ValueError(f"params has width {params.shape[1]}: must be at least {1 + biases}")
    if m and not ids_ascend(&rows[0], m, params.shape[0]):
        raise ValueError(f"rows must be strictly ascending rows of params, in [0, {params.shape[0]})")
    if n and not (ids_within(&user[0], n, m) and ids_within(&item[0], n, m)):
        raise ValueError(f"user and item must be positions in rows, in [0, {m})")
    return table_of(params)


cdef int check_parts(const int32_t[::1] user, const int32_t[::1] item) except -1:
    if not users_first(&user[0], &item[0], user.shape[0]):
        raise ValueError("user and item overlap: every user's position must be below every item's")
    return 0


cdef float_table table_of(const float[:, ::view.contiguous] params) except *:
    """Where the rows of ``params`` are."""
    cdef float_table found
    found.at = <float *>&params[0, 0]
    found.stride = row_stride("params", params.shape[0], params.shape[1], params.strides[0])
    return found
