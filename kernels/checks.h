/* The argument checks of every kernel: one pass without branches, so that they cost almost nothing. */
#ifndef MLLESS_CHECKS_H
#define MLLESS_CHECKS_H

#include <Python.h>
#include <stddef.h>
#include <stdint.h>

/* Stride of a table's rows, floats; -1 with ValueError set if rows overlap or the stride is not a whole number. */
static inline Py_ssize_t row_stride(const char *name, Py_ssize_t n_rows, Py_ssize_t width, Py_ssize_t stride_bytes) {
    const Py_ssize_t size = (Py_ssize_t)sizeof(float);
    if (n_rows <= 1) return width;
    if (stride_bytes % size == 0 && stride_bytes >= width * size) return stride_bytes / size;
    PyErr_Format(PyExc_ValueError, "rows of %s are %zd bytes apart: must be whole floats apart, at least %zd bytes", name,
                 stride_bytes, width * size);
    return -1;
}

/* Whether every id is in [0, high). Every processor can subtract vectors of integers, but not every one can compare
 * them: for an id out of range, either the id or the difference has its sign bit set. */
static inline int ids_within(const int32_t *ids, ptrdiff_t n, int64_t high) {
    const uint32_t last = (uint32_t)(high > INT32_MAX ? INT32_MAX : high - 1);
    uint32_t wrong = 0;
    for (ptrdiff_t k = 0; k < n; k++) wrong |= (uint32_t)ids[k] | (last - (uint32_t)ids[k]);
    return n == 0 || (high > 0 && wrong >> 31 == 0);
}

/* Whether every id is below high. */
static inline int short_ids_within(const uint16_t *ids, ptrdiff_t n, int64_t high) {
    uint16_t most = 0;
    for (ptrdiff_t k = 0; k < n; k++) most = ids[k] > most ? ids[k] : most;
    return n == 0 || most < high;
}

/* Whether ids are strictly ascending within [0, high). */
static inline int ids_ascend(const int32_t *ids, ptrdiff_t n, int64_t high) {
    int wrong = 0;
    for (ptrdiff_t k = 1; k < n; k++) wrong |= ids[k] <= ids[k - 1];
    return n == 0 || (!wrong && ids[0] >= 0 && ids[n - 1] < high);
}

/* Whether every user's position is below every item's, so that no row is used as both. */
static inline int users_first(const int32_t *user, const int32_t *item, ptrdiff_t n) {
    int32_t last_user = INT32_MIN, first_item = INT32_MAX;
    for (ptrdiff_t k = 0; k < n; k++) {
        last_user = user[k] > last_user ? user[k] : last_user;
        first_item = item[k] < first_item ? item[k] : first_item;
    }
    return n == 0 || last_user < first_item;
}

/* Whether indptr starts at 0, never decreases and ends at nnz. */
static inline int indptr_fits(const int32_t *indptr, ptrdiff_t n, int64_t nnz) {
    int wrong = 0;
    for (ptrdiff_t k = 0; k < n; k++) wrong |= indptr[k + 1] < indptr[k];
    return !wrong && indptr[0] == 0 && indptr[n] == nnz;
}

#endif
