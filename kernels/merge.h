/* Summing frames over a range of rows, and subtracting sent values from an update. */
#ifndef MLLESS_MERGE_H
#define MLLESS_MERGE_H

#include "frames.h"

/* Adds a frame's values, whose ids were decoded, to sums, and marks them as present. sums has the rows [first_row,
 * end_row) and is -0.0 at first, so that the first value keeps its bits. There is one mark per row if `by_rows` (every
 * frame has whole rows), else one per value. 0 if the frame touches rows outside the range; a dense frame may have
 * zeros there. */
static inline int merge_add(
    const frame_header *header, const unsigned char *values, const uint32_t *ids, size_t first_row, size_t end_row,
    int by_rows, float *sums, unsigned char *there) {
    const size_t n = frame_n_ids(header), width = header->width;
    const size_t first = first_row * width, end = end_row * width;
    if (header->count == 0) return 1;
    if (header->index_codec == INDEX_DENSE) {
        int outside = 0;
        float value;
        for (size_t k = 0; k < first; k++) outside |= (memcpy(&value, values + 4 * k, 4), value != 0.0f);
        for (size_t k = end; k < header->count; k++) outside |= (memcpy(&value, values + 4 * k, 4), value != 0.0f);
        if (outside) return 0;
        put_dense(1, end_row - first_row, width, width, values + 4 * first, sums);
        memset(there, 1, by_rows ? end_row - first_row : end - first);
    } else if (header->index_codec == INDEX_ROWS) {
        if (ids[0] < first_row || ids[n - 1] >= end_row) return 0;
        for (size_t r = 0; r < n; r++)
            if (by_rows)
                there[ids[r] - first_row] = 1;
            else
                memset(there + (ids[r] - first_row) * width, 1, width);
        put_rows(1, n, ids, width, width, values, sums - first);
    } else {
        if (ids[0] < first || ids[n - 1] >= end) return 0;
        for (size_t k = 0; k < n; k++) {
            const size_t at = ids[k] - first;
            float value;
            memcpy(&value, values + 4 * k, 4);
            sums[at] += value;
            there[at] = 1;
        }
    }
    return 1;
}

/* The marked values as (positions, values) or, if `by_rows`, as (row ids, values of whole rows); returns the number of
 * positions or ids. Both arrays have room for INDEX_SLACK more. */
static inline size_t merge_collect(
    size_t first_row, size_t end_row, size_t width, int by_rows, const unsigned char *there, const float *sums,
    uint32_t *ids, float *values) {
    if (!by_rows)
        return DISPATCH(
            collect, ((end_row - first_row) * width, there, sums, (uint32_t)(first_row * width), ids, values));
    size_t m = 0;
    for (size_t row = first_row; row < end_row; row++)
        if (there[row - first_row]) {
            memcpy(values + m * width, sums + (row - first_row) * width, 4 * width);
            ids[m++] = (uint32_t)row;
        }
    return m;
}

/* update[position] -= value; without `take` only whether every position (ascending) is in `rows`. */
static inline __attribute__((always_inline)) int subtract_sent_from(
    int take, const int32_t *rows, size_t m, size_t width, const uint32_t *positions, size_t n, const float *values,
    float *update) {
    const uint32_t factor = row_factor(width);
    size_t k = 0, r = 0, column;
    while (k < n) {
        const uint32_t row = row_of(positions[k], (uint32_t)width, factor);
        const size_t first = (size_t)row * width;
        while (r < m && (uint32_t)rows[r] < row) r++;
        if (r == m || (uint32_t)rows[r] != row) return 0;
        for (; k < n && (column = positions[k] - first) < width; k++)
            if (take) update[r * width + column] -= values[k];
    }
    return 1;
}

/* 0, and nothing is changed, unless the positions ascend within rows (NULL: all m of them). */
static inline int subtract_sent(
    const int32_t *rows, size_t m, size_t width, const uint32_t *positions, size_t n, const float *values,
    float *update) {
    if (!u32_valid(positions, n, rows ? (uint64_t)1 << 32 : (uint64_t)m * width)) return 0;
    if (rows)
        return subtract_sent_from(0, rows, m, width, positions, n, values, update) &&
               subtract_sent_from(1, rows, m, width, positions, n, values, update);
    for (size_t k = 0; k < n; k++) update[positions[k]] -= values[k];
    return 1;
}

#endif
