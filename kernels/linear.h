/* Linear models; the loops are in linear_loops.h, each compiled for several instruction sets. */
#include "sparse_rows.h"
#include "tables.h"

#define LOOPS "linear_loops.h"
#include "each_level.h"

static double linear(
    int loss, const float *weights, ptrdiff_t m, sparse_rows x, const float *labels, float share, float *grad) {
    return DISPATCH(linear, (loss, weights, m, x, labels, share, grad));
}

static void margins(
    float_table params, ptrdiff_t n_features, const int32_t *indptr, const int32_t *indices, const float *values,
    ptrdiff_t n, float *out) {
    DISPATCH(margins, (params, n_features, indptr, indices, values, n, out));
}
