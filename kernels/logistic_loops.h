/* Logistic regression over sparse rows with dense columns; included by each_level.h.
 *
 * A block of rows at a time: its margins, then every exponential of the block in one vector loop, then the scatter,
 * while the block's indices are still in the cache. */
#ifndef MLLESS_LOGISTIC_BLOCK
#define MLLESS_LOGISTIC_BLOCK 64

/* The k-th of indices that have 16 bits or, where is_wide, 32. */
static ALWAYS_INLINE ptrdiff_t index_at(const void *indices, const int is_wide, ptrdiff_t k) {
    return is_wide ? ((const int32_t *)indices)[k] : ((const uint16_t *)indices)[k];
}
#endif

/* w . x of the entries from `at` to `end`; weights `stride` floats apart, every value 1 where values is NULL. By single
 * floats: the weights are anywhere, and to make vectors of them costs more than it saves. */
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

/* margin[k] += weight * column[k] of n rows. */
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

/* `logistic` with the type of its indices, and whether they have values, known to the compiler. */
static ALWAYS_INLINE TARGET double LEVEL(logistic_of)(
    const float *weights, ptrdiff_t m, sparse_rows x, const int is_wide, const float *values, const float *labels,
    float share, float *grad) {
    float margin[MLLESS_LOGISTIC_BLOCK], slope[MLLESS_LOGISTIC_BLOCK];
    double losses = 0.0, slopes = 0.0;
    for (ptrdiff_t start = 0; start < x.n; start += MLLESS_LOGISTIC_BLOCK) {
        const ptrdiff_t size = x.n - start < MLLESS_LOGISTIC_BLOCK ? x.n - start : MLLESS_LOGISTIC_BLOCK;
        for (ptrdiff_t k = 0; k < size; k++) {
            const ptrdiff_t at = x.indptr[start + k], end = x.indptr[start + k + 1];
            margin[k] = weights[m - 1] + LEVEL(margin)(x.indices, is_wide, values, at, end, weights, 1);
        }
        for (ptrdiff_t c = 0; c < x.n_columns; c++)
            LEVEL(add_column)(weights[x.columns[c]], x.dense + c * x.n + start, size, margin);
        losses += LEVEL(log_losses)(margin, labels + start, size, slope);
        if (!grad) continue;
        for (ptrdiff_t k = 0; k < size; k++) slope[k] *= share;
        for (ptrdiff_t c = 0; c < x.n_columns; c++)
            grad[x.columns[c]] += LEVEL(column_product)(slope, x.dense + c * x.n + start, size);
        for (ptrdiff_t k = 0; k < size; k++) {
            slopes += slope[k];
            const ptrdiff_t end = x.indptr[start + k + 1];
            ptrdiff_t at = x.indptr[start + k];
            for (; at + 4 <= end; at += 4)
                for (int j = 0; j < 4; j++)
                    grad[index_at(x.indices, is_wide, at + j)] += values ? slope[k] * values[at + j] : slope[k];
            for (; at < end; at++) grad[index_at(x.indices, is_wide, at)] += values ? slope[k] * values[at] : slope[k];
        }
    }
    if (grad) grad[m - 1] += (float)slopes;
    return losses;
}

/* Sum of the log losses; where grad (m,) is not NULL it must be 0 and receives the gradient times share. weights (m,)
 * are the parameters of this minibatch's rows, the intercept last. */
static TARGET double LEVEL(logistic)(
    const float *weights, ptrdiff_t m, sparse_rows x, const float *labels, float share, float *grad) {
    if (x.is_wide)
        return x.values ? LEVEL(logistic_of)(weights, m, x, 1, x.values, labels, share, grad)
                        : LEVEL(logistic_of)(weights, m, x, 1, NULL, labels, share, grad);
    return x.values ? LEVEL(logistic_of)(weights, m, x, 0, x.values, labels, share, grad)
                    : LEVEL(logistic_of)(weights, m, x, 0, NULL, labels, share, grad);
}

/* out[k] = intercept + w . x of row k, indices being rows of params. */
static TARGET void LEVEL(margins)(
    float_table params, ptrdiff_t n_features, const int32_t *indptr, const int32_t *indices, const float *values,
    ptrdiff_t n, float *out) {
    for (ptrdiff_t k = 0; k < n; k++)
        out[k] = *row_of(params, n_features) +
                 LEVEL(margin)(indices, 1, values, indptr[k], indptr[k + 1], params.at, params.stride);
}
