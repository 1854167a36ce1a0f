/* What an x86-64 processor has that the loops are compiled for. Asked by CPUID and not by __builtin_cpu_supports: zig cc
 * links that to a stub which says no to everything, and the wheels would run the slowest loops. */
#ifndef MLLESS_PROCESSOR_H
#define MLLESS_PROCESSOR_H

#include <cpuid.h>

enum { HAS_SSE42 = 1, HAS_AVX2 = 2, HAS_AVX512 = 4, HAS_VPCLMULQDQ = 8 }; /* as the targets in levels.h: AVX2 with FMA */

/* Whether all of the wanted bits are set. */
static inline int has_all(unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; }

static inline int processor_features(void) {
    const unsigned avx512 = bit_AVX512F | bit_AVX512VL | bit_AVX512DQ | bit_AVX512BW;
    unsigned eax, ebx, ecx, edx, basic, kept;
    int features = 0;
    if (!__get_cpuid(1, &eax, &ebx, &basic, &edx)) return 0;
    if (has_all(basic, bit_SSE4_2)) features |= HAS_SSE42;
    /* The operating system must keep the wide registers, too: of 256 bits (2 and 4), of 512 bits and masks (0xe0). */
    if (!has_all(basic, bit_OSXSAVE | bit_AVX | bit_FMA) || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return features;
    __asm__("xgetbv" : "=a"(kept), "=d"(edx) : "c"(0));
    if (!has_all(kept, 0x06) || !has_all(ebx, bit_AVX2)) return features;
    features |= HAS_AVX2;
    if (!has_all(kept, 0xe6) || !has_all(ebx, avx512)) return features;
    features |= HAS_AVX512;
    if (has_all(ecx, bit_VPCLMULQDQ)) features |= HAS_VPCLMULQDQ;
    return features;
}

#endif
