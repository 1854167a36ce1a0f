/* Memory that calls use one after another: fresh pages from the system each time would cost more than the work. */
#ifndef MLLESS_SCRATCH_H
#define MLLESS_SCRATCH_H

#include <stddef.h>
#include <stdlib.h>

#define SCRATCH_KEPT ((size_t)64 << 20) /* bytes; more is given back */

typedef struct {
    char *at;
    size_t size;
} scratch_memory;

static scratch_memory scratch_spare; /* touched with the GIL held only: a call has what it took for itself */

/* At least `size` bytes; `at` is NULL when there are none. */
static inline scratch_memory scratch_take(size_t size) {
    scratch_memory taken = scratch_spare;
    scratch_spare = (scratch_memory){NULL, 0};
    if (taken.size < size || !taken.at) {
        free(taken.at);
        taken.size = size + size / 8 + 64;
        taken.at = malloc(taken.size);
    }
    return taken;
}

static inline void scratch_return(scratch_memory taken) {
    if (taken.size > scratch_spare.size && taken.size <= SCRATCH_KEPT) {
        const scratch_memory spare = scratch_spare;
        scratch_spare = taken;
        taken = spare;
    }
    free(taken.at);
}

#endif
