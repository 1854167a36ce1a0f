/* Hinge loss, max(0, 1 - s*z): s is 1 if the label is above 0, else -1, so that labels 0/1 and -1/1 are equivalent. The
 * slope at the kink is 0. Included by linear_loops.h, which defines a loss block. */
static NEVER_INLINE TARGET double LEVEL(hinge_loss_block)(
    const float *margin, const float *label, ptrdiff_t n, float *slope) {
    double total = 0.0;
    for (ptrdiff_t k = 0; k < n; k++) {
        const double sign = label[k] > 0.0f ? 1.0 : -1.0, loss = 1.0 - sign * (double)margin[k];
        slope[k] = loss > 0.0 ? (float)-sign : loss != loss ? margin[k] : 0.0f;
        total += loss <= 0.0 ? 0.0 : loss;
    }
    return total;
}
