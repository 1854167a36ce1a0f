/* Products of a minibatch's rows with a table of `width` columns; included by each_level.h. Sums are doubles, because a
 * squared distance is a small difference of large products. */

/* to[c] += value * from[c]; 8 columns at a time, which the compiler turns into vectors. */
static ALWAYS_INLINE TARGET void LEVEL(add_scaled)(
    double value, const double *restrict from, double *restrict to, ptrdiff_t width) {
    ptrdiff_t c = 0;
    for (; c + 8 <= width; c += 8)
        for (int j = 0; j < 8; j++) to[c + j] += value * from[c + j];
    for (; c < width; c++) to[c] += value * from[c];
}

/* A row for each row of x if to_rows, else one for each of its features: out (n, width) = x table, or
 * out (m, width) += x^T table. Known at compile time. */
static ALWAYS_INLINE TARGET void LEVEL(product_of)(
    sparse_rows x, const double *table, ptrdiff_t width, double *out, const int to_rows, const int is_wide) {
    for (ptrdiff_t k = 0; k < x.n; k++) {
        for (ptrdiff_t at = x.indptr[k]; at < x.indptr[k + 1]; at++) {
            const ptrdiff_t id = is_wide ? ((const int32_t *)x.indices)[at] : ((const uint16_t *)x.indices)[at];
            const double value = x.values ? x.values[at] : 1.0;
            LEVEL(add_scaled)(value, table + (to_rows ? id : k) * width, out + (to_rows ? k : id) * width, width);
        }
        for (ptrdiff_t c = 0; c < x.n_columns; c++) {
            const ptrdiff_t id = x.columns[c];
            const double value = x.dense[c * x.n + k];
            LEVEL(add_scaled)(value, table + (to_rows ? id : k) * width, out + (to_rows ? k : id) * width, width);
        }
    }
}

static TARGET void LEVEL(product)(
    sparse_rows x, const double *table, ptrdiff_t width, double *out, int to_rows) {
    if (to_rows && x.is_wide) LEVEL(product_of)(x, table, width, out, 1, 1);
    else if (to_rows) LEVEL(product_of)(x, table, width, out, 1, 0);
    else if (x.is_wide) LEVEL(product_of)(x, table, width, out, 0, 1);
    else LEVEL(product_of)(x, table, width, out, 0, 0);
}
