/* Matrix factorisation; the loops are in factorization_loops.h, each compiled for several instruction sets. */
#include "tables.h"

#define LOOPS "factorization_loops.h"
#include "each_level.h"

#ifdef MLLESS_X86 /* narrow rows are faster with shorter vectors */
#define DISPATCH_WIDTH(f, arguments)                                \
    (level() == LEVEL_AVX512 && width >= 16 ? f##_avx512 arguments  \
     : level() >= LEVEL_AVX2 && width >= 8  ? f##_avx2 arguments    \
                                            : f##_generic arguments)
#else
#define DISPATCH_WIDTH(f, arguments) DISPATCH(f, arguments)
#endif

static double pmf(
    float_table params, const int32_t *rows, ptrdiff_t width, const int32_t *user, const int32_t *item,
    const float *rating, ptrdiff_t n, float mean, float l2, float share, int biases, float *grad) {
    return DISPATCH_WIDTH(pmf, (params, rows, width, user, item, rating, n, mean, l2, share, biases, grad));
}

static double pmf_sgd(
    float_table params, const int32_t *rows, ptrdiff_t width, const int32_t *user, const int32_t *item,
    const float *rating, ptrdiff_t n, float mean, float l2, float rate, int biases) {
    return DISPATCH_WIDTH(pmf_sgd, (params, rows, width, user, item, rating, n, mean, l2, rate, biases));
}

static double pmf_scores(
    float_table params, const int32_t *rows, ptrdiff_t width, const int32_t *user, const int32_t *item,
    const float *rating, ptrdiff_t n, float mean, int biases, float *out) {
    return DISPATCH(pmf_scores, (params, rows, width, user, item, rating, n, mean, biases, out));
}
