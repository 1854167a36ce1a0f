/* Which rows of which tables a step goes through, and narrow rows gathered from them; for every instruction set. */
#ifndef MLLESS_ROW_WALK_H
#define MLLESS_ROW_WALK_H

#include <stdint.h>

#include "tables.h"

/* Steps of `n` floats that lie side by side in every table; ids NULL: the rows from `from` on. */
typedef struct {
    ptrdiff_t n, size, from, left; /* left: ids there are, which a step may ask for in advance */
    const int32_t *ids;
    float_table params, first, second, residual;
} row_walk;

/* Rows gathered from all tables that a step reads; spaced, since addresses 4 KiB apart are taken for the same. */
typedef struct {
    float x[STEP_BLOCK + 16], a[STEP_BLOCK + 16], b[STEP_BLOCK + 16], held[STEP_BLOCK];
} row_block;

static inline void gather_table(
    float_table table, const int32_t *ids, ptrdiff_t start, ptrdiff_t size, ptrdiff_t width,
    float *restrict block) {
    if (!table.at) return;
    for (ptrdiff_t r = 0; r < size; r++) {
        const float *from = row_of(table, ids ? ids[r] : start + r);
        for (ptrdiff_t c = 0; c < width; c++) block[r * width + c] = from[c];
    }
}

static inline void scatter_table(
    const float *restrict block, const int32_t *ids, ptrdiff_t start, ptrdiff_t size, ptrdiff_t width, float_table table) {
    if (!table.at) return;
    for (ptrdiff_t r = 0; r < size; r++) {
        float *to = row_of(table, ids ? ids[r] : start + r);
        for (ptrdiff_t c = 0; c < width; c++) to[c] = block[r * width + c];
    }
}

/* Rows of width 1: all tables in one loop, whose parts are known when it is compiled: twice as quick as one table after
 * the other. */
static ALWAYS_INLINE void gather_single(
    const row_walk *tables, const int32_t *ids, ptrdiff_t size, int has_a, int has_b, int splits,
    row_block *restrict block) {
    const float_table first = tables->first, second = tables->second, params = tables->params;
    const float_table residual = tables->residual;
    for (ptrdiff_t r = 0; r < size; r++) {
        if (has_a) block->a[r] = *row_of(first, ids[r]);
        if (has_b) block->b[r] = *row_of(second, ids[r]);
        if (splits) block->x[r] = *row_of(params, ids[r]);
        if (splits) block->held[r] = *row_of(residual, ids[r]);
    }
}

static ALWAYS_INLINE void scatter_single(
    const row_block *restrict block, const int32_t *ids, ptrdiff_t size, int has_a, int has_b, int splits, int moves,
    const row_walk *tables) {
    const float_table first = tables->first, second = tables->second, params = tables->params;
    const float_table residual = tables->residual;
    for (ptrdiff_t r = 0; r < size; r++) {
        if (has_a) *row_of(first, ids[r]) = block->a[r];
        if (has_b) *row_of(second, ids[r]) = block->b[r];
        if (moves) *row_of(params, ids[r]) = block->x[r];
        if (splits) *row_of(residual, ids[r]) = block->held[r];
    }
}

/* CALL(has_a, has_b) with constants. */
#define BY_STATE(tables, CALL) \
    do {                       \
        if (tables->second.at) \
            CALL(1, 1);        \
        else if (tables->first.at) \
            CALL(1, 0);        \
        else                   \
            CALL(0, 0);        \
    } while (0)

/* Rows ids[0..size], or (ids NULL) from `start` on; size * width <= STEP_BLOCK. */
static NEVER_INLINE void gather(
    const row_walk *tables, const int32_t *ids, ptrdiff_t start, ptrdiff_t size, ptrdiff_t width, row_block *block) {
    const int splits = tables->residual.at != NULL;
    if (width == 1 && ids) {
#define GATHER_SPLIT(has_a, has_b) gather_single(tables, ids, size, has_a, has_b, 1, block)
#define GATHER(has_a, has_b) gather_single(tables, ids, size, has_a, has_b, 0, block)
        if (splits)
            BY_STATE(tables, GATHER_SPLIT);
        else
            BY_STATE(tables, GATHER);
#undef GATHER_SPLIT
#undef GATHER
        return;
    }
    gather_table(tables->first, ids, start, size, width, block->a);
    gather_table(tables->second, ids, start, size, width, block->b);
    if (splits) gather_table(tables->params, ids, start, size, width, block->x);
    gather_table(tables->residual, ids, start, size, width, block->held);
}

/* Puts gathered rows back; params where the step `moves` them. */
static NEVER_INLINE void scatter(
    const row_block *block, const int32_t *ids, ptrdiff_t start, ptrdiff_t size, ptrdiff_t width, int moves,
    const row_walk *tables) {
    const int splits = tables->residual.at != NULL;
    if (width == 1 && ids) {
#define SCATTER_MOVED(has_a, has_b) scatter_single(block, ids, size, has_a, has_b, 1, 1, tables)
#define SCATTER_SPLIT(has_a, has_b) scatter_single(block, ids, size, has_a, has_b, 1, 0, tables)
#define SCATTER(has_a, has_b) scatter_single(block, ids, size, has_a, has_b, 0, 0, tables)
        if (splits && moves)
            BY_STATE(tables, SCATTER_MOVED);
        else if (splits)
            BY_STATE(tables, SCATTER_SPLIT);
        else
            BY_STATE(tables, SCATTER);
#undef SCATTER_MOVED
#undef SCATTER_SPLIT
#undef SCATTER
        return;
    }
    scatter_table(block->a, ids, start, size, width, tables->first);
    scatter_table(block->b, ids, start, size, width, tables->second);
    scatter_table(block->held, ids, start, size, width, tables->residual);
    if (splits && moves) scatter_table(block->x, ids, start, size, width, tables->params);
}

/* From places in a block of gathered rows to places in the table, in place. */
static NEVER_INLINE void place(
    uint32_t *positions, ptrdiff_t n, const int32_t *ids, ptrdiff_t start, uint32_t width) {
    for (ptrdiff_t k = 0; k < n; k++) {
        const uint32_t r = positions[k] / width, row = (uint32_t)(ids ? ids[r] : start + r);
        positions[k] = row * width + (positions[k] - r * width);
    }
}

#endif
