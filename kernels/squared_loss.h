/* Squared loss, (z - y)**2; the slope is that of half of it, as for ratings in factorization_loops.h. Included by
 * linear_loops.h, which defines a loss block. */
static NEVER_INLINE TARGET double LEVEL(squared_loss_block)(
    const float *margin, const float *label, ptrdiff_t n, float *slope) {
    double total = 0.0;
    for (ptrdiff_t k = 0; k < n; k++) {
        const double error = (double)margin[k] - label[k];
        slope[k] = (float)error;
        total += error * error;
    }
    return total;
}
