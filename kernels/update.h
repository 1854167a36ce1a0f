/* Adding to rows, saving and restoring them; the loops are in update_loops.h. */
#include <stdint.h>

#include "tables.h"

#define LOOPS "update_loops.h"
#include "each_level.h"

static void add_rows(ptrdiff_t m, ptrdiff_t width, const int32_t *rows, float_table x, const float *u) {
    DISPATCH(add_rows, (m, width, rows, x, u));
}

static void take_rows(
    ptrdiff_t m, ptrdiff_t width, const int32_t *rows, float_table x, float_table base, float scale, float *out) {
    DISPATCH(take_rows, (m, width, rows, x, base, scale, out));
}

/* Copy each row that is not marked in this round yet, and mark it. */
static void copy_unmarked(
    ptrdiff_t m, ptrdiff_t width, const int32_t *rows, float_table x, float_table base, uint32_t *marks,
    uint32_t round) {
    for (ptrdiff_t r = 0; r < m; r++) {
        if (rows && r + ROWS_AHEAD < m) {
            fetch_row(x, rows[r + ROWS_AHEAD], width);
            fetch_row(base, rows[r + ROWS_AHEAD], width);
        }
        const ptrdiff_t row = rows ? rows[r] : r;
        if (marks[row] == round) continue;
        marks[row] = round;
        memcpy(row_of(base, row), row_of(x, row), sizeof(float) * width);
    }
}
