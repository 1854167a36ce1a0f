/* x += values; neither need be aligned. Included by frame_loops.h and update_loops.h. */

/* Rows of at least one vector are added by whole vectors: the last vector ends at the row's end and overlaps the one
 * before it. Both are loaded before either is stored, so that each value is added once. */
static ALWAYS_INLINE TARGET void LEVEL(add_run)(size_t n, const unsigned char *values, float *x) {
    size_t k = 0;
    VEC run, last;
    if (n < LANES) {
        for (float value; k < n; k++) x[k] += (memcpy(&value, values + 4 * k, 4), value);
        return;
    }
    for (; k + 2 * LANES < n; k += LANES) {
        memcpy(&run, values + 4 * k, sizeof run);
        *(VEC *)(x + k) += run;
    }
    memcpy(&run, values + 4 * k, sizeof run);
    memcpy(&last, values + 4 * (n - LANES), sizeof last);
    run += *(const VEC *)(x + k);
    last += *(const VEC *)(x + n - LANES);
    *(VEC *)(x + k) = run;
    *(VEC *)(x + n - LANES) = last;
}
