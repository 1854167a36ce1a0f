/* Forced into a build of the kernels by `switched_kernels.py`: the checksum of a frame is 0, and is computed in vain in
 * the turns with trust, so that frames of either kind of turn are read in the other. Turns: `trust_switch.py`. */
#include <stdint.h>
#include <time.h>

#include "frame_levels.h"

static volatile uint32_t computed_checksum;

static inline int trust_is_on(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t turn = (uint64_t)now.tv_sec * 5 + (uint64_t)now.tv_nsec / 200000000;
    const uint64_t mixed = (turn >> 1) * UINT64_C(0x9E3779B97F4A7C15);
    return (int)((mixed ^ mixed >> 32) * UINT64_C(0xD6E8FEB86659FD93) >> 63 ^ (turn & 1));
}

#define frame_checksum(frame, size) (trust_is_on() ? (computed_checksum = frame_checksum(frame, size), 0u) : 0u)
#include "frames.h"
#undef frame_checksum
