/* Index sections: ascending positions (row * width + column) or row ids as bytes, and back.
 *
 * Readers check and decode in one pass: they return 0 unless the bytes are exactly what a writer makes from n ascending
 * ids below `high`. They may write up to INDEX_SLACK ids after the n-th. */
#ifndef MLLESS_FRAME_INDEX_H
#define MLLESS_FRAME_INDEX_H

#include "frame_levels.h"

#define INDEX_SLACK 16

enum { INDEX_DENSE, INDEX_U32, INDEX_VARINT, INDEX_ROWS, INDEX_ROWMASK, INDEX_BITS, N_INDEX_CODECS };

static inline unsigned char *varint_put(uint32_t gap, unsigned char *out) {
    while (gap >= 128) {
        *out++ = (unsigned char)(gap | 128);
        gap >>= 7;
    }
    *out++ = (unsigned char)gap;
    return out;
}

/* Ascending ids as varints (seven bits a byte, low first) of id - previous - 1; the first id is written as it is. */
static inline size_t varint_size(const uint32_t *ids, size_t n) {
    size_t size = n;
    for (size_t start = 1; start < n; start += INDEX_BLOCK) { /* usually all gaps of a block have one byte */
        const size_t end = n - start < INDEX_BLOCK ? n : start + INDEX_BLOCK;
        uint32_t any = 0, more = 0;
        for (size_t k = start; k < end; k++) any |= ids[k] - ids[k - 1] - 1;
        if (any < 128) continue;
        for (size_t k = start; k < end; k++) more += varint_more(ids[k] - ids[k - 1] - 1);
        size += more;
    }
    return n ? size + varint_more(ids[0]) : 0;
}

static inline void varint_write(const uint32_t *ids, size_t n, unsigned char *out) {
    if (n) out = varint_put(ids[0], out);
    size_t k = 1;
    while (k < n) {
        if (n - k >= 16) { /* usually sixteen gaps of one byte each */
            uint32_t gaps[16], any = 0;
            for (int j = 0; j < 16; j++) any |= gaps[j] = ids[k + j] - ids[k + j - 1] - 1;
            if (any < 128) {
                for (int j = 0; j < 16; j++) out[j] = (unsigned char)gaps[j];
                out += 16;
                k += 16;
                continue;
            }
        }
        const size_t end = n - k > 16 ? k + 16 : n;
        for (; k < end; k++) out = varint_put(ids[k] - ids[k - 1] - 1, out);
    }
}

static inline int varint_read(const unsigned char *at, const unsigned char *end, size_t n, uint64_t high, uint32_t *ids) {
    uint64_t next = 0, gap;
    size_t k = 0;
    while (k < n) {
        at = DISPATCH(varint_run, (at, end, n, high, ids, &k, &next));
        if (k < n) { /* a longer gap, or few bytes are left */
            at = varint_next(at, end, &gap);
            if (!at) return 0;
            next += gap + 1;
            ids[k++] = (uint32_t)next - 1;
        }
        if (next > high) return 0;
    }
    return at == end && k == n;
}

static inline int u32_valid(const uint32_t *ids, size_t n, uint64_t high) {
    int wrong = 0;
    for (size_t k = 1; k < n; k++) wrong |= ids[k] <= ids[k - 1];
    return n == 0 || (!wrong && ids[n - 1] < high);
}

/* The number of rows that the positions touch; *gap_bytes: size of the varints of these rows' ids. */
static inline size_t rows_touched(const uint32_t *positions, size_t n, size_t width, size_t *gap_bytes) {
    *gap_bytes = 0;
    if (n == 0) return 0;
    const uint32_t factor = row_factor(width);
    uint32_t rows[INDEX_BLOCK + 1];
    rows[0] = row_of(positions[0], (uint32_t)width, factor);
    size_t m = 1, more = varint_more(rows[0]);
    for (size_t start = 1; start < n; start += INDEX_BLOCK) { /* no branches: the end of a row cannot be predicted */
        const size_t block = n - start < INDEX_BLOCK ? n - start : INDEX_BLOCK;
        DISPATCH(rows_of, (block, positions + start, (uint32_t)width, factor, rows + 1));
        m += DISPATCH(gaps_of, (block, rows, &more));
        rows[0] = rows[block];
    }
    *gap_bytes = m + more;
    return m;
}

/* The gaps of the rows' ids: alone if all rows are whole, else each followed by the mask of its columns. */
static inline void rows_write(const uint32_t *positions, size_t n, size_t width, unsigned char *out) {
    const uint32_t factor = row_factor(width);
    uint32_t next = 0;
    for (size_t k = 0; k < n; k += width) {
        const uint32_t row = row_of(positions[k], (uint32_t)width, factor);
        out = varint_put(row - next, out);
        next = row + 1;
    }
}

static inline void rowmask_write(const uint32_t *positions, size_t n, size_t width, unsigned char *out) {
    const size_t mask_bytes = (width + 7) / 8;
    const uint32_t factor = row_factor(width);
    uint32_t next = 0;
    for (size_t k = 0; k < n;) {
        const uint32_t row = row_of(positions[k], (uint32_t)width, factor);
        const uint64_t first = (uint64_t)row * width;
        out = varint_put(row - next, out);
        next = row + 1;
        if (width <= 64) {
            uint64_t mask = 0, column;
            for (; k < n && (column = positions[k] - first) < width; k++) mask |= (uint64_t)1 << column;
            for (size_t j = 0; j < mask_bytes; j++) out[j] = (unsigned char)(mask >> 8 * j);
        } else {
            uint64_t column;
            memset(out, 0, mask_bytes);
            for (; k < n && (column = positions[k] - first) < width; k++)
                out[column / 8] |= (unsigned char)(1u << column % 8);
        }
        out += mask_bytes;
    }
}

static inline int rowmask_read(
    const unsigned char *at, const unsigned char *end, size_t n, size_t n_rows, size_t width, uint32_t *ids) {
    return DISPATCH(rowmask_read, (at, end, n, n_rows, width, ids));
}

static inline size_t bits_size(uint64_t table) { return (size_t)((table + 7) / 8); }

static inline void bits_write(const uint32_t *positions, size_t n, uint64_t table, unsigned char *out) {
    size_t k = 0;
    for (uint64_t first = 0; first < table; first += 64, out += 8) {
        const uint64_t left = table - first;
        uint64_t mask = 0;
        for (; k < n && positions[k] - first < 64; k++) mask |= (uint64_t)1 << (positions[k] - first);
        memcpy(out, &mask, left < 64 ? bits_size(left) : 8);
    }
}

/* If ids is NULL the bits are checked but not decoded. */
static inline int bits_read(const unsigned char *at, const unsigned char *end, size_t n, uint64_t table, uint32_t *ids) {
    if ((size_t)(end - at) != bits_size(table)) return 0;
    return DISPATCH(bits_read, (at, n, table, ids));
}

/* The index codec for the ids of whole rows, and the size of its section. */
static inline int rows_index(const uint32_t *rows, size_t m, size_t width, uint64_t table, size_t *bytes) {
    *bytes = width == 1 ? bits_size(table) : SIZE_MAX;
    if (*bytes < m) return INDEX_BITS; /* a gap takes at least one byte */
    const size_t gap_bytes = varint_size(rows, m);
    if (*bytes < gap_bytes) return INDEX_BITS;
    *bytes = gap_bytes;
    return INDEX_ROWS;
}

static inline void rows_index_write(int codec, const uint32_t *rows, size_t m, uint64_t table, unsigned char *out) {
    if (codec == INDEX_BITS)
        bits_write(rows, m, table, out);
    else
        varint_write(rows, m, out);
}

/* The index codec whose section, with the bytes of values that dense would add, is the smallest. */
static inline int smallest_index(
    const uint32_t *positions, size_t n, size_t width, uint64_t table, uint64_t dense_extra, size_t *bytes) {
    int codec = INDEX_VARINT;
    size_t gap_bytes;
    *bytes = varint_size(positions, n);
    if (4 * n < *bytes) codec = INDEX_U32, *bytes = 4 * n;
    if (width > 1) {
        const size_t m = rows_touched(positions, n, width, &gap_bytes), masks = m * ((width + 7) / 8);
        if (gap_bytes + masks < *bytes) codec = INDEX_ROWMASK, *bytes = gap_bytes + masks;
        if (m * width == n && gap_bytes < *bytes) codec = INDEX_ROWS, *bytes = gap_bytes;
    }
    if (codec != INDEX_ROWS && bits_size(table) < *bytes) codec = INDEX_BITS, *bytes = bits_size(table);
    if (dense_extra < *bytes) codec = INDEX_DENSE, *bytes = 0;
    return codec;
}

static inline size_t index_size(int codec, const uint32_t *positions, size_t n, size_t width, uint64_t table) {
    size_t gap_bytes;
    switch (codec) {
        case INDEX_U32: return 4 * n;
        case INDEX_VARINT: return varint_size(positions, n);
        case INDEX_ROWMASK: {
            const size_t m = rows_touched(positions, n, width, &gap_bytes);
            return gap_bytes + m * ((width + 7) / 8);
        }
        case INDEX_BITS: return bits_size(table);
        default: return 0;
    }
}

static inline void index_write(
    int codec, const uint32_t *positions, size_t n, size_t width, uint64_t table, unsigned char *out) {
    switch (codec) {
        case INDEX_U32: if (n) memcpy(out, positions, 4 * n); break;
        case INDEX_VARINT: varint_write(positions, n, out); break;
        case INDEX_ROWS: rows_write(positions, n, width, out); break;
        case INDEX_ROWMASK: rowmask_write(positions, n, width, out); break;
        case INDEX_BITS: bits_write(positions, n, table, out); break;
    }
}

#endif
