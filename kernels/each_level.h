/* Includes LOOPS once per instruction set; see levels.h. Each time it defines:
 *   LEVEL(f)  the function's name      TARGET  its attribute      LANES  floats in a vector
 *   VEC, INTS the vector, unaligned    SUM(v), ROOT(v)  horizontal sum and square root of one
 *   PART(p, n), PUT_PART(p, n, v)      load and store of its first n < LANES floats, the others being 0
 *   MULTIPLY_ADD(x, y, z)              x * y + z of single floats */
#include "levels.h"

#define LEVEL(f) f##_generic
#define TARGET
#define LANES 4
typedef float vec_generic __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t ints_generic __attribute__((vector_size(16), aligned(4), may_alias));
#define VEC vec_generic
#define INTS ints_generic
#define SUM(v) (((v)[0] + (v)[2]) + ((v)[1] + (v)[3]))
#define MULTIPLY_ADD(x, y, z) ((x) * (y) + (z))
#define PART(p, n) part_generic(p, n)
#define PUT_PART(p, n, v) put_part_generic(p, n, v)
static inline VEC part_generic(const float *p, ptrdiff_t n) {
    return (VEC){p[0], n > 1 ? p[1] : 0.0f, n > 2 ? p[2] : 0.0f, 0.0f};
}
static inline void put_part_generic(float *p, ptrdiff_t n, VEC v) {
    p[0] = v[0];
    if (n > 1) p[1] = v[1];
    if (n > 2) p[2] = v[2];
}
#if defined(MLLESS_X86)
#define ROOT(v) ((VEC)_mm_sqrt_ps((__m128)(v)))
#elif defined(__aarch64__)
#define ROOT(v) ((VEC)vsqrtq_f32((float32x4_t)(v)))
#else
#define ROOT(v) ((VEC){sqrtf((v)[0]), sqrtf((v)[1]), sqrtf((v)[2]), sqrtf((v)[3])})
#endif
#include LOOPS
#undef LEVEL
#undef TARGET
#undef LANES
#undef VEC
#undef INTS
#undef SUM
#undef MULTIPLY_ADD
#undef PART
#undef PUT_PART
#undef ROOT

#ifdef MLLESS_X86
#define LEVEL(f) f##_avx2
#define TARGET AVX2_TARGET
#define LANES 8
typedef float vec_avx2 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t ints_avx2 __attribute__((vector_size(32), aligned(4), may_alias));
#define VEC vec_avx2
#define INTS ints_avx2
#define SUM(v) sum_avx2((__m256)(v))
#define MULTIPLY_ADD(x, y, z) __builtin_fmaf(x, y, z)
#define PART(p, n) ((VEC)part_avx2(p, n))
#define PUT_PART(p, n, v) put_part_avx2(p, n, (__m256)(v))
#define ROOT(v) ((VEC)_mm256_sqrt_ps((__m256)(v)))
#include LOOPS
#undef LEVEL
#undef TARGET
#undef LANES
#undef VEC
#undef INTS
#undef SUM
#undef MULTIPLY_ADD
#undef PART
#undef PUT_PART
#undef ROOT

#define LEVEL(f) f##_avx512
#define TARGET AVX512_TARGET
#define LANES 16
#define HAS_COMPRESS 1
typedef float vec_avx512 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ints_avx512 __attribute__((vector_size(64), aligned(4), may_alias));
#define VEC vec_avx512
#define INTS ints_avx512
#define SUM(v) sum_avx512((__m512)(v))
#define MULTIPLY_ADD(x, y, z) __builtin_fmaf(x, y, z)
#define PART(p, n) ((VEC)_mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1), p))
#define PUT_PART(p, n, v) _mm512_mask_storeu_ps(p, (__mmask16)((1u << (n)) - 1), (__m512)(v))
#define ROOT(v) ((VEC)_mm512_sqrt_ps((__m512)(v)))
#include LOOPS
#undef LEVEL
#undef TARGET
#undef LANES
#undef VEC
#undef INTS
#undef SUM
#undef MULTIPLY_ADD
#undef PART
#undef PUT_PART
#undef ROOT
#undef HAS_COMPRESS
#endif

#undef LOOPS
