/* Adding updates and splitting off the significant; the loops are in filter_loops.h. */
#define LOOPS "filter_loops.h"
#include "each_level.h"

static ptrdiff_t split_flat(
    ptrdiff_t n, const float *x, const float *u, float *residual, float threshold, uint32_t *positions, float *values) {
    return DISPATCH(split, (n, x, u, residual, threshold, 0, positions, values, 0));
}

static ptrdiff_t split_rows(
    ptrdiff_t m, ptrdiff_t width, const int32_t *rows, const float *x, const float *u, float *residual, float threshold,
    uint32_t *positions, float *values) {
    return DISPATCH(split_rows, (m, width, rows, x, u, residual, threshold, positions, values));
}

static ptrdiff_t flush_flat(ptrdiff_t n, float *residual, uint32_t *positions, float *values) {
    return DISPATCH(flush, (n, residual, positions, values));
}

static void add_flat(ptrdiff_t n, float *x, const float *u) { DISPATCH(add_flat, (n, x, u)); }

static void add_rows(ptrdiff_t m, ptrdiff_t width, const int32_t *rows, float *x, const float *u) {
    DISPATCH(add_rows, (m, width, rows, x, u));
}
