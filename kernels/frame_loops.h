/* Rows of positions, value codecs, runs of values; included by each_level.h. Frames may be at any address.
 *
 * No expression here multiplies and adds: a fused multiply-add would make parameters differ between processors. The
 * sender uses unpack like the receivers, so the rounding error in the residual is exact. */

#include "add_loops.h"
#include "checksum_loops.h"

static inline TARGET void LEVEL(rows_of)(
    size_t n, const uint32_t *positions, uint32_t width, uint32_t factor, uint32_t *rows) {
    for (size_t k = 0; k < n; k++) rows[k] = row_of(positions[k], width, factor);
}

/* How many of rows[1..n] differ from the one before; adds to *more the bytes of their gaps' varints after the first. */
static inline TARGET size_t LEVEL(gaps_of)(size_t n, const uint32_t *rows, size_t *more) {
    uint32_t m = 0, bytes = 0, any = 0;
    for (size_t k = 0; k < n; k++) {
        m += rows[k + 1] != rows[k];
        any |= rows[k + 1] - rows[k];
    }
    if (any < 128) return m; /* the usual case */
    for (size_t k = 0; k < n; k++) bytes += varint_more(rows[k + 1] - rows[k] - (rows[k + 1] != rows[k]));
    *more += bytes;
    return m;
}

/* Decodes short gaps several at a time, as long as enough of them follow without a longer one: ids[*k..], each the sum
 * of (gap + 1) so far. *next is the least valid next id; decoding stops if that exceeds `high`. */
static inline TARGET const unsigned char *LEVEL(varint_run)(
    const unsigned char *at, const unsigned char *end, size_t n, uint64_t high, uint32_t *ids, size_t *k,
    uint64_t *next) {
#ifdef HAS_COMPRESS
    const __m512i zero = _mm512_setzero_si512(), one = _mm512_set1_epi32(1);
    while (n > *k && end - at >= 17 && *next <= high) { /* gaps of one or two bytes that begin in sixteen bytes */
        const __m128i bytes = _mm_loadu_si128((const __m128i *)at), after = _mm_loadu_si128((const __m128i *)(at + 1));
        const uint32_t more = _mm_movepi8_mask(bytes), last = _mm_movepi8_mask(after);
        const uint32_t empty = _mm_testn_epi8_mask(after, after);
        if (more & (last | empty)) break; /* more than two bytes, or longer than necessary */
        const __mmask16 begins = (__mmask16)~(more << 1);
        const __m512i low = _mm512_and_si512(_mm512_cvtepu8_epi32(bytes), _mm512_set1_epi32(127));
        const __m512i upper = _mm512_slli_epi32(_mm512_cvtepu8_epi32(after), 7);
        const __m512i gaps = _mm512_mask_add_epi32(low, (__mmask16)more, low, upper);
        __m512i sums = _mm512_add_epi32(_mm512_maskz_compress_epi32(begins, gaps), one);
        sums = _mm512_add_epi32(sums, _mm512_alignr_epi32(sums, zero, 15));
        sums = _mm512_add_epi32(sums, _mm512_alignr_epi32(sums, zero, 14));
        sums = _mm512_add_epi32(sums, _mm512_alignr_epi32(sums, zero, 12));
        sums = _mm512_add_epi32(sums, _mm512_alignr_epi32(sums, zero, 8));
        _mm512_storeu_si512(ids + *k, _mm512_add_epi32(sums, _mm512_set1_epi32((int)((uint32_t)*next - 1))));
        at += 16 + (more >> 15);
        *k += (size_t)__builtin_popcount(begins);
        *next += (uint32_t)(ids[*k - 1] + 1 - (uint32_t)*next);
    }
#else
    uint64_t eight;
    while (n > *k && end - at >= 8 && *next <= high && (memcpy(&eight, at, 8), (eight & 0x8080) == 0)) {
        /* Running sums of eight gaps of one byte, two by two in quarters of a word. */
        const uint64_t longer = eight & 0x8080808080808080u;
        const uint64_t odd = ((eight >> 8) & 0x00ff00ff00ff00ffu) + 0x0001000100010001u;
        const uint64_t sums = ((eight & 0x00ff00ff00ff00ffu) + 0x0001000100010001u + odd) * 0x0001000100010001u;
        for (int j = 0; j < 4; j++) {
            const uint32_t last = (uint32_t)*next + (uint32_t)(sums >> 16 * j & 0xffff) - 1;
            ids[*k + 2 * j] = last - (uint32_t)(odd >> 16 * j & 0xffff);
            ids[*k + 2 * j + 1] = last;
        }
        if (longer) { /* the ids from the first longer gap on are invalid */
            const size_t few = (size_t)__builtin_ctzll(longer) / 8;
            at += few;
            *k += few;
            *next += (uint32_t)(ids[*k - 1] + 1 - (uint32_t)*next);
        } else {
            at += 8;
            *k += 8;
            *next += sums >> 48;
        }
    }
#endif
    return at;
}

/* Appends first + (number of each set bit) to ids, many at a time so that few branches depend on the count. */
static inline TARGET uint32_t *LEVEL(mask_read)(uint64_t mask, uint32_t first, uint32_t *ids) {
#ifdef HAS_COMPRESS
    const __m512i ramp = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (; mask; mask >>= 16, first += 16) {
        const __m512i columns = _mm512_add_epi32(ramp, _mm512_set1_epi32((int)first));
        _mm512_storeu_si512(ids, _mm512_maskz_compress_epi32((__mmask16)mask, columns));
        ids += __builtin_popcount((uint32_t)mask & 0xffff);
    }
    return ids;
#else
    uint32_t *const after = ids + __builtin_popcountll(mask);
    for (; ids < after; ids += 8)
        for (int j = 0; j < 8; j++) {
            ids[j] = first + (uint32_t)__builtin_ctzll(mask | (uint64_t)1 << 63);
            mask &= mask - 1;
        }
    return after;
#endif
}

static inline TARGET int LEVEL(rowmask_read)(
    const unsigned char *at, const unsigned char *end, size_t n, size_t n_rows, size_t width, uint32_t *ids) {
    const uint32_t *const after = ids + n;
    const size_t mask_bytes = (width + 7) / 8;
    uint64_t next = 0, gap;
    while (at != end) {
        at = varint_next(at, end, &gap);
        if (!at || (next += gap) >= n_rows || (size_t)(end - at) < mask_bytes) return 0;
        uint64_t first = next++ * width, any = 0;
        for (size_t byte = 0; byte < mask_bytes; byte += 8, first += 64) {
            uint64_t mask = 0;
            if ((size_t)(end - at) - byte >= 8) {
                memcpy(&mask, at + byte, 8);
                if (mask_bytes - byte < 8) mask &= ((uint64_t)1 << 8 * (mask_bytes - byte)) - 1;
            } else
                memcpy(&mask, at + byte, mask_bytes - byte);
            const size_t columns = width - 8 * byte;
            if (columns < 64 && mask >> columns) return 0;
            if (__builtin_popcountll(mask) > after - ids) return 0;
            any |= mask;
            ids = LEVEL(mask_read)(mask, (uint32_t)first, ids);
        }
        if (!any) return 0;
        at += mask_bytes;
    }
    return ids == after;
}

/* The 64 bits of a table's bits from position `first` on; bits after the table are as in the last byte. */
static ALWAYS_INLINE TARGET uint64_t LEVEL(bits_at)(const unsigned char *bits, uint64_t first, uint64_t table) {
    uint64_t mask = 0;
    if (table - first >= 64)
        memcpy(&mask, bits + first / 8, 8);
    else
        memcpy(&mask, bits + first / 8, (size_t)(table - first + 7) / 8);
    return mask;
}

static inline TARGET int LEVEL(bits_read)(const unsigned char *bits, size_t n, uint64_t table, uint32_t *ids) {
    uint64_t count = 0, mask = 0, first;
    for (first = 0; first < table; first += 64) count += __builtin_popcountll(mask = LEVEL(bits_at)(bits, first, table));
    if (count != n || (table % 64 && mask >> table % 64)) return 0;
    for (first = 0; ids && first < table; first += 64)
        ids = LEVEL(mask_read)(LEVEL(bits_at)(bits, first, table), (uint32_t)first, ids);
    return 1;
}

/* float32 to its upper half, to nearest, ties to even; a NaN stays one. */
static inline TARGET void LEVEL(bf16_pack)(size_t n, const float *values, unsigned char *out) {
    for (size_t start = 0; start < n; start += VALUE_BLOCK) {
        const size_t m = n - start < VALUE_BLOCK ? n - start : VALUE_BLOCK;
        uint32_t bits[VALUE_BLOCK];
        uint16_t halves[VALUE_BLOCK];
        memcpy(bits, values + start, 4 * m);
        for (size_t k = 0; k < m; k++) {
            const uint32_t rounded = (bits[k] + 0x7fff + (bits[k] >> 16 & 1)) >> 16;
            const uint32_t quiet = bits[k] >> 16 | 0x40;
            halves[k] = (uint16_t)((bits[k] & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
        }
        memcpy(out + 2 * start, halves, 2 * m);
    }
}

static inline TARGET void LEVEL(bf16_unpack)(size_t n, const unsigned char *packed, float *values) {
    for (size_t start = 0; start < n; start += VALUE_BLOCK) {
        const size_t m = n - start < VALUE_BLOCK ? n - start : VALUE_BLOCK;
        uint32_t bits[VALUE_BLOCK];
        uint16_t halves[VALUE_BLOCK];
        memcpy(halves, packed + 2 * start, 2 * m);
        for (size_t k = 0; k < m; k++) bits[k] = (uint32_t)halves[k] << 16;
        memcpy(values + start, bits, 4 * m);
    }
}

/* Blocks of a float32 scale, absmax / 127, and one signed byte per value: value / scale to nearest, ties to even. A
 * block with a value that is not finite has the scale NaN and decodes to NaN only, so that divergence is noticed. */
static inline TARGET void LEVEL(int8_pack)(size_t n, const float *values, unsigned char *out) {
    for (size_t start = 0; start < n; start += VALUE_BLOCK) {
        const size_t m = n - start < VALUE_BLOCK ? n - start : VALUE_BLOCK;
        const float *block = values + start;
        int32_t bits[VALUE_BLOCK], greatest = 0;
        memcpy(bits, block, 4 * m);
        for (size_t k = 0; k < m; k++) { /* magnitudes have the order of their bits, NaN above infinity */
            const int32_t magnitude = bits[k] & 0x7fffffff;
            greatest = magnitude > greatest ? magnitude : greatest;
        }
        float scale;
        if (greatest >= 0x7f800000) greatest = 0x7fc00000;
        memcpy(&scale, &greatest, 4);
        scale /= 127.0f;
        memcpy(out, &scale, 4);
        int8_t *levels = (int8_t *)(out + 4);
        if (!(scale > 0.0f))
            memset(levels, 0, m);
        else
            for (size_t k = 0; k < m; k++) {
                const float nearest = (block[k] / scale + 12582912.0f) - 12582912.0f; /* 1.5 * 2^23: to an integer */
                int32_t q = (int32_t)nearest;
                q = q > 127 ? 127 : q; /* if the scale is denormal, and so imprecise */
                q = q < -127 ? -127 : q;
                levels[k] = (int8_t)q;
            }
        out += 4 + m;
    }
}

static inline TARGET void LEVEL(int8_unpack)(size_t n, const unsigned char *packed, float *values) {
    for (size_t start = 0; start < n; start += VALUE_BLOCK) {
        const size_t m = n - start < VALUE_BLOCK ? n - start : VALUE_BLOCK;
        const int8_t *levels = (const int8_t *)(packed + 4);
        float scale;
        memcpy(&scale, packed, 4);
        for (size_t k = 0; k < m; k++) values[start + k] = (float)levels[k] * scale;
        packed += 4 + m;
    }
}

static inline TARGET void LEVEL(add_dense)(
    size_t n_rows, size_t width, size_t stride, const unsigned char *values, float *x) {
    if (stride == width) {
        width *= n_rows;
        n_rows = 1;
    }
    for (size_t r = 0; r < n_rows; r++) LEVEL(add_run)(width, values + 4 * r * width, x + r * stride);
}

static inline TARGET void LEVEL(add_rows)(
    size_t m, size_t width, size_t stride, const uint32_t *rows, const unsigned char *values, float *x) {
    const int fetch = m && (rows[m - 1] - rows[0]) * stride > NEAR_VALUES;
    for (size_t r = 0; r < m; r++) {
        if (fetch) {
            const char *ahead = (const char *)(x + rows[r + AHEAD_ROWS < m ? r + AHEAD_ROWS : r] * stride);
            __builtin_prefetch(ahead, 1);
            __builtin_prefetch(ahead + 4 * width - 1, 1);
        }
        LEVEL(add_run)(width, values + 4 * r * width, x + rows[r] * stride);
    }
}

/* Adds the n values at the set bits of a table to it, in one pass over both. */
static inline TARGET void LEVEL(add_bits)(
    size_t n, const unsigned char *bits, uint64_t table, const unsigned char *values, float *x) {
    const unsigned char *const after = values + 4 * n;
    for (uint64_t first = 0; first < table && values != after; first += 64) {
        uint64_t mask = LEVEL(bits_at)(bits, first, table);
        float *place = x + first;
#ifdef HAS_COMPRESS
        if (table - first >= 64 && after - values >= 256) /* both have whole vectors left */
            for (; mask; mask >>= 16, place += 16) {
                const __mmask16 here = (__mmask16)mask;
                const __m512 old = _mm512_loadu_ps(place), more = _mm512_loadu_ps(values);
                /* no masked store, because the next load would have to wait for it */
                _mm512_storeu_ps(place, _mm512_mask_add_ps(old, here, old, _mm512_maskz_expand_ps(here, more)));
                values += 4 * __builtin_popcount(here);
            }
#endif
        for (; mask; mask &= mask - 1, values += 4) {
            float value;
            memcpy(&value, values, 4);
            place[__builtin_ctzll(mask)] += value;
        }
    }
}

/* Appends (first + k, sums[k]) for every k below n that is marked (a byte each); both arrays have room for 16 more. */
static inline TARGET size_t LEVEL(collect)(
    size_t n, const unsigned char *there, const float *sums, uint32_t first, uint32_t *positions, float *values) {
    size_t count = 0, k = 0;
#ifdef HAS_COMPRESS
    const __m512i ramp = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (; k + 16 <= n; k += 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(there + k));
        const __mmask16 mask = _mm_test_epi8_mask(bytes, bytes);
        const __m512i here = _mm512_add_epi32(ramp, _mm512_set1_epi32((int)(first + (uint32_t)k)));
        _mm512_storeu_si512(positions + count, _mm512_maskz_compress_epi32(mask, here));
        _mm512_storeu_ps(values + count, _mm512_maskz_compress_ps(mask, _mm512_loadu_ps(sums + k)));
        count += (size_t)__builtin_popcount(mask);
    }
#endif
    for (; k < n; k++) {
        positions[count] = first + (uint32_t)k;
        values[count] = sums[k];
        count += there[k];
    }
    return count;
}
