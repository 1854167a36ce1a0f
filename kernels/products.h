/* Products with a table; the loops are in products_loops.h, each compiled for several instruction sets. */
#include "sparse_rows.h"

#define LOOPS "products_loops.h"
#include "each_level.h"

static void product(sparse_rows x, const double *table, ptrdiff_t width, double *out, int to_rows) {
    DISPATCH(product, (x, table, width, out, to_rows));
}
