/* The significance split over n floats; included by each_level.h.
 *
 * residual += update; where |residual| > threshold * |x|, (base + k, residual) is appended and the residual becomes 0.
 * A NaN is significant: it must not hide. No branches: the branch would be a coin toss. */
static inline TARGET int LEVEL(significant)(float sum, float threshold, float x) {
    return (sum != 0.0f) & !(fabsf(sum) <= threshold * fabsf(x));
}

/* 0 where sent, else sum: by its bits, so that no compiler makes a branch of it. */
static inline TARGET float LEVEL(unless)(int sent, float sum) {
    uint32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    bits &= (uint32_t)sent - 1;
    memcpy(&sum, &bits, sizeof sum);
    return sum;
}

static inline TARGET ptrdiff_t LEVEL(split)(
    ptrdiff_t n, const float *x, const float *u, float *residual, float threshold, uint32_t base, uint32_t *positions,
    float *values, ptrdiff_t count) {
    ptrdiff_t k = 0;
#ifdef HAS_COMPRESS
    const __m512i ramp = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 bound = _mm512_set1_ps(threshold);
    for (; k < n; k += 16) {
        const __mmask16 here = n - k >= 16 ? 0xffff : (__mmask16)((1u << (n - k)) - 1);
        const __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(here, residual + k), _mm512_maskz_loadu_ps(here, u + k));
        const __m512 least = _mm512_mul_ps(bound, _mm512_abs_ps(_mm512_maskz_loadu_ps(here, x + k)));
        const __mmask16 non_zero = _mm512_mask_cmp_ps_mask(here, sum, _mm512_setzero_ps(), _CMP_NEQ_UQ);
        const __mmask16 sent = _mm512_mask_cmp_ps_mask(non_zero, _mm512_abs_ps(sum), least, _CMP_NLE_UQ);
        const int n_sent = __builtin_popcount(sent);
        const __mmask16 kept = (__mmask16)((1u << n_sent) - 1);
        _mm512_mask_storeu_ps(values + count, kept, _mm512_maskz_compress_ps(sent, sum));
        _mm512_mask_storeu_epi32(positions + count, kept,
            _mm512_maskz_compress_epi32(sent, _mm512_add_epi32(ramp, _mm512_set1_epi32((int)(base + (uint32_t)k)))));
        _mm512_mask_storeu_ps(residual + k, here, _mm512_maskz_mov_ps(~sent, sum));
        count += n_sent;
    }
#else
    for (; k + LANES <= n; k += LANES) {
        const VEC sum = *(const VEC *)(residual + k) + *(const VEC *)(u + k);
        const VEC magnitude = (VEC)((INTS)sum & 0x7fffffff);
        const VEC least = threshold * (VEC)(*(const INTS *)(x + k) & 0x7fffffff);
        const INTS sent = ~(INTS)(magnitude <= least) & (INTS)(sum != 0.0f); /* -1 or 0 */
        *(INTS *)(residual + k) = (INTS)sum & ~sent;
        int32_t is_sent[LANES];
        float sums[LANES];
        memcpy(is_sent, &sent, sizeof sent);
        memcpy(sums, &sum, sizeof sum);
        for (int j = 0; j < LANES; j++) {
            positions[count] = base + (uint32_t)(k + j);
            values[count] = sums[j];
            count -= is_sent[j];
        }
    }
    for (; k < n; k++) {
        const float sum = residual[k] + u[k];
        const int sent = LEVEL(significant)(sum, threshold, x[k]);
        positions[count] = base + (uint32_t)k;
        values[count] = sum;
        residual[k] = LEVEL(unless)(sent, sum);
        count += sent;
    }
#endif
    return count;
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
