/* The checksum of a frame; included by frame_loops.h. The result is the same at each level. */

/* NH of n bytes, a multiple of CHECKSUM_LINE: the sum over their pairs of words of (first + key) * (second + key). */
static inline TARGET uint64_t LEVEL(nh)(const unsigned char *data, size_t n, const uint32_t *key) {
#if defined(MLLESS_X86) && LANES == 16
    __m512i sum = _mm512_setzero_si512(), more = sum;
    size_t k = 0;
    for (; k + 128 <= n; k += 128) { /* two sums: an addition waits for the one before */
        const __m512i a = _mm512_add_epi32(_mm512_loadu_si512(data + k), _mm512_loadu_si512(key + k / 4));
        const __m512i b = _mm512_add_epi32(_mm512_loadu_si512(data + k + 64), _mm512_loadu_si512(key + k / 4 + 16));
        sum = _mm512_add_epi64(sum, _mm512_mul_epu32(a, _mm512_srli_epi64(a, 32)));
        more = _mm512_add_epi64(more, _mm512_mul_epu32(b, _mm512_srli_epi64(b, 32)));
    }
    if (k < n) {
        const __m512i a = _mm512_add_epi32(_mm512_loadu_si512(data + k), _mm512_loadu_si512(key + k / 4));
        sum = _mm512_add_epi64(sum, _mm512_mul_epu32(a, _mm512_srli_epi64(a, 32)));
    }
    return (uint64_t)_mm512_reduce_add_epi64(_mm512_add_epi64(sum, more));
#elif defined(MLLESS_X86) && LANES == 8
    __m256i sum = _mm256_setzero_si256(), more = sum;
    uint64_t lanes[4];
    for (size_t k = 0; k < n; k += 64) {
        const __m256i *at = (const __m256i *)(data + k), *with = (const __m256i *)(key + k / 4);
        const __m256i a = _mm256_add_epi32(_mm256_loadu_si256(at), _mm256_loadu_si256(with));
        const __m256i b = _mm256_add_epi32(_mm256_loadu_si256(at + 1), _mm256_loadu_si256(with + 1));
        sum = _mm256_add_epi64(sum, _mm256_mul_epu32(a, _mm256_srli_epi64(a, 32)));
        more = _mm256_add_epi64(more, _mm256_mul_epu32(b, _mm256_srli_epi64(b, 32)));
    }
    _mm256_storeu_si256((__m256i *)lanes, _mm256_add_epi64(sum, more));
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
#else
    uint64_t sum[4] = {0, 0, 0, 0};
    uint32_t words[8];
    for (size_t k = 0; k < n; k += 32) {
        memcpy(words, data + k, 32);
        for (int j = 0; j < 4; j++)
            sum[j] += (uint64_t)(words[2 * j] + key[k / 4 + 2 * j]) * (words[2 * j + 1] + key[k / 4 + 2 * j + 1]);
    }
    return sum[0] + sum[1] + sum[2] + sum[3];
#endif
}

static TARGET uint32_t LEVEL(checksum)(const unsigned char *frame, size_t size) {
    const unsigned char *at = frame + CHECKSUM_HEADER;
    unsigned char line[CHECKSUM_LINE] = {0};
    size_t left = size - CHECKSUM_HEADER;
    memcpy(line, frame, CHECKSUM_AT);
    uint64_t sum = LEVEL(nh)(line, CHECKSUM_LINE, checksum_key);
    for (; left >= CHECKSUM_BLOCK; left -= CHECKSUM_BLOCK, at += CHECKSUM_BLOCK)
        sum = sum * CHECKSUM_FACTOR + LEVEL(nh)(at, CHECKSUM_BLOCK, checksum_key);
    if (left) {
        const size_t whole = left / CHECKSUM_LINE * CHECKSUM_LINE;
        uint64_t last = LEVEL(nh)(at, whole, checksum_key);
        if (whole < left) {
            memset(line, 0, CHECKSUM_LINE);
            memcpy(line, at + whole, left - whole);
            last += LEVEL(nh)(line, CHECKSUM_LINE, checksum_key + whole / 4);
        }
        sum = sum * CHECKSUM_FACTOR + last;
    }
    return (uint32_t)((sum ^ sum >> 32) * CHECKSUM_FACTOR >> 32);
}
