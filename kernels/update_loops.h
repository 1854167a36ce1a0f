/* Adding to rows, and taking what local steps added; included by each_level.h. rows NULL: every row. */

static ALWAYS_INLINE TARGET void LEVEL(add)(ptrdiff_t n, float *x, const float *u) {
    ptrdiff_t k = 0;
    for (; k + LANES <= n; k += LANES) *(VEC *)(x + k) += *(const VEC *)(u + k);
    for (; k < n; k++) x[k] += u[k];
}

static TARGET void LEVEL(add_rows)(ptrdiff_t m, ptrdiff_t width, const int32_t *rows, float_table x, const float *u) {
    if (!rows && x.stride == width) {
        LEVEL(add)(m * width, x.at, u);
        return;
    }
    if (rows && width == 1) { /* the processor itself looks far enough ahead */
        for (ptrdiff_t r = 0; r < m; r++) *row_of(x, rows[r]) += u[r];
        return;
    }
    for (ptrdiff_t r = 0; r < m; r++) {
        if (rows && r + ROWS_AHEAD < m) fetch_row(x, rows[r + ROWS_AHEAD], width);
        LEVEL(add)(width, row_of(x, rows ? rows[r] : r), u + r * width);
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
