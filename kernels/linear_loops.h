/* Linear models over sparse rows with dense columns; included by each_level.h.
 *
 * It takes a block of rows at a time: the margins, then the losses and slopes of the block in one vector loop, then the
 * gradient, while the block's indices are still in the cache.
 *
 * A loss is one header, <name>_loss.h, with one function, and a line in LOSS_BLOCKS and in linear.pyx:
 *     double LEVEL(<name>_loss_block)(margin, label, n, slope)
 * which returns the sum of the losses of n <= LINEAR_BLOCK rows and writes each one's derivative by its margin. A margin
 * that is not a number gives such a loss and slope. */
#ifndef LINEAR_BLOCK
#define LINEAR_BLOCK 64
typedef double (*loss_block)(const float *margin, const float *label, ptrdiff_t n, float *slope);

/* The k-th index; indices have 32 bits if is_wide, else 16. */
static ALWAYS_INLINE ptrdiff_t index_at(const void *indices, const int is_wide, ptrdiff_t k) {
    return is_wide ? ((const int32_t *)indices)[k] : ((const uint16_t *)indices)[k];
}
#endif

/* w . x of the entries from `at` to `end`; weights are `stride` floats apart, every value is 1 if values is NULL. It
 * uses single floats, because gathering scattered weights into vectors costs more than it saves. */
static ALWAYS_INLINE TARGET float LEVEL(margin)(
    const void *indices, const int is_wide, const float *values, ptrdiff_t at, ptrdiff_t end, const float *weights,
    const ptrdiff_t stride) {
#define WEIGHT(k) weights[index_at(indices, is_wide, k) * stride]
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (; at + 4 <= end; at += 4)
        for (int j = 0; j < 4; j++)
            sums[j] = values ? MULTIPLY_ADD(WEIGHT(at + j), values[at + j], sums[j]) : sums[j] + WEIGHT(at + j);
    for (; at < end; at++) sums[0] = values ? MULTIPLY_ADD(WEIGHT(at), values[at], sums[0]) : sums[0] + WEIGHT(at);
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
#undef WEIGHT
}

#include "logistic_loss.h"
#include "squared_loss.h"
#include "hinge_loss.h"

/* margin[k] += weight * column[k] for n rows. */
static ALWAYS_INLINE TARGET void LEVEL(add_column)(float weight, const float *column, ptrdiff_t n, float *margin) {
    ptrdiff_t k = 0;
    for (; k + LANES <= n; k += LANES) *(VEC *)(margin + k) += *(const VEC *)(column + k) * weight;
    for (; k < n; k++) margin[k] = MULTIPLY_ADD(weight, column[k], margin[k]);
}

/* The sum of slope[k] * column[k] over n rows. */
static ALWAYS_INLINE TARGET float LEVEL(column_product)(const float *slope, const float *column, ptrdiff_t n) {
    VEC sums = {0};
    ptrdiff_t k = 0;
    for (; k + LANES <= n; k += LANES) sums += *(const VEC *)(slope + k) * *(const VEC *)(column + k);
    float sum = SUM(sums);
    for (; k < n; k++) sum = MULTIPLY_ADD(slope[k], column[k], sum);
    return sum;
}

/* `linear` for one type of indices, with or without values, both known at compile time. */
static ALWAYS_INLINE TARGET double LEVEL(linear_of)(
    loss_block loss, const float *weights, ptrdiff_t m, sparse_rows x, const int is_wide, const float *values,
    const float *labels, float share, float *grad) {
    float margin[LINEAR_BLOCK], slope[LINEAR_BLOCK];
    double losses = 0.0, slopes = 0.0;
    for (ptrdiff_t start = 0; start < x.n; start += LINEAR_BLOCK) {
        const ptrdiff_t size = x.n - start < LINEAR_BLOCK ? x.n - start : LINEAR_BLOCK;
        for (ptrdiff_t k = 0; k < size; k++) {
            const ptrdiff_t at = x.indptr[start + k], end = x.indptr[start + k + 1];
            margin[k] = weights[m] + LEVEL(margin)(x.indices, is_wide, values, at, end, weights, 1);
        }
        for (ptrdiff_t c = 0; c < x.n_columns; c++)
            LEVEL(add_column)(weights[x.columns[c]], x.dense + c * x.n + start, size, margin);
        losses += loss(margin, labels + start, size, slope);
        if (!grad) continue;
        for (ptrdiff_t k = 0; k < size; k++) slope[k] *= share;
        for (ptrdiff_t c = 0; c < x.n_columns; c++)
            grad[x.columns[c]] += LEVEL(column_product)(slope, x.dense + c * x.n + start, size);
        for (ptrdiff_t k = 0; k < size; k++) {
            const float own = slope[k]; /* in a register, because the compiler must assume that grad may alias slope */
            slopes += own;
            const ptrdiff_t end = x.indptr[start + k + 1];
            ptrdiff_t at = x.indptr[start + k];
            for (; at + 4 <= end; at += 4)
                for (int j = 0; j < 4; j++)
                    grad[index_at(x.indices, is_wide, at + j)] += values ? own * values[at + j] : own;
            for (; at < end; at++) grad[index_at(x.indices, is_wide, at)] += values ? own * values[at] : own;
        }
    }
    if (grad) grad[m] += (float)slopes;
    return losses;
}

/* Sum of the losses; if grad (m + 1,) is not NULL, it must be 0 and receives the gradient times share. weights (m + 1,)
 * are the parameters of this minibatch's m features, then the intercept. */
static TARGET double LEVEL(linear)(
    int number, const float *weights, ptrdiff_t m, sparse_rows x, const float *labels, float share, float *grad) {
    static const loss_block LOSS_BLOCKS[] = {
        LEVEL(logistic_loss_block),
        LEVEL(squared_loss_block),
        LEVEL(hinge_loss_block),
    };
    const loss_block loss = LOSS_BLOCKS[number];
    if (x.is_wide)
        return x.values ? LEVEL(linear_of)(loss, weights, m, x, 1, x.values, labels, share, grad)
                        : LEVEL(linear_of)(loss, weights, m, x, 1, NULL, labels, share, grad);
    return x.values ? LEVEL(linear_of)(loss, weights, m, x, 0, x.values, labels, share, grad)
                    : LEVEL(linear_of)(loss, weights, m, x, 0, NULL, labels, share, grad);
}

/* out[k] = intercept + w . x of row k, indices being rows of params. */
static TARGET void LEVEL(margins)(
    float_table params, ptrdiff_t n_features, const int32_t *indptr, const int32_t *indices, const float *values,
    ptrdiff_t n, float *out) {
    for (ptrdiff_t k = 0; k < n; k++)
        out[k] = *row_of(params, n_features) +
                 LEVEL(margin)(indices, 1, values, indptr[k], indptr[k + 1], params.at, params.stride);
}
