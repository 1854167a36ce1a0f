/* Poly1305 (RFC 8439, section 2.5): a polynomial over the message's blocks of 16 bytes, modulo 2^130 - 5, plus a mask.
 *
 * Numbers are three limbs of 44, 44 and 42 bits, so that sums of products fit into 128 bits. Four blocks are multiplied by
 * four powers of r and reduced once. No branch and no address depends on the key or the message. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define POLY_44 0xfffffffffffULL
#define POLY_42 0x3ffffffffffULL

typedef unsigned __int128 poly_wide;
typedef struct {
    uint64_t a, b, c;
} poly_limbs;

static inline uint64_t poly_load(const unsigned char *bytes) { /* little-endian, on every machine */
    uint64_t word = 0;
    for (int k = 7; k >= 0; k--) word = word << 8 | bytes[k];
    return word;
}

/* A sum of products, not reduced. */
typedef struct {
    poly_wide a, b, c;
} poly_sum;

/* to + h * r; the limbs of h may be a few bits longer. */
static inline poly_sum poly_add_product(poly_sum to, poly_limbs h, poly_limbs r) {
    const uint64_t s1 = r.b * 20, s2 = r.c * 20; /* 2^132 = 4 * 2^130 = 20 */
    to.a += (poly_wide)h.a * r.a + (poly_wide)h.b * s2 + (poly_wide)h.c * s1;
    to.b += (poly_wide)h.a * r.b + (poly_wide)h.b * r.a + (poly_wide)h.c * s2;
    to.c += (poly_wide)h.a * r.c + (poly_wide)h.b * r.b + (poly_wide)h.c * r.a;
    return to;
}

/* The same number, partially reduced. */
static inline poly_limbs poly_reduce(poly_sum sum) {
    sum.b += (uint64_t)(sum.a >> 44);
    sum.c += (uint64_t)(sum.b >> 44);
    poly_limbs out = {(uint64_t)sum.a & POLY_44, (uint64_t)sum.b & POLY_44, (uint64_t)sum.c & POLY_42};
    out.a += (uint64_t)(sum.c >> 42) * 5;
    out.b += out.a >> 44;
    out.a &= POLY_44;
    return out;
}

static inline poly_limbs poly_multiply(poly_limbs h, poly_limbs r) {
    return poly_reduce(poly_add_product((poly_sum){0, 0, 0}, h, r));
}

/* h plus a block with its final bit at 2^128, or at the end of the bytes. */
static inline poly_limbs poly_add(poly_limbs h, const unsigned char *block, uint64_t final) {
    const uint64_t low = poly_load(block), high = poly_load(block + 8);
    h.a += low & POLY_44;
    h.b += (low >> 44 | high << 20) & POLY_44;
    h.c += (high >> 24) | final;
    return h;
}

/* The tag, 16 bytes, of n bytes under a key of 32 bytes, which must be used for one message only. */
static void poly1305_tag(const unsigned char *message, ptrdiff_t n, const unsigned char *key, unsigned char *tag) {
    const uint64_t k0 = poly_load(key), k1 = poly_load(key + 8);
    const poly_limbs r = {
        k0 & 0xffc0fffffffULL, (k0 >> 44 | k1 << 20) & 0xfffffc0ffffULL, k1 >> 24 & 0x00ffffffc0fULL};
    const poly_limbs r2 = poly_multiply(r, r), r3 = poly_multiply(r2, r), r4 = poly_multiply(r2, r2);
    const uint64_t whole = 1ULL << 40;
    const poly_limbs zero = {0, 0, 0};
    poly_limbs h = zero;
    for (; n >= 64; n -= 64, message += 64) {
        poly_sum sum = poly_add_product((poly_sum){0, 0, 0}, poly_add(zero, message + 48, whole), r);
        sum = poly_add_product(sum, poly_add(zero, message + 32, whole), r2);
        sum = poly_add_product(sum, poly_add(zero, message + 16, whole), r3);
        h = poly_reduce(poly_add_product(sum, poly_add(h, message, whole), r4));
    }
    for (; n >= 16; n -= 16, message += 16) h = poly_multiply(poly_add(h, message, whole), r);
    if (n) {
        unsigned char rest[16] = {0};
        memcpy(rest, message, n);
        rest[n] = 1;
        h = poly_multiply(poly_add(h, rest, 0), r);
    }
    /* Carry, twice since the first may overflow again, then subtract 2^130 - 5 if h is not below it. */
    for (int k = 0; k < 2; k++) {
        h.b += h.a >> 44, h.a &= POLY_44;
        h.c += h.b >> 44, h.b &= POLY_44;
        h.a += (h.c >> 42) * 5, h.c &= POLY_42;
    }
    h.b += h.a >> 44, h.a &= POLY_44;
    poly_limbs less = {h.a + 5, h.b, h.c};
    less.b += less.a >> 44, less.a &= POLY_44;
    less.c += less.b >> 44, less.b &= POLY_44;
    less.c -= 1ULL << 42;
    const uint64_t keeps = 0 - (less.c >> 63); /* all bits if h is below */
    h.a = (h.a & keeps) | (less.a & ~keeps);
    h.b = (h.b & keeps) | (less.b & ~keeps);
    h.c = (h.c & keeps) | (less.c & ~keeps);
    const uint64_t m0 = poly_load(key + 16), m1 = poly_load(key + 24);
    const poly_wide low = (poly_wide)(h.a | h.b << 44) + m0;
    const uint64_t words[2] = {(uint64_t)low, (h.b >> 20 | h.c << 24) + m1 + (uint64_t)(low >> 64)};
    for (int k = 0; k < 16; k++) tag[k] = (unsigned char)(words[k / 8] >> 8 * (k % 8));
}
