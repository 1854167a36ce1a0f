/* Matrix factorisation; the loops are in factorization_loops.h, each compiled for several instruction sets. */
#include "tables.h"

#define LOOPS "factorization_loops.h"
#include "each_level.h"

static double pmf(
    float_table params, const int32_t *rows, ptrdiff_t width, const int32_t *user, const int32_t *item,
    const float *rating, ptrdiff_t n, float mean, float l2, float share, int biases, float *grad) {
#ifdef MLLESS_X86 /* a narrow row is better off with shorter vectors */
    if (level() == LEVEL_AVX512 && width >= 16)
        return pmf_avx512(params, rows, width, user, item, rating, n, mean, l2, share, biases, grad);
    if (level() >= LEVEL_AVX2 && width >= 8)
        return pmf_avx2(params, rows, width, user, item, rating, n, mean, l2, share, biases, grad);
#endif
    return pmf_generic(params, rows, width, user, item, rating, n, mean, l2, share, biases, grad);
}

static double pmf_scores(
    float_table params, const int32_t *rows, ptrdiff_t width, const int32_t *user, const int32_t *item,
    const float *rating, ptrdiff_t n, float mean, int biases, float *out) {
    return DISPATCH(pmf_scores, (params, rows, width, user, item, rating, n, mean, biases, out));
}
