/* Memory that is reused from call to call: new pages from the system for each call would cost more than the work. */
#ifndef MLLESS_SCRATCH_H
#define MLLESS_SCRATCH_H

#include <stddef.h>
#include <stdlib.h>

#define SCRATCH_KEPT ((size_t)64 << 20) /* bytes; larger blocks are freed */

typedef struct {
    char *at;
    size_t size;
} scratch_memory;

static scratch_memory scratch_spare; /* accessed only with the GIL held; a call owns the memory that it took */

/* At least `size` bytes; `at` is NULL if the allocation failed. */
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
