/* Each loop is compiled for several instruction sets; one is chosen at run time. So one wheel is fast on any processor.
 *
 * A loop header (*_loops.h) names its functions LEVEL(f), marks them TARGET and is included by each_level.h once per
 * instruction set. DISPATCH(f, (arguments)) calls the best one this processor has. MLLESS_KERNELS=generic|avx2 in the
 * environment lowers the choice, so that tests reach every path. */
#ifndef MLLESS_LEVELS_H
#define MLLESS_LEVELS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ALWAYS_INLINE inline __attribute__((always_inline))
/* Prevents the compiler from fusing a product with the sums that use it: each use has the same, rounded value. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define ROUNDED(v) __asm__("" : "+v"(v))
#elif defined(__aarch64__)
#define ROUNDED(v) __asm__("" : "+w"(v))
#else
#define ROUNDED(v) __asm__("" : "+m"(v))
#endif
#define NEVER_INLINE __attribute__((noinline)) /* inlined into a large loop, it would run out of registers */

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define MLLESS_X86 1
#include <immintrin.h>

#include "processor.h"
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifdef MLLESS_X86
#define AVX2_TARGET __attribute__((target("avx2,fma")))
#define AVX512_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))

/* Horizontal sums: add the halves, in a fixed order. */
static inline AVX2_TARGET float sum_avx2(__m256 v) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

/* The first n < 8 floats. Stored in halves, because AVX2's masked store is slow on some processors. */
static inline AVX2_TARGET __m256 part_avx2(const float *p, ptrdiff_t n) {
    static const int32_t lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_maskload_ps(p, _mm256_loadu_si256((const __m256i *)(lanes + 8 - n)));
}

static inline AVX2_TARGET void put_part_avx2(float *p, ptrdiff_t n, __m256 v) {
    __m128 rest = _mm256_castps256_ps128(v);
    if (n & 4) {
        _mm_storeu_ps(p, rest);
        rest = _mm256_extractf128_ps(v, 1);
        p += 4;
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)p, rest);
        rest = _mm_movehl_ps(rest, rest);
        p += 2;
    }
    if (n & 1) _mm_store_ss(p, rest);
}

static inline AVX512_TARGET float sum_avx512(__m512 v) {
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}
#endif

enum { LEVEL_GENERIC = 0, LEVEL_AVX2 = 1, LEVEL_AVX512 = 2 };

static int find_level(void) {
#ifdef MLLESS_X86
    const char *wanted = getenv("MLLESS_KERNELS");
    if (wanted && !strcmp(wanted, "generic")) return LEVEL_GENERIC;
    const int features = processor_features();
    if (!(features & HAS_AVX2)) return LEVEL_GENERIC;
    if (wanted && !strcmp(wanted, "avx2")) return LEVEL_AVX2;
    return features & HAS_AVX512 ? LEVEL_AVX512 : LEVEL_AVX2;
#else
    return LEVEL_GENERIC;
#endif
}

static inline int level(void) {
    static int found = -1; /* a race writes the same value twice */
    if (found < 0) found = find_level();
    return found;
}

#ifdef MLLESS_X86
#define DISPATCH(f, arguments)                        \
    (level() == LEVEL_AVX512 ? f##_avx512 arguments   \
     : level() == LEVEL_AVX2 ? f##_avx2 arguments     \
                             : f##_generic arguments)
#else
#define DISPATCH(f, arguments) (f##_generic arguments)
#endif

#endif
