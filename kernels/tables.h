/* Tables of float32 rows that may be spaced, so that a row's parameters, optimiser state and residual can lie side by
 * side in memory. */
#ifndef MLLESS_TABLES_H
#define MLLESS_TABLES_H

#include <stddef.h>

/* Rows that a walk over scattered rows asks for in advance, so that their memory is there when they are due. */
#define ROWS_AHEAD 8

typedef struct {
    float *at;
    ptrdiff_t stride; /* floats from a row to the next */
} float_table;

static inline float *row_of(float_table table, ptrdiff_t row) { return table.at + row * table.stride; }

/* Ask for every cache line of a row; a table without memory is none. */
static inline void fetch_row(float_table table, ptrdiff_t row, ptrdiff_t width) {
    if (!table.at) return;
    const float *first = row_of(table, row);
    for (ptrdiff_t k = 0; k < width; k += 16) __builtin_prefetch(first + k, 1);
    __builtin_prefetch(first + width - 1, 1);
}

#endif
