/* Matrix factorisation over (user, item, rating), vectors of LANES floats; included by each_level.h.
 *
 * A row of WIDTH floats is read as n_vectors vectors, the last of which ends at the row's end and so overlaps the one
 * before it: no padding, no masks. `fresh` is 1 in the lanes of the last vector that belong to no earlier one. */

static ALWAYS_INLINE TARGET float LEVEL(dot)(
    const float *p, const float *q, ptrdiff_t width, int rank) {
    VEC sum = {0};
    ptrdiff_t k = 0;
    for (; k + LANES <= rank; k += LANES) sum += *(const VEC *)(p + k) * *(const VEC *)(q + k);
    float rest = 0.0f;
    for (; k < rank; k++) rest += p[k] * q[k];
    (void)width;
    return SUM(sum) + rest;
}

static ALWAYS_INLINE TARGET double LEVEL(pmf_vectors)(
    float_table params, const int32_t *rows, ptrdiff_t width, const int32_t *user, const int32_t *item,
    const float *rating, ptrdiff_t n, float mean, float l2, float share, int biases, float *grad, const int n_vectors) {
    VEC fresh = {0}, is_bias = {0}, is_factor;
    const ptrdiff_t tail = width - LANES; /* where the last vector starts */
    for (int k = 0; k < LANES; k++) fresh[k] = tail + k >= (n_vectors - 1) * LANES;
    if (biases) is_bias[LANES - 1] = 1.0f;
    is_factor = 1.0f - is_bias;

    VEC p[8], product[8], q[8], grad_user[8]; /* product: p, made ready for the dot product and the item's gradient */
    VEC fresh_product = {0};
    const float_table gradients = {grad, width};
    double squared = 0.0;
    float base = 0.0f;
    ptrdiff_t k = 0;
    while (k < n) {
        const int32_t u = user[k];
        const float *p_u = row_of(params, rows[u]);
        float *g_u = grad + (size_t)u * width;
        for (int j = 0; j < n_vectors; j++) {
            const ptrdiff_t at = j == n_vectors - 1 ? tail : j * LANES;
            p[j] = product[j] = *(const VEC *)(p_u + at);
            grad_user[j] = *(const VEC *)(g_u + at);
        }
        /* With a 1 in place of the user's bias, p.q includes the item's bias, and e*p its gradient. */
        product[n_vectors - 1] = p[n_vectors - 1] * is_factor + is_bias;
        fresh_product = product[n_vectors - 1] * fresh;
        base = mean + (biases ? p_u[width - 1] : 0.0f);
        const ptrdiff_t first = k;
        do {
            const float *q_i = row_of(params, rows[item[k]]);
            float *g_i = grad + (size_t)item[k] * width;
            if (k + ROWS_AHEAD < n) {
                const int32_t i_ahead = item[k + ROWS_AHEAD], u_ahead = user[k + ROWS_AHEAD];
                fetch_row(params, rows[i_ahead], width);
                fetch_row(gradients, i_ahead, width);
                if (u_ahead != u) fetch_row(params, rows[u_ahead], width);
            }
            VEC sum = {0};
            for (int j = 0; j < n_vectors; j++) {
                const ptrdiff_t at = j == n_vectors - 1 ? tail : j * LANES;
                q[j] = *(const VEC *)(q_i + at);
                sum += (j == n_vectors - 1 ? fresh_product : product[j]) * q[j];
            }
            const float error = rating[k] - base - SUM(sum);
            squared += (double)error * error;
            const float slope = -error * share;
            VEC grad_item[8];
            for (int j = 0; j < n_vectors; j++) { /* all loads before the stores, as the last two vectors overlap */
                const ptrdiff_t at = j == n_vectors - 1 ? tail : j * LANES;
                grad_item[j] = *(const VEC *)(g_i + at) + slope * product[j] + l2 * q[j];
            }
            for (int j = 0; j < n_vectors; j++) {
                const ptrdiff_t at = j == n_vectors - 1 ? tail : j * LANES;
                *(VEC *)(g_i + at) = grad_item[j];
                if (j == n_vectors - 1) q[j] = q[j] * is_factor + is_bias;
                grad_user[j] += slope * q[j];
            }
            k++;
        } while (k < n && user[k] == u);
        const float decay = l2 * (float)(k - first);
        for (int j = 0; j < n_vectors; j++) {
            const ptrdiff_t at = j == n_vectors - 1 ? tail : j * LANES;
            *(VEC *)(g_u + at) = grad_user[j] + decay * p[j];
        }
    }
    return squared;
}

/* Any width: too narrow for a vector, or too wide for the registers. */
static TARGET double LEVEL(pmf_any)(
    float_table params, const int32_t *rows, ptrdiff_t width, const int32_t *user, const int32_t *item,
    const float *rating, ptrdiff_t n, float mean, float l2, float share, int biases, float *grad) {
    const int rank = (int)width - biases;
    double squared = 0.0;
    for (ptrdiff_t k = 0; k < n; k++) {
        const float *restrict p = row_of(params, rows[user[k]]);
        const float *restrict q = row_of(params, rows[item[k]]);
        float *restrict g_u = grad + (size_t)user[k] * width;
        float *restrict g_i = grad + (size_t)item[k] * width;
        float error = rating[k] - mean - LEVEL(dot)(p, q, width, rank);
        if (biases) error -= p[rank] + q[rank];
        squared += (double)error * error;
        const float slope = -error * share;
        for (int c = 0; c < rank; c++) {
            g_u[c] += slope * q[c] + l2 * p[c];
            g_i[c] += slope * p[c] + l2 * q[c];
        }
        if (biases) {
            g_u[rank] += slope + l2 * p[rank];
            g_i[rank] += slope + l2 * q[rank];
        }
    }
    return squared;
}

#define WITH(count)                                                                                              \
    case count:                                                                                                  \
        return LEVEL(pmf_vectors)(params, rows, width, user, item, rating, n, mean, l2, share, biases, grad, count)

/* grad (m, width) must be 0; share = 1/divisor, l2 already divided. Returns the sum of squared errors. */
static TARGET double LEVEL(pmf)(
    float_table params, const int32_t *rows, ptrdiff_t width, const int32_t *user, const int32_t *item,
    const float *rating, ptrdiff_t n, float mean, float l2, float share, int biases, float *grad) {
    switch (width < LANES ? 0 : (width + LANES - 1) / LANES) {
        WITH(1);
        WITH(2);
        WITH(3);
        WITH(4);
        WITH(5);
        WITH(6);
    }
    return LEVEL(pmf_any)(params, rows, width, user, item, rating, n, mean, l2, share, biases, grad);
}
#undef WITH

/* One step per rating, in the order given: e = rating - prediction; p += rate * (e*q - l2*p), q likewise with the old
 * p. A user's row stays in registers during its ratings. */
static ALWAYS_INLINE TARGET double LEVEL(sgd_vectors)(
    float_table params, const int32_t *rows, ptrdiff_t width, const int32_t *user, const int32_t *item,
    const float *rating, ptrdiff_t n, float mean, float l2, float rate, int biases, const int n_vectors) {
    VEC fresh = {0}, is_bias = {0}, is_factor;
    const ptrdiff_t tail = width - LANES;
    for (int k = 0; k < LANES; k++) fresh[k] = tail + k >= (n_vectors - 1) * LANES;
    if (biases) is_bias[LANES - 1] = 1.0f;
    is_factor = 1.0f - is_bias;

    const float kept = 1.0f - rate * l2;
    VEC p[8], q[8], product[8];
    double squared = 0.0;
    ptrdiff_t k = 0;
    while (k < n) {
        const int32_t u = user[k];
        float *p_u = row_of(params, rows[u]);
        for (int j = 0; j < n_vectors; j++) p[j] = *(const VEC *)(p_u + (j == n_vectors - 1 ? tail : j * LANES));
        do {
            float *q_i = row_of(params, rows[item[k]]);
            if (k + ROWS_AHEAD < n) {
                fetch_row(params, rows[item[k + ROWS_AHEAD]], width);
                if (user[k + ROWS_AHEAD] != u) fetch_row(params, rows[user[k + ROWS_AHEAD]], width);
            }
            VEC sum = p[n_vectors - 1] * is_bias; /* the user's bias; the item's is multiplied by the 1 in product */
            for (int j = 0; j < n_vectors; j++) {
                const int is_last = j == n_vectors - 1;
                q[j] = *(const VEC *)(q_i + (is_last ? tail : j * LANES));
                product[j] = p[j];
                if (is_last) product[j] = p[j] * is_factor + is_bias;
                sum += is_last ? product[j] * fresh * q[j] : product[j] * q[j];
            }
            const float error = rating[k] - mean - SUM(sum);
            squared += (double)error * error;
            const float move = rate * error;
            for (int j = 0; j < n_vectors; j++) {
                const int is_last = j == n_vectors - 1;
                *(VEC *)(q_i + (is_last ? tail : j * LANES)) = kept * q[j] + move * product[j];
                if (is_last) q[j] = q[j] * is_factor + is_bias;
                p[j] = kept * p[j] + move * q[j];
            }
            k++;
        } while (k < n && user[k] == u);
        for (int j = 0; j < n_vectors; j++) *(VEC *)(p_u + (j == n_vectors - 1 ? tail : j * LANES)) = p[j];
    }
    return squared;
}

static TARGET double LEVEL(sgd_any)(
    float_table params, const int32_t *rows, ptrdiff_t width, const int32_t *user, const int32_t *item,
    const float *rating, ptrdiff_t n, float mean, float l2, float rate, int biases) {
    const int rank = (int)width - biases;
    const float kept = 1.0f - rate * l2;
    double squared = 0.0;
    for (ptrdiff_t k = 0; k < n; k++) {
        float *restrict p = row_of(params, rows[user[k]]);
        float *restrict q = row_of(params, rows[item[k]]);
        float error = rating[k] - mean - LEVEL(dot)(p, q, width, rank);
        if (biases) error -= p[rank] + q[rank];
        squared += (double)error * error;
        const float move = rate * error;
        for (int c = 0; c < rank; c++) {
            const float before = p[c];
            p[c] = kept * before + move * q[c];
            q[c] = kept * q[c] + move * before;
        }
        if (biases) {
            p[rank] = kept * p[rank] + move;
            q[rank] = kept * q[rank] + move;
        }
    }
    return squared;
}

#define WITH(count)                                                                                                  \
    case count:                                                                                                      \
        return LEVEL(sgd_vectors)(params, rows, width, user, item, rating, n, mean, l2, rate, biases, count)

static TARGET double LEVEL(pmf_sgd)(
    float_table params, const int32_t *rows, ptrdiff_t width, const int32_t *user, const int32_t *item,
    const float *rating, ptrdiff_t n, float mean, float l2, float rate, int biases) {
    switch (width < LANES ? 0 : (width + LANES - 1) / LANES) {
        WITH(1);
        WITH(2);
        WITH(3);
        WITH(4);
        WITH(5);
        WITH(6);
    }
    return LEVEL(sgd_any)(params, rows, width, user, item, rating, n, mean, l2, rate, biases);
}
#undef WITH

/* Predictions for rows (rows[user], rows[item]), or (user, item) if rows is NULL; returns the sum of squares of
 * rating - prediction if there are ratings. */
static TARGET double LEVEL(pmf_scores)(
    float_table params, const int32_t *rows, ptrdiff_t width, const int32_t *user, const int32_t *item,
    const float *rating, ptrdiff_t n, float mean, int biases, float *out) {
    const int rank = (int)width - biases;
    double squared = 0.0;
    for (ptrdiff_t k = 0; k < n; k++) {
        if (k + ROWS_AHEAD < n) {
            const int32_t u = user[k + ROWS_AHEAD], i = item[k + ROWS_AHEAD];
            if (u != user[k]) fetch_row(params, rows ? rows[u] : u, width);
            fetch_row(params, rows ? rows[i] : i, width);
        }
        const float *p = row_of(params, rows ? rows[user[k]] : user[k]);
        const float *q = row_of(params, rows ? rows[item[k]] : item[k]);
        float score = mean + LEVEL(dot)(p, q, width, rank);
        if (biases) score += p[rank] + q[rank];
        if (out) out[k] = score;
        if (rating) squared += ((double)rating[k] - score) * ((double)rating[k] - score);
    }
    return squared;
}
