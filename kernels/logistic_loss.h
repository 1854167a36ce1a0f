/* Logistic loss, log(1 + exp(z)) - y*z for labels 0 and 1, in nats; included by linear_loops.h, which defines a loss
 * block.
 *
 * With t = exp(-|z|): sigmoid(z) is 1/(1+t) or t/(1+t), the loss is log(1+t) + max(z,0) - yz, and nothing overflows.
 * The sum of the logarithms is the logarithm of the product, at most 2**64. exp: 2**i * exp(r), |r| <= ln(2)/2, Taylor
 * to the 10th power, relative error below 1e-12. */
static NEVER_INLINE TARGET double LEVEL(logistic_loss_block)(
    const float *margin, const float *label, ptrdiff_t n, float *slope) {
    double t[LINEAR_BLOCK];
    for (ptrdiff_t k = 0; k < n; k++) {
        const double z = margin[k] > 0.0f ? -(double)margin[k] : (double)margin[k];
        const double a = z > -700.0 ? z : -700.0;
        const double shifted = a * 1.4426950408889634 + 6755399441055744.0; /* 1.5 * 2**52: rounds to an integer */
        const double i = shifted - 6755399441055744.0;
        const double r = (a - i * 0.693147180369123816490) - i * 1.90821492927058770002e-10;
        double e = 1.0 / 3628800.0;
        e = e * r + 1.0 / 362880.0;
        e = e * r + 1.0 / 40320.0;
        e = e * r + 1.0 / 5040.0;
        e = e * r + 1.0 / 720.0;
        e = e * r + 1.0 / 120.0;
        e = e * r + 1.0 / 24.0;
        e = e * r + 1.0 / 6.0;
        e = e * r + 0.5;
        e = e * r + 1.0;
        e = e * r + 1.0;
        uint64_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        bits = (bits + 1023) << 52; /* the low bits of `shifted` are the integer */
        double power;
        memcpy(&power, &bits, sizeof power);
        t[k] = margin[k] != margin[k] ? (double)margin[k] : e * power;
    }
    double product = 1.0, linear = 0.0;
    for (ptrdiff_t k = 0; k < n; k++) {
        const double z = margin[k], inverse = 1.0 / (1.0 + t[k]);
        slope[k] = (float)((z >= 0.0 ? inverse : t[k] * inverse) - label[k]);
        product *= 1.0 + t[k];
        linear += (z > 0.0 ? z : 0.0) - label[k] * z;
    }
    return log(product) + linear;
}
