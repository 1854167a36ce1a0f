/* Sorts the ratings of a minibatch by a radix sort: its result is the same on every machine, and it is as fast on
 * processors without vectorised sorting. */
#ifndef MLLESS_CUTTING_H
#define MLLESS_CUTTING_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CUT_BITS 11 /* per pass; the counts fit in the first-level cache */
#define CUT_AHEAD 16 /* how many ratings ahead to prefetch */

typedef struct {
    uint32_t user, item;
    int32_t row; /* of the item among the minibatch's items */
    float rating;
} cut_rating;

/* Copy the ratings `taken` out of all `n_all`; 0 if an index is out of range. */
static int cut_gather(const int32_t *users, const int32_t *items, const float *ratings, ptrdiff_t n_all,
                      const int64_t *taken, ptrdiff_t n, uint32_t n_users, uint32_t n_items, cut_rating *out) {
    int is_wrong = 0;
    for (ptrdiff_t k = 0; k < n; k++) is_wrong |= (uint64_t)taken[k] >= (uint64_t)n_all;
    if (is_wrong) return 0;
    for (ptrdiff_t k = 0; k < n; k++) {
        if (k + CUT_AHEAD < n) {
            const int64_t ahead = taken[k + CUT_AHEAD];
            __builtin_prefetch(users + ahead);
            __builtin_prefetch(items + ahead);
            __builtin_prefetch(ratings + ahead);
        }
        const int64_t at = taken[k];
        out[k] = (cut_rating){(uint32_t)users[at], (uint32_t)items[at], 0, ratings[at]};
        is_wrong |= out[k].user >= n_users || out[k].item >= n_items;
    }
    return !is_wrong;
}

/* One pass: a stable sort of `from` by these bits of its users or items. */
static void cut_pass(const cut_rating *from, cut_rating *to, ptrdiff_t n, int shift, int by_item) {
    size_t begins[1 << CUT_BITS], next = 0;
    const uint32_t mask = (1u << CUT_BITS) - 1;
    memset(begins, 0, sizeof begins);
    for (ptrdiff_t k = 0; k < n; k++) begins[(by_item ? from[k].item : from[k].user) >> shift & mask]++;
    for (size_t digit = 0; digit <= mask; digit++) {
        const size_t count = begins[digit];
        begins[digit] = next;
        next += count;
    }
    for (ptrdiff_t k = 0; k < n; k++) to[begins[(by_item ? from[k].item : from[k].user) >> shift & mask]++] = from[k];
}

/* Sort by user or item, whose ids are below `high`; returns which of the two arrays has the result. */
static cut_rating *cut_sort(cut_rating *from, cut_rating *other, ptrdiff_t n, uint32_t high, int by_item) {
    for (int shift = 0; shift < 32 && high > 1 && (high - 1) >> shift; shift += CUT_BITS) {
        cut_rating *to = other;
        cut_pass(from, to, n, shift, by_item);
        other = from;
        from = to;
    }
    return from;
}

/* Sort by (user, item), replace users and items by positions in `rows`, and write their rows there, users' first.
 * Returns the number of rows, and in *n_user_rows the number of users' rows. */
static ptrdiff_t cut_minibatch(cut_rating *from, cut_rating *other, ptrdiff_t n, uint32_t n_users, uint32_t n_items,
                               int32_t *rows, ptrdiff_t *n_user_rows, int32_t *user, int32_t *item, float *rating) {
    cut_rating *sorted = cut_sort(from, other, n, n_items, 1);
    ptrdiff_t m = 0, n_rows = 0;
    int32_t *item_rows = rows + n; /* until the number of users is known */
    for (ptrdiff_t k = 0; k < n; k++) {
        if (k == 0 || sorted[k].item != sorted[k - 1].item) item_rows[m++] = (int32_t)(n_users + sorted[k].item);
        sorted[k].row = (int32_t)(m - 1);
    }
    sorted = cut_sort(sorted, sorted == from ? other : from, n, n_users, 0);
    for (ptrdiff_t k = 0; k < n; k++) {
        if (k == 0 || sorted[k].user != sorted[k - 1].user) rows[n_rows++] = (int32_t)sorted[k].user;
        user[k] = (int32_t)(n_rows - 1);
        rating[k] = sorted[k].rating;
    }
    for (ptrdiff_t k = 0; k < n; k++) item[k] = (int32_t)n_rows + sorted[k].row;
    memmove(rows + n_rows, item_rows, (size_t)m * sizeof *rows);
    *n_user_rows = n_rows;
    return n_rows + m;
}

#endif
