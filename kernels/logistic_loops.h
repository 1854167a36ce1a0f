/* Logistic regression over CSR rows; included by each_level.h.
 *
 * A block of rows at a time: its margins, then every exponential of the block in one vector loop, then the scatter,
 * while the block's indices are still in the cache. */
#ifndef MLLESS_LOGISTIC_BLOCK
#define MLLESS_LOGISTIC_BLOCK 64
#define LOGISTIC_AHEAD 1024 /* non-zeros that are asked for in advance: the processor's own streams end with a page */
#endif

/* w . x of one row; weights `stride` floats apart. By single floats: the weights are anywhere, and to make vectors of
 * them costs more than it saves. */
static ALWAYS_INLINE TARGET float LEVEL(margin)(
    const int32_t *indices, const float *values, ptrdiff_t nnz, const float *weights, const ptrdiff_t stride) {
    float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
    ptrdiff_t k = 0;
    for (; k + 4 <= nnz; k += 4) {
        a = MULTIPLY_ADD(weights[indices[k] * stride], values[k], a);
        b = MULTIPLY_ADD(weights[indices[k + 1] * stride], values[k + 1], b);
        c = MULTIPLY_ADD(weights[indices[k + 2] * stride], values[k + 2], c);
        d = MULTIPLY_ADD(weights[indices[k + 3] * stride], values[k + 3], d);
    }
    for (; k < nnz; k++) a = MULTIPLY_ADD(weights[indices[k] * stride], values[k], a);
    return (a + c) + (b + d);
}

/* Log losses of n <= MLLESS_LOGISTIC_BLOCK margins, summed; residual[k] = sigmoid(margin[k]) - label[k].
 *
 * With t = exp(-|z|): sigmoid(z) is 1/(1+t) or t/(1+t), the loss is log(1+t) + max(z,0) - yz, and nothing overflows.
 * The sum of the logarithms is the logarithm of the product, at most 2**64. exp: 2**i * exp(r), |r| <= ln(2)/2, Taylor
 * to the 10th power, relative error below 1e-12. */
static ALWAYS_INLINE TARGET double LEVEL(log_losses)(
    const float *margin, const float *label, ptrdiff_t n, float *residual) {
    double t[MLLESS_LOGISTIC_BLOCK];
    for (ptrdiff_t k = 0; k < n; k++) {
        const double z = margin[k] > 0.0f ? -(double)margin[k] : (double)margin[k];
        const double a = z > -700.0 ? z : -700.0;
        const double shifted = a * 1.4426950408889634 + 6755399441055744.0; /* 1.5 * 2**52: rounds to an integer */
        const double i = shifted - 6755399441055744.0;
        const double r = (a - i * 0.693147180369123816490) - i * 1.90821492927058770002e-10;
        double e = 1.0 / 3628800.0;
        e = e * r + 1.0 / 362880.0;
        e = e * r + 1.0 / 40320.0;
        e = e * r + 1.0 / 5040.0;
        e = e * r + 1.0 / 720.0;
        e = e * r + 1.0 / 120.0;
        e = e * r + 1.0 / 24.0;
        e = e * r + 1.0 / 6.0;
        e = e * r + 0.5;
        e = e * r + 1.0;
        e = e * r + 1.0;
        uint64_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        bits = (bits + 1023) << 52; /* the low bits of `shifted` are the integer */
        double power;
        memcpy(&power, &bits, sizeof power);
        t[k] = margin[k] != margin[k] ? (double)margin[k] : e * power;
    }
    double product = 1.0, linear = 0.0;
    for (ptrdiff_t k = 0; k < n; k++) {
        const double z = margin[k], inverse = 1.0 / (1.0 + t[k]);
        residual[k] = (float)((z >= 0.0 ? inverse : t[k] * inverse) - label[k]);
        product *= 1.0 + t[k];
        linear += (z > 0.0 ? z : 0.0) - label[k] * z;
    }
    return log(product) + linear;
}

/* Sum of the log losses; where grad (m,) is not NULL it must be 0 and receives the gradient times share. weights (m,)
 * are the parameters of this minibatch's rows, the intercept last. */
static TARGET double LEVEL(logistic)(
    const float *weights, ptrdiff_t m, const int32_t *indptr, const int32_t *indices, const float *values,
    const float *labels, ptrdiff_t n, float share, float *grad) {
    float margin[MLLESS_LOGISTIC_BLOCK], residual[MLLESS_LOGISTIC_BLOCK];
    double losses = 0.0, residuals = 0.0;
    for (ptrdiff_t start = 0; start < n; start += MLLESS_LOGISTIC_BLOCK) {
        const ptrdiff_t size = n - start < MLLESS_LOGISTIC_BLOCK ? n - start : MLLESS_LOGISTIC_BLOCK;
        for (ptrdiff_t k = 0; k < size; k++) {
            const ptrdiff_t at = indptr[start + k], end = indptr[start + k + 1];
            for (ptrdiff_t ahead = at + LOGISTIC_AHEAD; ahead < end + LOGISTIC_AHEAD; ahead += 16) {
                __builtin_prefetch(indices + ahead);
                __builtin_prefetch(values + ahead);
            }
            margin[k] = weights[m - 1] + LEVEL(margin)(indices + at, values + at, end - at, weights, 1);
        }
        losses += LEVEL(log_losses)(margin, labels + start, size, residual);
        if (!grad) continue;
        for (ptrdiff_t k = 0; k < size; k++) {
            const float slope = residual[k] * share;
            residuals += slope;
            const ptrdiff_t end = indptr[start + k + 1];
            ptrdiff_t at = indptr[start + k];
            for (; at + 4 <= end; at += 4)
                for (int j = 0; j < 4; j++) grad[indices[at + j]] += slope * values[at + j];
            for (; at < end; at++) grad[indices[at]] += slope * values[at];
        }
    }
    if (grad) grad[m - 1] += (float)residuals;
    return losses;
}

/* out[k] = intercept + w . x of row k, indices being rows of params. */
static TARGET void LEVEL(margins)(
    float_table params, ptrdiff_t n_features, const int32_t *indptr, const int32_t *indices, const float *values,
    ptrdiff_t n, float *out) {
    for (ptrdiff_t k = 0; k < n; k++) {
        const ptrdiff_t at = indptr[k];
        out[k] = *row_of(params, n_features) +
                 LEVEL(margin)(indices + at, values + at, indptr[k + 1] - at, params.at, params.stride);
    }
}
