/* Tables of float32 rows that may be spaced, so that a row's parameters, optimiser state and residual can be adjacent
 * in memory. */
#ifndef MLLESS_TABLES_H
#define MLLESS_TABLES_H

#include <stddef.h>

/* How many rows ahead a loop over scattered rows prefetches. */
#define ROWS_AHEAD 8

typedef struct {
    float *at;
    ptrdiff_t stride; /* floats from one row to the next */
} float_table;

static inline float *row_of(float_table table, ptrdiff_t row) { return table.at + row * table.stride; }

/* Prefetch every cache line of a row, unless the table is NULL. */
static inline void fetch_row(float_table table, ptrdiff_t row, ptrdiff_t width) {
    if (!table.at) return;
    const float *first = row_of(table, row);
    for (ptrdiff_t k = 0; k < width; k += 16) __builtin_prefetch(first + k, 1);
    __builtin_prefetch(first + width - 1, 1);
}

#endif
