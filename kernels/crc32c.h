/* CRC32C (Castagnoli, reflected polynomial 0x82f63b78), with the processor's instruction, else with tables.
 *
 * The instruction has a latency of three cycles and a throughput of one per cycle, so three neighbouring stretches of a
 * block are summed at the same time and joined: the sum of A followed by B is shift(sum(A), length of B) ^ sum(B), and
 * shift is linear over bits, so it takes four table look-ups.
 *
 * With carry-less multiplication of 512-bit registers, a long block is folded first: 256 bytes are multiplied by x^2048
 * modulo the polynomial and added to the next 256 bytes, so that only the last 256 are summed (Gopal et al., "Fast CRC
 * computation for generic polynomials using PCLMULQDQ", 2009, section 3).
 *
 * crc32c_init must be called once before anything else. */
#ifndef MLLESS_CRC32C_H
#define MLLESS_CRC32C_H

#include "levels.h"

#if defined(MLLESS_X86)
#if defined(__clang__) && __clang_major__ >= 14 /* it has a separate target for the instruction */
#define CRC_TARGET __attribute__((target("sse4.2,crc32")))
#else
#define CRC_TARGET __attribute__((target("sse4.2")))
#endif
#define CRC_WORD(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define CRC_TARGET
#define CRC_WORD(crc, word) __crc32cd((crc), (word))
#endif

#define CRC_STRETCH 2048 /* bytes of each of the three stretches */
#define CRC_FOLDED 256   /* bytes that are folded at a time */

#if defined(MLLESS_X86) && defined(CRC_TARGET)
#define FOLD_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,vpclmulqdq,sse4.2")))
#endif

static uint32_t crc_table[8][256];
static uint32_t crc_shift[2][4][256]; /* by one stretch, and by two */
static uint64_t crc_fold[2]; /* x^(8 * CRC_FOLDED + 63), x^(8 * CRC_FOLDED - 1): a product comes out times x */
static int crc_hardware, crc_folds;

static uint32_t crc_bytes(uint32_t crc, const unsigned char *data, size_t n) {
    while (n--) crc = crc_table[0][(crc ^ *data++) & 0xff] ^ (crc >> 8);
    return crc;
}

/* x to the power n modulo the polynomial, bits mirrored, in the upper half. */
static uint64_t crc_power(int n) {
    uint32_t power = 0x80000000u;
    while (n--) power = power & 1 ? (power >> 1) ^ 0x82f63b78u : power >> 1;
    return (uint64_t)power << 32;
}

static void crc32c_init(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
        crc_table[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int byte = 0; byte < 256; byte++)
            crc_table[k][byte] = crc_table[0][crc_table[k - 1][byte] & 0xff] ^ (crc_table[k - 1][byte] >> 8);
    for (int stretches = 1; stretches <= 2; stretches++) {
        uint32_t image[32]; /* the sum of each single bit followed by that many zero bytes */
        for (int bit = 0; bit < 32; bit++) {
            uint32_t crc = (uint32_t)1 << bit;
            for (int k = 0; k < stretches * CRC_STRETCH; k++) crc = crc_table[0][crc & 0xff] ^ (crc >> 8);
            image[bit] = crc;
        }
        for (int k = 0; k < 4; k++)
            for (int byte = 0; byte < 256; byte++) {
                uint32_t crc = 0;
                for (int bit = 0; bit < 8; bit++) crc ^= byte >> bit & 1 ? image[8 * k + bit] : 0;
                crc_shift[stretches - 1][k][byte] = crc;
            }
    }
#if defined(MLLESS_X86)
    const char *wanted = getenv("MLLESS_KERNELS");
    const int features = processor_features();
    crc_hardware = (features & HAS_SSE42) && !(wanted && !strcmp(wanted, "generic"));
    crc_folds = crc_hardware && level() == LEVEL_AVX512 && (features & HAS_VPCLMULQDQ);
    crc_fold[0] = crc_power(8 * CRC_FOLDED + 63);
    crc_fold[1] = crc_power(8 * CRC_FOLDED - 1);
#elif defined(CRC_TARGET)
    crc_hardware = 1;
#endif
}

/* Eight bytes per iteration, one look-up per byte; byte by byte on big-endian machines. */
static uint32_t crc_tables(uint32_t crc, const unsigned char *data, size_t n) {
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; n >= 8; n -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        word ^= crc;
        crc = 0;
        for (int k = 0; k < 8; k++) crc ^= crc_table[7 - k][word >> (8 * k) & 0xff];
    }
#endif
    return crc_bytes(crc, data, n);
}

#ifdef CRC_TARGET
static inline uint32_t crc_shifted(uint32_t crc, const uint32_t table[4][256]) {
    return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^ table[2][crc >> 16 & 0xff] ^ table[3][crc >> 24];
}

static CRC_TARGET uint32_t crc_instruction(uint32_t crc, const unsigned char *data, size_t n) {
    uint64_t a, b, c;
    for (; n >= 3 * CRC_STRETCH; n -= 3 * CRC_STRETCH, data += 3 * CRC_STRETCH) {
        uint32_t second = 0, third = 0;
        for (size_t k = 0; k < CRC_STRETCH; k += 8) {
            memcpy(&a, data + k, 8);
            memcpy(&b, data + CRC_STRETCH + k, 8);
            memcpy(&c, data + 2 * CRC_STRETCH + k, 8);
            crc = CRC_WORD(crc, a);
            second = CRC_WORD(second, b);
            third = CRC_WORD(third, c);
        }
        crc = crc_shifted(crc, crc_shift[1]) ^ crc_shifted(second, crc_shift[0]) ^ third;
    }
    for (; n >= 8; n -= 8, data += 8) {
        memcpy(&a, data, 8);
        crc = CRC_WORD(crc, a);
    }
    return crc_bytes(crc, data, n);
}
#endif

#ifdef FOLD_TARGET
/* `block` folded onto the `next` one. */
static inline FOLD_TARGET __m512i crc_folded(__m512i block, __m512i next, __m512i powers) {
    __m512i first = _mm512_clmulepi64_epi128(block, powers, 0x00), second = _mm512_clmulepi64_epi128(block, powers, 0x11);
    return _mm512_ternarylogic_epi64(first, second, next, 0x96);
}

/* n is at least CRC_FOLDED. */
static FOLD_TARGET uint32_t crc_folding(uint32_t crc, const unsigned char *data, size_t n) {
    const __m512i powers = _mm512_broadcast_i32x4(_mm_set_epi64x((long long)crc_fold[1], (long long)crc_fold[0]));
    unsigned char last[CRC_FOLDED];
    __m512i a = _mm512_loadu_si512(data), b = _mm512_loadu_si512(data + 64);
    __m512i c = _mm512_loadu_si512(data + 128), d = _mm512_loadu_si512(data + 192);
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    for (data += CRC_FOLDED, n -= CRC_FOLDED; n >= CRC_FOLDED; data += CRC_FOLDED, n -= CRC_FOLDED) {
        a = crc_folded(a, _mm512_loadu_si512(data), powers);
        b = crc_folded(b, _mm512_loadu_si512(data + 64), powers);
        c = crc_folded(c, _mm512_loadu_si512(data + 128), powers);
        d = crc_folded(d, _mm512_loadu_si512(data + 192), powers);
    }
    _mm512_storeu_si512(last, a);
    _mm512_storeu_si512(last + 64, b);
    _mm512_storeu_si512(last + 128, c);
    _mm512_storeu_si512(last + 192, d);
    return crc_instruction(crc_instruction(0, last, CRC_FOLDED), data, n);
}
#endif

/* The checksum of `before` (0: nothing) followed by data. */
static uint32_t crc32c_of(uint32_t before, const unsigned char *data, size_t n) {
    uint32_t crc = ~before;
#ifdef FOLD_TARGET
    if (crc_folds && n >= 4 * CRC_FOLDED) return ~crc_folding(crc, data, n);
#endif
#ifdef CRC_TARGET
    if (crc_hardware) return ~crc_instruction(crc, data, n);
#endif
    return ~crc_tables(crc, data, n);
}

#endif
