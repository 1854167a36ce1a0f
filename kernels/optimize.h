/* Optimiser steps and the significance split of their updates, in one pass over the rows; the loops are in
 * optimize_loops.h, each compiled for several instruction sets. */
#ifndef MLLESS_OPTIMIZE_H
#define MLLESS_OPTIMIZE_H

#include <stdint.h>

#include "levels.h"
#include "tables.h"

enum { STEP_NONE, STEP_SGD, STEP_MOMENTUM, STEP_NESTEROV, STEP_ADAM, STEP_ADAGRAD, STEP_FTRL };
#define SPLIT_SLACK 16  /* whole vectors of entries are written even if fewer count */
#define STEP_NARROW 8   /* rows narrower than this are gathered */
#define STEP_AMONG 3    /* if on average at least one row in so many is touched, all rows between are processed */
#define STEP_BLOCK 512  /* floats processed at a time, so that they stay in the first-level cache */
#define STEP_FLAT 2048  /* the same of tables whose rows lie side by side, which are not copied */

typedef struct {
    int kind;
    float rate, momentum;
    float b1, b2, c1, c2, rooted, eps;  /* Adam: c = 1 - b; rooted = 1 / sqrt(1 - b2**t) */
    float inverse_rate, beta, l1, ridge; /* FTRL; its `rate` is the factor of the written update */
} step_rule;

typedef struct {
    step_rule rule;
    ptrdiff_t n_rows, width;
    ptrdiff_t m;            /* touched rows */
    const int32_t *rows;    /* (m,) */
    const float *grad;      /* (m, width) */
    int walks_all;          /* out is (n_rows, width), else (m, width) */
    float *out;             /* STEP_NONE: the update, only read */
    int moves;              /* with a split: the update is added to params, and out is not written */
    float l2;               /* of rows below l2_rows */
    ptrdiff_t l2_rows;
    float_table params, first, second, residual; /* residual.at NULL: nothing is split */
    float threshold;
    uint32_t *positions; /* room for every value of out and SPLIT_SLACK more */
    float *values;
    ptrdiff_t count; /* sent */
} update_pass;

#include "row_walk.h"
#define LOOPS "optimize_loops.h"
#include "each_level.h"

static void run_pass(update_pass *pass) { DISPATCH(run_pass, (pass)); }

static ptrdiff_t flush(
    float_table residual, ptrdiff_t n_rows, ptrdiff_t width, uint32_t *positions, float *values) {
    return DISPATCH(flush, (residual, n_rows, width, positions, values));
}

#endif
