#ifndef MLLESS_SPARSE_ROWS_H
#define MLLESS_SPARSE_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* Rows of a minibatch: entries row by row, and dense columns with a value for every row. */
typedef struct {
    ptrdiff_t n;
    const int32_t *indptr;
    const void *indices; /* int32_t if is_wide, else uint16_t */
    int is_wide;
    const float *values; /* NULL if every value is 1 */
    ptrdiff_t n_columns;
    const int32_t *columns;
    const float *dense; /* (n_columns, n) */
} sparse_rows;

#endif
