/* Optimiser steps: gradient g -> what is added to the parameters, and its split; included by each_level.h.
 *
 * State is changed in place. g may be out itself, hence explicit vectors and no restrict. Partial vectors use the same
 * arithmetic as whole ones, so that the memory layout of rows does not change a bit of the result. */
#include "filter_loops.h"

/* FTRL's parameter of z and the root of n: -(z - sign(z) l1) / ((beta + root) / rate + ridge), 0 where |z| <= l1. */
static ALWAYS_INLINE TARGET VEC LEVEL(ftrl_weight)(const step_rule *rule, VEC z, VEC root) {
    const INTS sign = (INTS)z & INT32_MIN;
    const VEC excess = (VEC)((INTS)z & 0x7fffffff) - rule->l1;
    const VEC shrunk = (VEC)((INTS)excess & (INTS)(excess > 0.0f));
    return (VEC)((INTS)(shrunk / ((rule->beta + root) * rule->inverse_rate + rule->ridge)) ^ sign ^ INT32_MIN);
}

static ALWAYS_INLINE TARGET VEC LEVEL(step)(const step_rule *rule, const int kind, VEC g, VEC *a, VEC *b) {
    switch (kind) {
    case STEP_MOMENTUM: /* a = momentum * a + g;  u = -rate * a */
        *a = rule->momentum * *a + g;
        return -rule->rate * *a;
    case STEP_NESTEROV: /* the same;  u = -rate * (g + momentum * a) */
        *a = rule->momentum * *a + g;
        return -rule->rate * (g + rule->momentum * *a);
    case STEP_ADAM: /* a = b1*a + (1-b1)*g;  b = b2*b + (1-b2)*g*g;  u = -rate * a / (sqrt(b) * rooted + eps) */
        *a = rule->b1 * *a + rule->c1 * g;
        *b = rule->b2 * *b + rule->c2 * (g * g);
        return -rule->rate * (*a / (ROOT(*b) * rule->rooted + rule->eps));
    case STEP_ADAGRAD: /* a = a + g*g;  u = -rate * g / (sqrt(a) + eps) */
        *a = *a + g * g;
        return -rule->rate * (g / (ROOT(*a) + rule->eps));
    case STEP_FTRL: { /* w = w(a, b);  a += g - (sqrt(b + g*g) - sqrt(b)) / rate * w;  b += g*g;  u = w(a, b) - w */
        const VEC root = ROOT(*b), before = LEVEL(ftrl_weight)(rule, *a, root);
        *b = *b + g * g;
        const VEC grown = ROOT(*b);
        *a = *a + (g - (grown - root) * rule->inverse_rate * before);
        return rule->rate * (LEVEL(ftrl_weight)(rule, *a, grown) - before);
    }
    }
    return -rule->rate * g; /* STEP_SGD */
}

/* The arrays to which a split appends. */
typedef struct {
    float threshold;
    uint32_t *positions;
    float *values;
    ptrdiff_t count;
    int moves;
} LEVEL(sink);

/* Step and split of the touched floats among n that are contiguous in every array; no split if residual is NULL. */
static ALWAYS_INLINE TARGET void LEVEL(step_vector)(
    const step_rule *rule, const int kind, ptrdiff_t n, INTS touched, const float *g, float *a, float *b, float *out,
    float *x, float *residual, uint32_t base, LEVEL(sink) *to) {
    const int has_a = kind > STEP_SGD, has_b = kind == STEP_ADAM || kind == STEP_FTRL;
    VEC first = {0}, second = {0}, u;
    if (has_a) first = LEVEL(load)(a, n);
    if (has_b) second = LEVEL(load)(b, n);
    const VEC old_first = first, old_second = second;
    if (kind == STEP_NONE) {
        u = LEVEL(load)(out, n);
    } else {
        u = LEVEL(step)(rule, kind, LEVEL(load)(g, n), &first, &second);
        if (residual) ROUNDED(u);
        if (!residual || !to->moves) LEVEL(store)(out, n, u);
    }
    if (has_a) LEVEL(store)(a, n, LEVEL(where)(touched, first, old_first));
    if (has_b) LEVEL(store)(b, n, LEVEL(where)(touched, second, old_second));
    if (residual) {
        const VEC before = LEVEL(load)(x, n);
        to->count =
            LEVEL(split)(u, n, touched, x, residual, to->threshold, base, to->positions, to->values, to->count);
        if (to->moves) LEVEL(store)(x, n, LEVEL(where)(touched, before + u, before));
    }
}

static ALWAYS_INLINE TARGET void LEVEL(step_flat)(
    const step_rule *rule, const int kind, ptrdiff_t n, const float *g, float *a, float *b, float *out, float *x,
    float *residual, uint32_t base, LEVEL(sink) *to) {
    ptrdiff_t k = 0;
    if (residual) {
        for (; k + LANES <= n; k += LANES)
            LEVEL(step_vector)(
                rule, kind, LANES, EVERY_LANE, g + k, a + k, b + k, out + k, x + k, residual + k, base + (uint32_t)k,
                to);
        if (k < n)
            LEVEL(step_vector)(
                rule, kind, n - k, EVERY_LANE, g + k, a + k, b + k, out + k, x + k, residual + k, base + (uint32_t)k,
                to);
    } else {
        for (; k + LANES <= n; k += LANES)
            LEVEL(step_vector)(rule, kind, LANES, EVERY_LANE, g + k, a + k, b + k, out + k, x, NULL, 0, to);
        if (k < n) LEVEL(step_vector)(rule, kind, n - k, EVERY_LANE, g + k, a + k, b + k, out + k, x, NULL, 0, to);
    }
}

/* Writes to out (size rows) the gradient of the rows from `start` on, 0 for rows that are not touched. Returns the
 * first touched row after them. */
static NEVER_INLINE TARGET ptrdiff_t LEVEL(spread)(
    const update_pass *pass, ptrdiff_t start, ptrdiff_t size, ptrdiff_t touched, float *out) {
    const ptrdiff_t width = pass->width, m = pass->m, end = start + size;
    const int32_t *rows = pass->rows;
    const float *g = pass->grad;
    memset(out, 0, sizeof(float) * size * width);
    if (width == 1)
        for (; touched < m && rows[touched] < end; touched++) out[rows[touched] - start] = g[touched];
    else
        for (; touched < m && rows[touched] < end; touched++)
            memcpy(out + (rows[touched] - start) * width, g + touched * width, sizeof(float) * width);
    return touched;
}

/* The gradient, with the penalty, of the processed rows from `start` on: grad itself, or computed in `out`. `next` is
 * the first touched row that is not processed yet. */
static NEVER_INLINE TARGET const float *LEVEL(slope)(
    const update_pass *pass, ptrdiff_t start, ptrdiff_t size, ptrdiff_t *next, float *out) {
    const ptrdiff_t width = pass->width;
    const int32_t *ids = pass->walks_all ? NULL : pass->rows;
    if (pass->rule.kind == STEP_NONE) return out;
    if (pass->walks_all && pass->m < pass->n_rows)
        *next = LEVEL(spread)(pass, start, size, *next, out);
    else if (pass->l2 == 0.0f)
        return pass->grad + start * width;
    else
        memmove(out, pass->grad + start * width, sizeof(float) * size * width);
    if (pass->l2 == 0.0f) return out;
    for (ptrdiff_t r = 0; r < size; r++) {
        const ptrdiff_t row = ids ? ids[start + r] : start + r;
        if (row >= pass->l2_rows) break; /* rows are ascending */
        const float *x = row_of(pass->params, row);
        for (ptrdiff_t c = 0; c < width; c++) out[r * width + c] += pass->l2 * x[c];
    }
    return out;
}

static ALWAYS_INLINE TARGET LEVEL(sink) LEVEL(sink_of)(const update_pass *pass) {
    return (LEVEL(sink)){pass->threshold, pass->positions, pass->values, pass->count, pass->moves};
}

/* All rows of a walk, one after the other. */
static ALWAYS_INLINE TARGET void LEVEL(step_rows)(
    update_pass *pass, const int kind, const row_walk *walk, const float *g, float *out) {
    const step_rule rule = pass->rule;
    const ptrdiff_t width = pass->width, n = walk->n, size = walk->size, left = walk->left, from = walk->from;
    const int32_t *ids = walk->ids;
    const float_table params = walk->params, first = walk->first, second = walk->second, residual = walk->residual;
    LEVEL(sink) to = LEVEL(sink_of)(pass);
    for (ptrdiff_t r = 0; r < size; r++, g += n, out += n) {
        if (ids && r + ROWS_AHEAD < left) {
            const ptrdiff_t ahead = ids[r + ROWS_AHEAD];
            fetch_row(first, ahead, n);
            fetch_row(second, ahead, n);
            fetch_row(residual, ahead, n);
            if (residual.at) fetch_row(params, ahead, n);
        }
        const ptrdiff_t row = ids ? ids[r] : from + r;
        LEVEL(step_flat)(
            &rule, kind, n, g, row_of(first, row), row_of(second, row), out, row_of(params, row),
            residual.at ? row_of(residual, row) : NULL, (uint32_t)(row * width), &to);
    }
    pass->count = to.count;
}

/* Touched rows of width 1 that are not far apart: every row on the way goes through the vectors, and those that are not
 * touched stay as they are. */
static ALWAYS_INLINE TARGET void LEVEL(step_among)(
    update_pass *pass, const int kind, ptrdiff_t start, ptrdiff_t size, const float *g, float *out) {
    const step_rule rule = pass->rule;
    LEVEL(sink) to = LEVEL(sink_of)(pass);
    float slope[STEP_BLOCK], u[STEP_BLOCK];
    int32_t touched[STEP_BLOCK];
    const int32_t *ids = pass->rows + start;
    const int splits = pass->residual.at != NULL;
    for (ptrdiff_t r = 0; r < size;) {
        const ptrdiff_t base = ids[r], end = pass->n_rows - base < STEP_BLOCK ? pass->n_rows : base + STEP_BLOCK;
        const ptrdiff_t first = r;
        memset(slope, 0, sizeof slope);
        memset(touched, 0, sizeof touched);
        for (; r < size && ids[r] < end; r++) {
            slope[ids[r] - base] = g[r];
            touched[ids[r] - base] = -1;
        }
        const ptrdiff_t n = ids[r - 1] + 1 - base;
        float *a = pass->first.at + base, *b = pass->second.at + base, *x = pass->params.at + base;
        float *residual = splits ? pass->residual.at + base : NULL;
        for (ptrdiff_t k = 0; k < n; k += LANES)
            LEVEL(step_vector)(
                &rule, kind, n - k < LANES ? n - k : LANES, *(const INTS *)(touched + k), slope + k, a + k, b + k, u + k,
                x + k, splits ? residual + k : NULL, (uint32_t)(base + k), &to);
        if (!splits || !to.moves)
            for (ptrdiff_t j = first; j < r; j++) out[j] = u[ids[j] - base];
    }
    pass->count = to.count;
}

/* Whether the rows from `start` on are walked so. */
static ALWAYS_INLINE TARGET int LEVEL(is_among)(const update_pass *pass, ptrdiff_t start, ptrdiff_t size) {
    return !pass->walks_all && pass->width == 1 && pass->first.stride == 1 &&
           pass->second.stride == 1 && pass->params.stride == 1 && pass->residual.stride == 1 &&
           pass->rows[start + size - 1] - pass->rows[start] < STEP_AMONG * size;
}

/* The two of them for each rule, in functions of their own: they take less time to compile, and have all registers. */
#define RULE(name, kind)                                                                                         \
    static NEVER_INLINE TARGET void LEVEL(rows_##name)(                                                          \
        update_pass *pass, const row_walk *walk, const float *g, float *out) {                                   \
        LEVEL(step_rows)(pass, kind, walk, g, out);                                                              \
    }                                                                                                            \
    static NEVER_INLINE TARGET void LEVEL(among_##name)(                                                         \
        update_pass *pass, ptrdiff_t start, ptrdiff_t size, const float *g, float *out) {                        \
        LEVEL(step_among)(pass, kind, start, size, g, out);                                                      \
    }
RULE(sgd, STEP_SGD)
RULE(momentum, STEP_MOMENTUM)
RULE(nesterov, STEP_NESTEROV)
RULE(adam, STEP_ADAM)
RULE(adagrad, STEP_ADAGRAD)
RULE(ftrl, STEP_FTRL)
#undef RULE

static NEVER_INLINE TARGET void LEVEL(rows_none)(
    update_pass *pass, const row_walk *walk, const float *g, float *out) {
    LEVEL(step_rows)(pass, STEP_NONE, walk, g, out);
}

static TARGET void LEVEL(run_pass)(update_pass *pass) {
    static const struct {
        void (*rows)(update_pass *, const row_walk *, const float *, float *);
        void (*among)(update_pass *, ptrdiff_t, ptrdiff_t, const float *, float *);
    } steps[] = {
        [STEP_NONE] = {LEVEL(rows_none), NULL},
        [STEP_SGD] = {LEVEL(rows_sgd), LEVEL(among_sgd)},
        [STEP_MOMENTUM] = {LEVEL(rows_momentum), LEVEL(among_momentum)},
        [STEP_NESTEROV] = {LEVEL(rows_nesterov), LEVEL(among_nesterov)},
        [STEP_ADAM] = {LEVEL(rows_adam), LEVEL(among_adam)},
        [STEP_ADAGRAD] = {LEVEL(rows_adagrad), LEVEL(among_adagrad)},
        [STEP_FTRL] = {LEVEL(rows_ftrl), LEVEL(among_ftrl)},
    };
    const int kind = pass->rule.kind;
    const ptrdiff_t width = pass->width, walked = pass->walks_all ? pass->n_rows : pass->m;
    const int32_t *rows = pass->walks_all ? NULL : pass->rows;
    const int splits = pass->residual.at != NULL;
    const int is_flat = (!splits && !pass->first.at) ||
                        (pass->walks_all && (!pass->first.at || pass->first.stride == width) &&
                         (!pass->second.at || pass->second.stride == width) &&
                         (!splits || (pass->residual.stride == width && pass->params.stride == width)));
    const int is_gathered = !is_flat && width < STEP_NARROW;
    const int is_made = (pass->walks_all && pass->m < pass->n_rows) || pass->l2 != 0.0f; /* the gradient; see slope */
    const ptrdiff_t floats = is_flat ? STEP_FLAT : STEP_BLOCK;
    const ptrdiff_t most = is_flat && !is_made ? walked : width < floats ? floats / width : 1;
    const row_walk tables = {0, 0, 0, 0, NULL, pass->params, pass->first, pass->second, pass->residual};
    row_walk walk = tables;
    row_block block;
    if (is_gathered) {
        if (walk.first.at) walk.first.at = block.a;
        if (walk.second.at) walk.second.at = block.b;
        if (splits) walk.params.at = block.x, walk.residual.at = block.held;
    }
    ptrdiff_t next = 0;
    pass->count = 0;
    for (ptrdiff_t start = 0; start < walked; start += most) {
        const ptrdiff_t size = walked - start < most ? walked - start : most, before = pass->count;
        const int32_t *ids = rows ? rows + start : NULL;
        float *out = pass->out + start * width;
        const float *g = LEVEL(slope)(pass, start, size, &next, out);
        if (kind > STEP_NONE && !is_flat && LEVEL(is_among)(pass, start, size)) {
            steps[kind].among(pass, start, size, g, out);
            continue;
        }
        if (is_flat || is_gathered) /* side by side: as one row */
            walk.n = size * width, walk.size = 1, walk.from = is_flat ? start : 0;
        else
            walk.n = width, walk.size = size, walk.from = start, walk.left = walked - start, walk.ids = ids;
        if (is_gathered) gather(&tables, ids, start, size, width, &block);
        steps[kind].rows(pass, &walk, g, out);
        if (is_gathered) {
            scatter(&block, ids, start, size, width, pass->moves, &tables);
            place(pass->positions + before, pass->count - before, ids, start, (uint32_t)width);
        }
    }
}
