/* Adding to rows, and extracting the change of local steps; included by each_level.h. rows NULL: every row. */

#include "add_loops.h"

static TARGET void LEVEL(add_rows)(ptrdiff_t m, ptrdiff_t width, const int32_t *rows, float_table x, const float *u) {
    if (!rows && x.stride == width) {
        LEVEL(add_run)((size_t)(m * width), (const unsigned char *)u, x.at);
        return;
    }
    if (rows && width == 1) { /* the processor prefetches far enough itself */
        for (ptrdiff_t r = 0; r < m; r++) *row_of(x, rows[r]) += u[r];
        return;
    }
    for (ptrdiff_t r = 0; r < m; r++) {
        if (rows && r + ROWS_AHEAD < m) fetch_row(x, rows[r + ROWS_AHEAD], width);
        LEVEL(add_run)((size_t)width, (const unsigned char *)(u + r * width), row_of(x, rows ? rows[r] : r));
    }
}

/* out = (x - base) * scale; x = base. */
static ALWAYS_INLINE TARGET void LEVEL(take)(ptrdiff_t n, float *x, const float *base, float scale, float *out) {
    ptrdiff_t k = 0;
    for (; k + LANES <= n; k += LANES) {
        const VEC before = *(const VEC *)(base + k);
        *(VEC *)(out + k) = (*(const VEC *)(x + k) - before) * scale;
        *(VEC *)(x + k) = before;
    }
    for (; k < n; k++) {
        out[k] = (x[k] - base[k]) * scale;
        x[k] = base[k];
    }
}

static TARGET void LEVEL(take_rows)(
    ptrdiff_t m, ptrdiff_t width, const int32_t *rows, float_table x, float_table base, float scale, float *out) {
    for (ptrdiff_t r = 0; r < m; r++) {
        if (rows && r + ROWS_AHEAD < m) {
            fetch_row(x, rows[r + ROWS_AHEAD], width);
            fetch_row(base, rows[r + ROWS_AHEAD], width);
        }
        const ptrdiff_t row = rows ? rows[r] : r;
        LEVEL(take)(width, row_of(x, row), row_of(base, row), scale, out + r * width);
    }
}
