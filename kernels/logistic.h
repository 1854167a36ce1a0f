/* Logistic regression; the loops are in logistic_loops.h, each compiled for several instruction sets. */
#include "tables.h"

#define LOOPS "logistic_loops.h"
#include "each_level.h"

static double logistic(
    const float *weights, ptrdiff_t m, const int32_t *indptr, const int32_t *indices, const float *values,
    const float *labels, ptrdiff_t n, float share, float *grad) {
    return DISPATCH(logistic, (weights, m, indptr, indices, values, labels, n, share, grad));
}

static void margins(
    float_table params, ptrdiff_t n_features, const int32_t *indptr, const int32_t *indices, const float *values,
    ptrdiff_t n, float *out) {
    DISPATCH(margins, (params, n_features, indptr, indices, values, n, out));
}
