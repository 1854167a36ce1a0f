/* Optimiser steps; the loops are in optimize_loops.h, each compiled for several instruction sets. */
#ifndef MLLESS_OPTIMIZE_H
#define MLLESS_OPTIMIZE_H

enum { STEP_SGD, STEP_MOMENTUM, STEP_NESTEROV, STEP_ADAM, STEP_ADAGRAD };
#define STEP_NARROW 8  /* rows narrower than this are gathered */
#define STEP_BLOCK 512 /* floats gathered at a time */

typedef struct {
    int kind;
    float rate, momentum, b1, b2, c1, c2, rooted, eps; /* c = 1 - b; rooted = 1 / sqrt(1 - b2**t) */
} optimiser_step;

#define LOOPS "optimize_loops.h"
#include "each_level.h"

static void step_flat(const optimiser_step *o, ptrdiff_t n, const float *g, float *a, float *b, float *out) {
    DISPATCH(step, (o, n, g, a, b, out));
}

static void step_rows(
    const optimiser_step *o, ptrdiff_t m, ptrdiff_t width, const int32_t *rows, const float *g, float *a, float *b,
    float *out) {
    DISPATCH(step_rows, (o, m, width, rows, g, a, b, out));
}

#endif
