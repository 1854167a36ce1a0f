/* Value codecs by number, and adding or storing decoded values in a table whose rows are `stride` floats apart. */
#ifndef MLLESS_FRAME_VALUES_H
#define MLLESS_FRAME_VALUES_H

#include "frame_index.h"

enum { VALUE_FLOAT32, VALUE_BF16, VALUE_INT8, N_VALUE_CODECS };

static inline uint64_t values_size(int codec, uint64_t n) {
    if (codec == VALUE_BF16) return 2 * n;
    if (codec == VALUE_INT8) return n + 4 * ((n + VALUE_BLOCK - 1) / VALUE_BLOCK);
    return 4 * n;
}

static inline void values_pack(int codec, size_t n, const float *values, unsigned char *out) {
    if (codec == VALUE_BF16)
        DISPATCH(bf16_pack, (n, values, out));
    else if (codec == VALUE_INT8)
        DISPATCH(int8_pack, (n, values, out));
    else if (n)
        memcpy(out, values, 4 * n);
}

static inline void values_unpack(int codec, size_t n, const unsigned char *packed, float *values) {
    if (codec == VALUE_BF16)
        DISPATCH(bf16_unpack, (n, packed, values));
    else if (codec == VALUE_INT8)
        DISPATCH(int8_unpack, (n, packed, values));
    else if (n)
        memcpy(values, packed, 4 * n);
}

static inline __attribute__((always_inline)) void put_value(
    int add, size_t k, const uint32_t *positions, const uint32_t *rows, size_t extra, const unsigned char *values,
    float *x) {
    const size_t at = positions[k] + (rows ? rows[k] * extra : 0);
    float value;
    memcpy(&value, values + 4 * k, 4);
    x[at] = add ? x[at] + value : value;
}

/* One value per position; if the rows are spaced, there are `extra` floats between the end of a row and the next. */
static inline __attribute__((always_inline)) void put_block(
    int add, size_t n, const uint32_t *positions, const uint32_t *rows, size_t extra, const unsigned char *values,
    float *x) {
    size_t k = 0;
    for (; k + 4 <= n; k += 4)
        for (size_t j = k; j < k + 4; j++) put_value(add, j, positions, rows, extra, values, x);
    for (; k < n; k++) put_value(add, k, positions, rows, extra, values, x);
}

static inline void put_values(
    int add, size_t n, const uint32_t *positions, size_t width, size_t stride, const unsigned char *values, float *x) {
    const uint32_t factor = row_factor(width);
    const size_t extra = stride - width;
    /* Close positions are in the cache, or will be soon. */
    const int fetch = n && (positions[n - 1] - positions[0]) / width * stride > NEAR_VALUES;
    uint32_t rows[2][INDEX_BLOCK]; /* of this block, and of the next one, which is prefetched */
    size_t next = n < INDEX_BLOCK ? n : INDEX_BLOCK;
    if (extra) DISPATCH(rows_of, (next, positions, (uint32_t)width, factor, rows[0]));
    for (int turn = 0; next; turn ^= 1) {
        const uint32_t *at = positions;
        const size_t here = next;
        positions += here;
        n -= here;
        next = n < INDEX_BLOCK ? n : INDEX_BLOCK;
        if (extra) {
            DISPATCH(rows_of, (next, positions, (uint32_t)width, factor, rows[!turn]));
            for (size_t k = 0; fetch && k < next; k++) __builtin_prefetch(x + positions[k] + rows[!turn][k] * extra, 1);
            if (add)
                put_block(1, here, at, rows[turn], extra, values, x);
            else
                put_block(0, here, at, rows[turn], extra, values, x);
        } else {
            for (size_t k = 0; fetch && k < next; k++) __builtin_prefetch(x + positions[k], 1);
            if (add)
                put_block(1, here, at, NULL, 0, values, x);
            else
                put_block(0, here, at, NULL, 0, values, x);
        }
        values += 4 * here;
    }
}

static inline void put_rows(
    int add, size_t m, const uint32_t *rows, size_t width, size_t stride, const unsigned char *values, float *x) {
    if (add)
        DISPATCH(add_rows, (m, width, stride, rows, values, x));
    else
        for (size_t r = 0; r < m; r++) memcpy(x + rows[r] * stride, values + 4 * r * width, 4 * width);
}

static inline void put_dense(int add, size_t n_rows, size_t width, size_t stride, const unsigned char *values, float *x) {
    if (add)
        DISPATCH(add_dense, (n_rows, width, stride, values, x));
    else
        for (size_t r = 0; r < n_rows; r++) memcpy(x + r * stride, values + 4 * r * width, 4 * width);
}

static inline void put_bits(
    int add, size_t n, const unsigned char *bits, uint64_t table, const unsigned char *values, float *x) {
    if (add) {
        DISPATCH(add_bits, (n, bits, table, values, x));
        return;
    }
    for (uint64_t at = 0; at < table; at++)
        if (bits[at / 8] >> at % 8 & 1) {
            memcpy(x + at, values, 4);
            values += 4;
        }
}

/* Packs values, overwrites them with what unpacking gives, and stores the difference in the residual (rows `stride`
 * apart). */
static inline void values_pack_lossy(
    int codec, size_t n, const uint32_t *positions, float *values, unsigned char *out, float *residual, size_t width,
    size_t stride) {
    for (size_t start = 0; start < n; start += 8 * VALUE_BLOCK) {
        const size_t m = n - start < 8 * VALUE_BLOCK ? n - start : 8 * VALUE_BLOCK;
        float decoded[8 * VALUE_BLOCK], left[8 * VALUE_BLOCK];
        values_pack(codec, m, values + start, out);
        values_unpack(codec, m, out, decoded);
        for (size_t k = 0; k < m; k++) left[k] = values[start + k] - decoded[k];
        memcpy(values + start, decoded, 4 * m);
        put_values(0, m, positions + start, width, stride, (const unsigned char *)left, residual);
        out += values_size(codec, m);
    }
}

/* The same for every value of the table (`size` values, gathered in `table`); values without a position are -0.0, which
 * changes nothing when it is added. */
static inline void values_pack_dense(
    int codec, size_t n, const uint32_t *positions, float *values, unsigned char *out, float *residual, size_t width,
    size_t stride, float *table, size_t size) {
    for (size_t k = 0; k < size; k++) table[k] = -0.0f;
    for (size_t k = 0; k < n; k++) table[positions[k]] = values[k];
    values_pack(codec, size, table, out);
    if (codec == VALUE_FLOAT32) return;
    const uint32_t factor = row_factor(width);
    values_unpack(codec, size, out, table);
    for (size_t k = 0; k < n; k++) {
        const float decoded = table[positions[k]];
        residual[positions[k] + row_of(positions[k], (uint32_t)width, factor) * (stride - width)] = values[k] - decoded;
        values[k] = decoded;
    }
}

#endif
