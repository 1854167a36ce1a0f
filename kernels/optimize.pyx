"""Inner loops of the optimisers: compute the update from a minibatch's gradient, and split off its significant part.

The shape of ``out`` selects the mode: (m, width) updates the touched rows only; (n_rows, width) updates every row, with
a gradient of 0 for rows that the minibatch did not touch, which momentum, Adam and an l2 penalty need to be exact. With
a ``split``, the same pass also splits off the significant values, with the same result as :func:`split_significant`
afterwards. ``split`` is a :class:`mlless_nb.kernels.SignificanceSplit`, which has the residual and the sent values.

Rows of ``params``, of the state and of a residual may be spaced, so that they can be interleaved in one array:
``block[:, 0:width]``, ``block[:, width:2 * width]`` and so on.
"""

from cython cimport view
from libc.math cimport sqrt
from libc.stdint cimport int32_t, uint32_t


cdef extern from "optimize.h" nogil:
    int SPLIT_SLACK, STEP_NONE, STEP_SGD, STEP_MOMENTUM, STEP_NESTEROV, STEP_ADAM, STEP_ADAGRAD, STEP_FTRL
    ctypedef struct float_table:
        float *at
        Py_ssize_t stride
    ctypedef struct step_rule:
        int kind
        float rate, momentum, b1, b2, c1, c2, rooted, eps, inverse_rate, beta, l1, ridge
    ctypedef struct update_pass:
        step_rule rule
        Py_ssize_t n_rows, width, m, l2_rows, count
        const int32_t *rows
        const float *grad
        int walks_all, moves
        float *out
        float *values
        float l2, threshold
        float_table params, first, second, residual
        uint32_t *positions
    void run_pass(update_pass *work)
    Py_ssize_t flush(float_table residual, Py_ssize_t n_rows, Py_ssize_t width, uint32_t *positions, float *values)

cdef extern from "checks.h":
    bint ids_ascend(const int32_t *ids, Py_ssize_t n, long long high) nogil
    Py_ssize_t row_stride(const char *name, Py_ssize_t n_rows, Py_ssize_t width, Py_ssize_t stride_bytes) except -1


def split_significant(
    const float[:, ::view.contiguous] params not None,
    const int32_t[::1] rows,
    const float[:, ::1] update not None,
    split not None,
):
    """Add ``update`` to the residual of ``split`` and move the significant values out of it; returns their number.

    Parameters
    ----------
    params : float32 (n_rows, width)
    rows : int32 (m,) or None
        Rows of ``update``, strictly ascending; None: all.
    update : float32 (m, width), or (n_rows, width)
    split : SignificanceSplit

    Raises
    ------
    ValueError
        When a shape or type is wrong or a row out of range; nothing is written then.
    """
    cdef update_pass work
    work.m = params.shape[0] if rows is None else rows.shape[0]
    if update.shape[0] != work.m or update.shape[1] != params.shape[1]:
        raise ValueError(f"update has shape {update.shape[0], update.shape[1]}: must be {work.m, params.shape[1]}")
    work.walks_all, work.out, work.rule.kind, work.moves = rows is None, <float *>&update[0, 0], STEP_NONE, False
    walk(&work, params, rows, None, None, split)
    return split.count


def flush_residual(
    float[:, ::view.contiguous] residual not None, uint32_t[::1] positions not None, float[::1] values not None
):
    """Move every non-zero out of ``residual``, which is 0 afterwards; returns their number.

    Parameters
    ----------
    residual : float32 (n_rows, width)
    positions : uint32, at least ``residual.size`` long
        ``row * width + column`` of each value moved, ascending; the rest of the array is undefined.
    values : float32, as long as ``positions``
        The values moved.
    """
    cdef Py_ssize_t n_rows = residual.shape[0], width = residual.shape[1], size = n_rows * width, count = 0
    cdef float_table table
    if size > 0xFFFFFFFF:
        raise ValueError(f"the table has {size} entries: must be below 2**32")
    if positions.shape[0] < size or values.shape[0] < size:
        raise ValueError(
            f"positions and values have lengths {positions.shape[0]}, {values.shape[0]}: must be at least {size}"
        )
    table.at, table.stride = &residual[0, 0], row_stride("residual", n_rows, width, residual.strides[0])
    if size:
        with nogil:
            count = flush(table, n_rows, width, &positions[0], &values[0])
    return count


def sgd_update(
    const float[:, ::view.contiguous] params not None,
    const int32_t[::1] rows not None,
    const float[:, ::1] grad not None,
    double rate,
    double l2,
    Py_ssize_t l2_rows,
    float[:, ::1] out not None,
    split=None,
):
    """Write ``-rate * g`` to ``out``; ``g`` is the gradient with the penalty. All optimisers share these arguments.

    Parameters
    ----------
    params : float32 (n_rows, width)
        Read only for the penalty and the split; changed only if the split ``moves``.
    rows : int32 (m,)
        The touched rows, strictly ascending.
    grad : float32 (m, width)
    rate : float
        Learning rate times the scale of the written update.
    l2, l2_rows : float, int
        ``l2 * params`` is added to the gradient of rows below ``l2_rows``.
    out : float32 (m, width) or (n_rows, width)
        Overwritten; its shape selects the mode, see the module. It may be ``grad``.
    split : SignificanceSplit, optional
        Also splits ``out``.

    Raises
    ------
    ValueError
        When a shape or type is wrong or a row out of range; nothing is written then.
    """
    cdef update_pass work
    work.rule.kind, work.rule.rate = STEP_SGD, rate
    run(&work, params, rows, grad, None, None, l2, l2_rows, out, split)


def momentum_update(
    const float[:, ::view.contiguous] params not None,
    const int32_t[::1] rows not None,
    const float[:, ::1] grad not None,
    float[:, ::view.contiguous] velocity not None,
    double rate,
    double momentum,
    bint nesterov,
    double l2,
    Py_ssize_t l2_rows,
    float[:, ::1] out not None,
    split=None,
):
    """Write the update of SGD with momentum to ``out``; other arguments as :func:`sgd_update`'s.

    ``v = momentum*v + g``; ``out = -rate * v``, or Nesterov's ``-rate * (g + momentum*v)``, as PyTorch's SGD.

    Parameters
    ----------
    velocity : float32 (n_rows, width)
        Changed in place.
    rate, momentum : float
    nesterov : bool
    """
    cdef update_pass work
    work.rule.kind, work.rule.rate = STEP_NESTEROV if nesterov else STEP_MOMENTUM, rate
    work.rule.momentum = momentum
    run(&work, params, rows, grad, velocity, None, l2, l2_rows, out, split)


def adam_update(
    const float[:, ::view.contiguous] params not None,
    const int32_t[::1] rows not None,
    const float[:, ::1] grad not None,
    float[:, ::view.contiguous] first not None,
    float[:, ::view.contiguous] second not None,
    double rate,
    double b1,
    double b2,
    double eps,
    Py_ssize_t step,
    double l2,
    Py_ssize_t l2_rows,
    float[:, ::1] out not None,
    split=None,
):
    """Write the update of Adam to ``out``; other arguments as :func:`sgd_update`'s.

    Kingma and Ba 2015, Algorithm 1, with the bias corrections computed outside the loop.

    Parameters
    ----------
    first, second : float32 (n_rows, width)
        Moments, changed in place.
    rate, b1, b2, eps : float
    step : int
        1-based.
    """
    if step < 1:
        raise ValueError(f"step={step}: must be 1 or more")
    cdef update_pass work
    work.rule.kind, work.rule.eps = STEP_ADAM, eps
    work.rule.rate, work.rule.rooted = rate / (1.0 - b1**step), 1.0 / sqrt(1.0 - b2**step)
    work.rule.b1, work.rule.b2, work.rule.c1, work.rule.c2 = b1, b2, 1.0 - b1, 1.0 - b2
    run(&work, params, rows, grad, first, second, l2, l2_rows, out, split)


def adagrad_update(
    const float[:, ::view.contiguous] params not None,
    const int32_t[::1] rows not None,
    const float[:, ::1] grad not None,
    float[:, ::view.contiguous] squares not None,
    double rate,
    double eps,
    double l2,
    Py_ssize_t l2_rows,
    float[:, ::1] out not None,
    split=None,
):
    """Write the update of AdaGrad to ``out``; other arguments as :func:`sgd_update`'s.

    ``s = s + g^2``; ``out = -rate * g / (sqrt(s) + eps)``, as PyTorch's Adagrad.

    Parameters
    ----------
    squares : float32 (n_rows, width)
        Changed in place.
    rate, eps : float
    """
    cdef update_pass work
    work.rule.kind, work.rule.rate, work.rule.eps = STEP_ADAGRAD, rate, eps
    run(&work, params, rows, grad, squares, None, l2, l2_rows, out, split)


def ftrl_update(
    const float[:, ::view.contiguous] params not None,
    const int32_t[::1] rows not None,
    const float[:, ::1] grad not None,
    float[:, ::view.contiguous] z not None,
    float[:, ::view.contiguous] n not None,
    double scale,
    double rate,
    double beta,
    double l1,
    double ridge,
    double l2,
    Py_ssize_t l2_rows,
    float[:, ::1] out not None,
    split=None,
):
    """Write the update of FTRL-Proximal to ``out``; other arguments as :func:`sgd_update`'s.

    ``w(z, n) = 0`` where ``|z| <= l1``, else ``-(z - sign(z)*l1) / ((beta + sqrt(n))/rate + ridge)``;
    ``z' = z + g - (sqrt(n + g^2) - sqrt(n))/rate * w(z, n)``; ``n' = n + g^2``; ``out = scale * (w(z', n') - w(z, n))``.

    Parameters
    ----------
    z, n : float32 (n_rows, width)
        Changed in place.
    scale : float
        Factor of the written update.
    rate, beta, l1, ridge : float
        The paper's alpha, beta, lambda_1 and lambda_2.

    References
    ----------
    McMahan et al. 2013, Algorithm 1.
    """
    cdef update_pass work
    work.rule.kind, work.rule.rate, work.rule.inverse_rate = STEP_FTRL, scale, 1.0 / rate
    work.rule.beta, work.rule.l1, work.rule.ridge = beta, l1, ridge
    run(&work, params, rows, grad, z, n, l2, l2_rows, out, split)


cdef int run(update_pass *work, const float[:, ::view.contiguous] params, const int32_t[::1] rows,
             const float[:, ::1] grad, float[:, ::view.contiguous] first, float[:, ::view.contiguous] second, double l2,
             Py_ssize_t l2_rows, float[:, ::1] out, split) except -1:
    """Check the arrays that only optimisers have."""
    cdef Py_ssize_t n_rows = params.shape[0], width = params.shape[1], m = rows.shape[0]
    if grad.shape[0] != m or grad.shape[1] != width:
        raise ValueError(f"grad has shape {grad.shape[0], grad.shape[1]}: must be {m, width}")
    if (out.shape[0] != m and out.shape[0] != n_rows) or out.shape[1] != width:
        raise ValueError(f"out has shape {out.shape[0], out.shape[1]}: must be {m, width} or {n_rows, width}")
    work.m, work.grad, work.walks_all, work.out = m, &grad[0, 0], out.shape[0] == n_rows, &out[0, 0]
    work.l2, work.l2_rows, work.moves = l2, l2_rows, split is not None and split.moves
    return walk(work, params, rows, first, second, split)


cdef int walk(update_pass *work, const float[:, ::view.contiguous] params, const int32_t[::1] rows,
              float[:, ::view.contiguous] first, float[:, ::view.contiguous] second, split) except -1:
    """Check the tables and run the loop over their rows."""
    cdef Py_ssize_t n_rows = params.shape[0], width = params.shape[1]
    cdef float[:, ::view.contiguous] residual = None
    cdef uint32_t[::1] positions
    cdef float[::1] values
    work.n_rows, work.width, work.rows, work.count = n_rows, width, NULL, 0
    if rows is not None and rows.shape[0]:
        work.rows = &rows[0]
        if not ids_ascend(work.rows, rows.shape[0], n_rows):
            raise ValueError(f"rows must be strictly ascending rows of params, in [0, {n_rows})")
    work.params.at, work.params.stride = <float *>&params[0, 0], row_stride("params", n_rows, width, params.strides[0])
    work.first = check_table("state", first, n_rows, width)
    work.second = check_table("state", second, n_rows, width)
    if split is not None:
        residual = split.residual
        split.make_room((n_rows if work.walks_all else work.m) * width + SPLIT_SLACK)
        positions, values = split.positions, split.values
        work.threshold, work.positions, work.values = split.threshold, &positions[0], &values[0]
    work.residual = check_table("residual", residual, n_rows, width)
    if width and (n_rows if work.walks_all else work.m):
        with nogil:
            run_pass(work)
    if split is not None:
        split.count = work.count
    return 0


cdef float_table check_table(str name, float[:, ::view.contiguous] table, Py_ssize_t n_rows, Py_ssize_t width) except *:
    """Address and stride of a table's rows; NULL for None."""
    cdef float_table found
    found.at, found.stride = NULL, width
    if table is not None:
        if table.shape[0] != n_rows or table.shape[1] != width:
            raise ValueError(f"{name} has shape {table.shape[0], table.shape[1]}: must be {n_rows, width}")
        found.stride = row_stride(name.encode(), n_rows, width, table.strides[0])
        found.at = &table[0, 0]
    return found
