/* Includes LOOPS once per instruction set; see levels.h. Each time it stands for:
 *   LEVEL(f)  the function's name      TARGET  its attribute      LANES  floats in a vector
 *   VEC, INTS the vector, unaligned    SUM(v), ROOT(v)  horizontal sum and square root of one */
#include "levels.h"

#define LEVEL(f) f##_generic
#define TARGET
#define LANES 4
typedef float vec_generic __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t ints_generic __attribute__((vector_size(16), aligned(4), may_alias));
#define VEC vec_generic
#define INTS ints_generic
#define SUM(v) (((v)[0] + (v)[2]) + ((v)[1] + (v)[3]))
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
#define ROOT(v) ((VEC)_mm256_sqrt_ps((__m256)(v)))
#include LOOPS
#undef LEVEL
#undef TARGET
#undef LANES
#undef VEC
#undef INTS
#undef SUM
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
#define ROOT(v) ((VEC)_mm512_sqrt_ps((__m512)(v)))
#include LOOPS
#undef LEVEL
#undef TARGET
#undef LANES
#undef VEC
#undef INTS
#undef SUM
#undef ROOT
#undef HAS_COMPRESS
#endif

#undef LOOPS
