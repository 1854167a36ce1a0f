"""Inner loops of the optimisers: from a minibatch's gradient to what is added to the parameters.

``out`` decides the mode: (m, width) updates the touched rows only; (n_rows, width) walks every row, with a gradient of
0 where the minibatch did not touch, which momentum, Adam and an l2 penalty need to be exact.
"""

from libc.math cimport sqrt
from libc.stdint cimport int32_t


cdef extern from "optimize.h" nogil:
    int STEP_SGD, STEP_MOMENTUM, STEP_NESTEROV, STEP_ADAM, STEP_ADAGRAD
    ctypedef struct optimiser_step:
        int kind
        float rate, momentum, b1, b2, c1, c2, rooted, eps
    void step_flat(const optimiser_step *o, Py_ssize_t n, const float *g, float *a, float *b, float *out)
    void step_rows(const optimiser_step *o, Py_ssize_t m, Py_ssize_t width, const int32_t *rows, const float *g,
                   float *a, float *b, float *out)

cdef extern from "checks.h" nogil:
    bint ids_ascend(const int32_t *ids, Py_ssize_t n, long long high)

cdef extern from "string.h" nogil:
    void *memset(void *target, int value, size_t n)
    void *memcpy(void *target, const void *source, size_t n)


def sgd_update(
    const float[:, ::1] params not None,
    const int32_t[::1] rows not None,
    const float[:, ::1] grad not None,
    double rate,
    double l2,
    Py_ssize_t l2_rows,
    float[:, ::1] out not None,
):
    """Write ``-rate * g`` to ``out``.

    ``g`` is the gradient with the penalty.

    Parameters
    ----------
    params : float32 (n_rows, width)
        Read for the penalty only.
    rows : int32 (m,)
        The touched rows, strictly ascending.
    grad : float32 (m, width)
    rate : float
        Learning rate times the scale of the written update.
    l2, l2_rows : float, int
        The gradient of rows below ``l2_rows`` grows by ``l2 * params``.
    out : float32 (m, width) or (n_rows, width)
        Overwritten; its shape is the mode, see the module.

    Raises
    ------
    ValueError
        When a shape or type is wrong or a row out of range; nothing is written then.
    """
    cdef optimiser_step o
    o.kind, o.rate = STEP_SGD, rate
    run(&o, params, rows, grad, None, None, l2, l2_rows, out)


def momentum_update(
    const float[:, ::1] params not None,
    const int32_t[::1] rows not None,
    const float[:, ::1] grad not None,
    float[:, ::1] velocity not None,
    double rate,
    double momentum,
    bint nesterov,
    double l2,
    Py_ssize_t l2_rows,
    float[:, ::1] out not None,
):
    """Write the update of SGD with momentum to ``out``.

    ``v = momentum*v + g``; ``out = -rate * v``, or Nesterov's ``-rate * (g + momentum*v)``, as PyTorch's SGD.

    Parameters
    ----------
    params : float32 (n_rows, width)
        Read for the penalty only.
    rows : int32 (m,)
        The touched rows, strictly ascending.
    grad : float32 (m, width)
    velocity : float32 (n_rows, width)
        Changed in place.
    rate, momentum : float
    nesterov : bool
    l2, l2_rows : float, int
        The gradient of rows below ``l2_rows`` grows by ``l2 * params``.
    out : float32 (m, width) or (n_rows, width)
        Overwritten; its shape is the mode, see the module.

    Raises
    ------
    ValueError
        When a shape or type is wrong or a row out of range; nothing is written then.
    """
    cdef optimiser_step o
    o.kind, o.rate, o.momentum = STEP_NESTEROV if nesterov else STEP_MOMENTUM, rate, momentum
    run(&o, params, rows, grad, velocity, None, l2, l2_rows, out)


def adam_update(
    const float[:, ::1] params not None,
    const int32_t[::1] rows not None,
    const float[:, ::1] grad not None,
    float[:, ::1] first not None,
    float[:, ::1] second not None,
    double rate,
    double b1,
    double b2,
    double eps,
    Py_ssize_t step,
    double l2,
    Py_ssize_t l2_rows,
    float[:, ::1] out not None,
):
    """Write the update of Adam to ``out``.

    Kingma and Ba 2015, Algorithm 1, the corrections for the start at 0 taken out of the loop.

    Parameters
    ----------
    params : float32 (n_rows, width)
        Read for the penalty only.
    rows : int32 (m,)
        The touched rows, strictly ascending.
    grad : float32 (m, width)
    first, second : float32 (n_rows, width)
        Moments, changed in place.
    rate, b1, b2, eps : float
    step : int
        1-based.
    l2, l2_rows : float, int
        The gradient of rows below ``l2_rows`` grows by ``l2 * params``.
    out : float32 (m, width) or (n_rows, width)
        Overwritten; its shape is the mode, see the module.

    Raises
    ------
    ValueError
        When a shape or type is wrong or a row out of range; nothing is written then.
    """
    if step < 1:
        raise ValueError(f"step={step}: must be 1 or more")
    cdef optimiser_step o
    o.kind, o.rate, o.rooted = STEP_ADAM, rate / (1.0 - b1**step), 1.0 / sqrt(1.0 - b2**step)
    o.b1, o.b2, o.c1, o.c2, o.eps = b1, b2, 1.0 - b1, 1.0 - b2, eps
    run(&o, params, rows, grad, first, second, l2, l2_rows, out)


def adagrad_update(
    const float[:, ::1] params not None,
    const int32_t[::1] rows not None,
    const float[:, ::1] grad not None,
    float[:, ::1] squares not None,
    double rate,
    double eps,
    double l2,
    Py_ssize_t l2_rows,
    float[:, ::1] out not None,
):
    """Write the update of AdaGrad to ``out``.

    ``s = s + g^2``; ``out = -rate * g / (sqrt(s) + eps)``, as PyTorch's Adagrad.

    Parameters
    ----------
    params : float32 (n_rows, width)
        Read for the penalty only.
    rows : int32 (m,)
        The touched rows, strictly ascending.
    grad : float32 (m, width)
    squares : float32 (n_rows, width)
        Changed in place.
    rate, eps : float
    l2, l2_rows : float, int
        The gradient of rows below ``l2_rows`` grows by ``l2 * params``.
    out : float32 (m, width) or (n_rows, width)
        Overwritten; its shape is the mode, see the module.

    Raises
    ------
    ValueError
        When a shape or type is wrong or a row out of range; nothing is written then.
    """
    cdef optimiser_step o
    o.kind, o.rate, o.eps = STEP_ADAGRAD, rate, eps
    run(&o, params, rows, grad, squares, None, l2, l2_rows, out)


cdef int run(optimiser_step *o, const float[:, ::1] params, const int32_t[::1] rows, const float[:, ::1] grad,
             float[:, ::1] first, float[:, ::1] second, double l2, Py_ssize_t l2_rows,
             float[:, ::1] out) except -1:
    cdef Py_ssize_t n_rows = params.shape[0], width = params.shape[1], m = rows.shape[0]
    check(params, rows, grad, first, second, out)
    if width == 0 or out.shape[0] == 0:
        return 0
    cdef float *a = NULL if first is None else &first[0, 0]
    cdef float *b = NULL if second is None else &second[0, 0]
    cdef const float *g
    with nogil:
        if out.shape[0] == n_rows and m < n_rows:
            expand(rows, grad, out)
            penalise_all(&params[0, 0], l2, min(l2_rows, n_rows) * width, &out[0, 0])
            step_flat(o, n_rows * width, &out[0, 0], a, b, &out[0, 0])
        else:
            g = &grad[0, 0]
            if l2 != 0:
                memcpy(&out[0, 0], g, sizeof(float) * m * width)
                penalise_rows(params, rows, l2, l2_rows, out)
                g = &out[0, 0]
            step_rows(o, m, width, &rows[0], g, a, b, &out[0, 0])
    return 0


cdef void expand(const int32_t[::1] rows, const float[:, ::1] grad, float[:, ::1] out) noexcept nogil:
    """out: grad in its rows, 0 elsewhere."""
    cdef Py_ssize_t width = out.shape[1], r, filled = 0
    if width == 1:
        memset(&out[0, 0], 0, sizeof(float) * out.shape[0])
        for r in range(rows.shape[0]):
            out[rows[r], 0] = grad[r, 0]
        return
    for r in range(rows.shape[0]):
        if rows[r] > filled:
            memset(&out[filled, 0], 0, sizeof(float) * (rows[r] - filled) * width)
        memcpy(&out[rows[r], 0], &grad[r, 0], sizeof(float) * width)
        filled = rows[r] + 1
    if filled < out.shape[0]:
        memset(&out[filled, 0], 0, sizeof(float) * (out.shape[0] - filled) * width)


cdef void penalise_all(const float *params, float l2, Py_ssize_t n, float *out) noexcept nogil:
    cdef Py_ssize_t k
    if l2 != 0:
        for k in range(n):
            out[k] += l2 * params[k]


cdef void penalise_rows(const float[:, ::1] params, const int32_t[::1] rows, float l2, Py_ssize_t l2_rows,
                        float[:, ::1] out) noexcept nogil:
    cdef Py_ssize_t r, c
    for r in range(rows.shape[0]):
        if rows[r] >= l2_rows:
            break  # rows are ascending
        for c in range(params.shape[1]):
            out[r, c] += l2 * params[rows[r], c]


cdef int check(const float[:, ::1] params, const int32_t[::1] rows, const float[:, ::1] grad, float[:, ::1] first,
               float[:, ::1] second, float[:, ::1] out) except -1:
    cdef Py_ssize_t n_rows = params.shape[0], width = params.shape[1], m = rows.shape[0]
    if m and not ids_ascend(&rows[0], m, n_rows):
        raise ValueError(f"rows must be strictly ascending rows of params, in [0, {n_rows})")
    if grad.shape[0] != m or grad.shape[1] != width:
        raise ValueError(f"grad has shape {grad.shape[0], grad.shape[1]}: must be {m, width}")
    if (out.shape[0] != m and out.shape[0] != n_rows) or out.shape[1] != width:
        raise ValueError(f"out has shape {out.shape[0], out.shape[1]}: must be {m, width} or {n_rows, width}")
    if first is not None and (first.shape[0] != n_rows or first.shape[1] != width):
        raise ValueError(f"state has shape {first.shape[0], first.shape[1]}: must be {n_rows, width}")
    if second is not None and (second.shape[0] != n_rows or second.shape[1] != width):
        raise ValueError(f"state has shape {second.shape[0], second.shape[1]}: must be {n_rows, width}")
    return 0
