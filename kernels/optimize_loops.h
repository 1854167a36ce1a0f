/* Optimiser steps over n floats: gradient g -> what is added to the parameters; included by each_level.h.
 *
 * State is changed in place; g may be out itself, hence vectors by hand and no restrict. */

static inline TARGET void LEVEL(step)(
    const optimiser_step *o, ptrdiff_t n, const float *g, float *a, float *b, float *out) {
    const float rate = o->rate;
    ptrdiff_t k = 0;
    switch (o->kind) {
    case STEP_SGD: /* u = -rate * g */
        for (; k + LANES <= n; k += LANES) *(VEC *)(out + k) = -rate * *(const VEC *)(g + k);
        for (; k < n; k++) out[k] = -rate * g[k];
        break;
    case STEP_MOMENTUM: { /* a = momentum * a + g;  u = -rate * a */
        const float momentum = o->momentum;
        for (; k + LANES <= n; k += LANES) {
            const VEC v = momentum * *(const VEC *)(a + k) + *(const VEC *)(g + k);
            *(VEC *)(a + k) = v;
            *(VEC *)(out + k) = -rate * v;
        }
        for (; k < n; k++) {
            a[k] = momentum * a[k] + g[k];
            out[k] = -rate * a[k];
        }
        break;
    }
    case STEP_NESTEROV: { /* a = momentum * a + g;  u = -rate * (g + momentum * a) */
        const float momentum = o->momentum;
        for (; k + LANES <= n; k += LANES) {
            const VEC slope = *(const VEC *)(g + k);
            const VEC v = momentum * *(const VEC *)(a + k) + slope;
            *(VEC *)(a + k) = v;
            *(VEC *)(out + k) = -rate * (slope + momentum * v);
        }
        for (; k < n; k++) {
            const float slope = g[k];
            a[k] = momentum * a[k] + slope;
            out[k] = -rate * (slope + momentum * a[k]);
        }
        break;
    }
    case STEP_ADAM: { /* a = b1*a + (1-b1)*g;  b = b2*b + (1-b2)*g*g;  u = -rate * a / (sqrt(b) * rooted + eps) */
        const float b1 = o->b1, b2 = o->b2, c1 = o->c1, c2 = o->c2, rooted = o->rooted, eps = o->eps;
        for (; k + LANES <= n; k += LANES) {
            const VEC slope = *(const VEC *)(g + k);
            const VEC first = b1 * *(const VEC *)(a + k) + c1 * slope;
            const VEC second = b2 * *(const VEC *)(b + k) + c2 * (slope * slope);
            *(VEC *)(a + k) = first;
            *(VEC *)(b + k) = second;
            *(VEC *)(out + k) = -rate * (first / (ROOT(second) * rooted + eps));
        }
        for (; k < n; k++) {
            const float slope = g[k];
            a[k] = b1 * a[k] + c1 * slope;
            b[k] = b2 * b[k] + c2 * (slope * slope);
            out[k] = -rate * (a[k] / (sqrtf(b[k]) * rooted + eps));
        }
        break;
    }
    case STEP_ADAGRAD: { /* a = a + g*g;  u = -rate * g / (sqrt(a) + eps) */
        const float eps = o->eps;
        for (; k + LANES <= n; k += LANES) {
            const VEC slope = *(const VEC *)(g + k);
            const VEC sum = *(const VEC *)(a + k) + slope * slope;
            *(VEC *)(a + k) = sum;
            *(VEC *)(out + k) = -rate * (slope / (ROOT(sum) + eps));
        }
        for (; k < n; k++) {
            const float slope = g[k];
            a[k] += slope * slope;
            out[k] = -rate * (slope / (sqrtf(a[k]) + eps));
        }
        break;
    }
    }
}

/* The same for the rows of a touched minibatch: state (n_rows, width), g and out (m, width). Narrow rows are gathered a
 * block at a time, so that a width of 1 is as quick as any. */
static TARGET void LEVEL(step_rows)(
    const optimiser_step *o, ptrdiff_t m, ptrdiff_t width, const int32_t *rows, const float *g, float *a, float *b,
    float *out) {
    if (o->kind == STEP_SGD) {
        LEVEL(step)(o, m * width, g, a, b, out);
        return;
    }
    if (width >= STEP_NARROW) {
        for (ptrdiff_t r = 0; r < m; r++) {
            const size_t at = (size_t)rows[r] * width;
            LEVEL(step)(o, width, g + r * width, a + at, b ? b + at : b, out + r * width);
        }
        return;
    }
    float block_a[STEP_BLOCK], block_b[STEP_BLOCK];
    const ptrdiff_t most = STEP_BLOCK / width;
    for (ptrdiff_t start = 0; start < m; start += most) {
        const ptrdiff_t size = m - start < most ? m - start : most;
        for (ptrdiff_t r = 0; r < size; r++)
            for (ptrdiff_t c = 0; c < width; c++) {
                const size_t at = (size_t)rows[start + r] * width + c;
                block_a[r * width + c] = a[at];
                if (b) block_b[r * width + c] = b[at];
            }
        LEVEL(step)(o, size * width, g + start * width, block_a, block_b, out + start * width);
        for (ptrdiff_t r = 0; r < size; r++)
            for (ptrdiff_t c = 0; c < width; c++) {
                const size_t at = (size_t)rows[start + r] * width + c;
                a[at] = block_a[r * width + c];
                if (b) b[at] = block_b[r * width + c];
            }
    }
}
