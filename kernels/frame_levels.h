/* The loops of frames for several instruction sets (frame_loops.h), and functions of single positions and gaps. */
#ifndef MLLESS_FRAME_LEVELS_H
#define MLLESS_FRAME_LEVELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "frame_checksum.h"

#define INDEX_BLOCK 64 /* positions whose rows are computed at a time */
#define VALUE_BLOCK 128 /* values with a common scale */
#define AHEAD_ROWS 8
#define NEAR_VALUES (1u << 18) /* floats of a table that fit in the second-level cache */

/* position / width by a multiplication that fits 64 bits, so that it can be vectorised: the quotient is exact or one
 * too low, because the factor is at most 1 below 2^32 / width. */
static inline uint32_t row_factor(size_t width) { return UINT32_MAX / (uint32_t)(width ? width : 1); }
static inline uint32_t row_of(uint32_t position, uint32_t width, uint32_t factor) {
    const uint32_t low = (uint32_t)((uint64_t)position * factor >> 32);
    return low + (position - low * width >= width);
}

/* Number of bytes of a gap after its first. */
static inline uint32_t varint_more(uint32_t gap) {
    return (gap >= 1u << 7) + (gap >= 1u << 14) + (gap >= 1u << 21) + (gap >= 1u << 28);
}

/* Reads one gap; NULL if it does not end before `end`, is longer than necessary, or exceeds 32 bits. */
static inline const unsigned char *varint_next(const unsigned char *at, const unsigned char *end, uint64_t *gap) {
    if (at == end) return NULL;
    uint64_t value = *at++;
    if (value >= 128) {
        value &= 127;
        for (int shift = 7;; shift += 7) {
            if (at == end || shift > 28) return NULL;
            const uint64_t byte = *at++;
            value |= (byte & 127) << shift;
            if (byte < 128) {
                if (byte == 0 || value > UINT32_MAX) return NULL;
                break;
            }
        }
    }
    *gap = value;
    return at;
}

#define LOOPS "frame_loops.h"
#include "each_level.h"

/* The checksum of a frame of `size` bytes, at least CHECKSUM_HEADER. */
static inline uint32_t frame_checksum(const unsigned char *frame, size_t size) {
    return DISPATCH(checksum, (frame, size));
}

#endif
