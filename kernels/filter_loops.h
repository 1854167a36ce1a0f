/* The significance split of a vector; included by each_level.h.
 *
 * residual += u; where |residual| > threshold * |x|, (base + lane, residual) is appended and the residual becomes 0. A
 * NaN is significant, so that divergence is noticed; with an infinite threshold nothing is. There are no branches on
 * values, because they cannot be predicted. Up to LANES entries are written from `count` on; those not counted are
 * invalid. */
static ALWAYS_INLINE TARGET VEC LEVEL(load)(const float *p, ptrdiff_t n) {
    return n == LANES ? *(const VEC *)p : PART(p, n);
}

static ALWAYS_INLINE TARGET void LEVEL(store)(float *p, ptrdiff_t n, VEC v) {
    if (n == LANES)
        *(VEC *)p = v;
    else
        PUT_PART(p, n, v);
}

#define EVERY_LANE (~(INTS){0})

/* `after` in the touched lanes (-1), `before` in the others (0). */
static ALWAYS_INLINE TARGET VEC LEVEL(where)(INTS touched, VEC after, VEC before) {
    return (VEC)(((INTS)after & touched) | ((INTS)before & ~touched));
}

/* The split of the touched lanes among the first n <= LANES lanes of u. */
static ALWAYS_INLINE TARGET ptrdiff_t LEVEL(split)(
    VEC u, ptrdiff_t n, INTS touched, const float *x, float *residual, float threshold, uint32_t base,
    uint32_t *positions, float *values, ptrdiff_t count) {
    const VEC held = LEVEL(load)(residual, n), sum = LEVEL(where)(touched, held + u, held);
    if (threshold == __builtin_inff()) { /* infinity times a parameter of 0 is NaN */
        LEVEL(store)(residual, n, sum);
        return count;
    }
    const VEC magnitude = (VEC)((INTS)sum & 0x7fffffff);
    const VEC least = threshold * (VEC)((INTS)LEVEL(load)(x, n) & 0x7fffffff);
#ifdef HAS_COMPRESS
    const __m512i ramp = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i places = _mm512_add_epi32(ramp, _mm512_set1_epi32((int)base));
    const __mmask16 here = (__mmask16)(0xffffu >> (16 - n)) & _mm512_movepi32_mask((__m512i)touched);
    const __mmask16 non_zero = _mm512_mask_cmp_ps_mask(here, (__m512)sum, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    const __mmask16 sent = _mm512_mask_cmp_ps_mask(non_zero, (__m512)magnitude, (__m512)least, _CMP_NLE_UQ);
    LEVEL(store)(residual, n, (VEC)_mm512_maskz_mov_ps((__mmask16)~sent, (__m512)sum));
    _mm512_storeu_ps(values + count, _mm512_maskz_compress_ps(sent, (__m512)sum));
    _mm512_storeu_si512(positions + count, _mm512_maskz_compress_epi32(sent, places));
    return count + __builtin_popcount(sent);
#else
    const INTS sent = ~(INTS)(magnitude <= least) & (INTS)(sum != 0.0f) & touched; /* -1 or 0 */
    LEVEL(store)(residual, n, (VEC)((INTS)sum & ~sent));
    int32_t is_sent[LANES];
    float sums[LANES];
    memcpy(is_sent, &sent, sizeof sent);
    memcpy(sums, &sum, sizeof sum);
    for (int j = 0; j < n; j++) {
        positions[count] = base + (uint32_t)j;
        values[count] = sums[j];
        count -= is_sent[j];
    }
    return count;
#endif
}

/* Every non-zero of the residual, which becomes 0. */
static TARGET ptrdiff_t LEVEL(flush)(
    float_table residual, ptrdiff_t n_rows, ptrdiff_t width, uint32_t *positions, float *values) {
    ptrdiff_t count = 0;
    for (ptrdiff_t row = 0; row < n_rows; row++) {
        float *held = row_of(residual, row);
        for (ptrdiff_t k = 0; k < width; k++) {
            positions[count] = (uint32_t)(row * width + k);
            values[count] = held[k];
            count += held[k] != 0.0f;
            held[k] = 0.0f;
        }
    }
    return count;
}
