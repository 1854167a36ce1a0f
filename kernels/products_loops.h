/* Products of a minibatch's rows with a table of `width` columns; included by each_level.h. Sums are doubles, because a
 * squared distance is a small difference of large products. */
#ifndef MLLESS_DOUBLES
#define MLLESS_DOUBLES
#define DOUBLES 8
typedef double doubles __attribute__((vector_size(64), aligned(8), may_alias));
#endif

/* The id and the value of an entry of a row. */
#define ENTRY_ID(at) (is_wide ? ((const int32_t *)x.indices)[at] : ((const uint16_t *)x.indices)[at])
#define ENTRY_VALUE(at) (x.values ? (double)x.values[at] : 1.0)

/* out (n, width) += x table (m, width). A row's sums of 16 or 8 columns stay in registers. */
static ALWAYS_INLINE TARGET void LEVEL(rows_product_of)(
    sparse_rows x, const double *table, ptrdiff_t width, double *out, const int is_wide) {
    for (ptrdiff_t k = 0; k < x.n; k++) {
        double *to = out + k * width;
        const ptrdiff_t begin = x.indptr[k], end = x.indptr[k + 1];
        ptrdiff_t first = 0;
        for (; first + 2 * DOUBLES <= width; first += 2 * DOUBLES) {
            const double *from = table + first;
            doubles low = *(const doubles *)(to + first), high = *(const doubles *)(to + first + DOUBLES);
#define ADD(id, value)                                            \
    {                                                             \
        const double *row = from + (ptrdiff_t)(id) * width;       \
        const double v = value;                                   \
        low += v * *(const doubles *)row;                         \
        high += v * *(const doubles *)(row + DOUBLES);            \
    }
            for (ptrdiff_t at = begin; at < end; at++) ADD(ENTRY_ID(at), ENTRY_VALUE(at))
            for (ptrdiff_t c = 0; c < x.n_columns; c++) ADD(x.columns[c], x.dense[c * x.n + k])
#undef ADD
            *(doubles *)(to + first) = low;
            *(doubles *)(to + first + DOUBLES) = high;
        }
        for (; first + DOUBLES <= width; first += DOUBLES) {
            const double *from = table + first;
            doubles sum = *(const doubles *)(to + first);
            for (ptrdiff_t at = begin; at < end; at++)
                sum += ENTRY_VALUE(at) * *(const doubles *)(from + (ptrdiff_t)ENTRY_ID(at) * width);
            for (ptrdiff_t c = 0; c < x.n_columns; c++)
                sum += (double)x.dense[c * x.n + k] * *(const doubles *)(from + (ptrdiff_t)x.columns[c] * width);
            *(doubles *)(to + first) = sum;
        }
        for (; first < width; first++) {
            double sum = to[first];
            for (ptrdiff_t at = begin; at < end; at++) sum += ENTRY_VALUE(at) * table[ENTRY_ID(at) * width + first];
            for (ptrdiff_t c = 0; c < x.n_columns; c++)
                sum += (double)x.dense[c * x.n + k] * table[x.columns[c] * width + first];
            to[first] = sum;
        }
    }
}

/* to[c] += value * from[c] */
static ALWAYS_INLINE TARGET void LEVEL(add_scaled)(double value, const double *from, double *to, ptrdiff_t width) {
    ptrdiff_t c = 0;
    for (; c + DOUBLES <= width; c += DOUBLES) *(doubles *)(to + c) += value * *(const doubles *)(from + c);
    for (; c < width; c++) to[c] += value * from[c];
}

/* out (m, width) += x^T table (n, width). */
static ALWAYS_INLINE TARGET void LEVEL(transposed_product_of)(
    sparse_rows x, const double *table, ptrdiff_t width, double *out, const int is_wide) {
    for (ptrdiff_t k = 0; k < x.n; k++) {
        const double *from = table + k * width;
        for (ptrdiff_t at = x.indptr[k]; at < x.indptr[k + 1]; at++)
            LEVEL(add_scaled)(ENTRY_VALUE(at), from, out + (ptrdiff_t)ENTRY_ID(at) * width, width);
        for (ptrdiff_t c = 0; c < x.n_columns; c++)
            LEVEL(add_scaled)(x.dense[c * x.n + k], from, out + (ptrdiff_t)x.columns[c] * width, width);
    }
}
#undef ENTRY_ID
#undef ENTRY_VALUE

/* x table if to_rows, else x^T table. */
static TARGET void LEVEL(product)(sparse_rows x, const double *table, ptrdiff_t width, double *out, int to_rows) {
    if (to_rows && x.is_wide) LEVEL(rows_product_of)(x, table, width, out, 1);
    else if (to_rows) LEVEL(rows_product_of)(x, table, width, out, 0);
    else if (x.is_wide) LEVEL(transposed_product_of)(x, table, width, out, 1);
    else LEVEL(transposed_product_of)(x, table, width, out, 0);
}
