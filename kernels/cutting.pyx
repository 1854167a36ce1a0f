"""Cutting a minibatch from ratings: sorts them, and finds the rows of the parameter table that they touch."""

from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport free, malloc

import numpy as np


cdef extern from "cutting.h" nogil:
    ctypedef struct cut_rating:
        pass
    int cut_gather(const int32_t *users, const int32_t *items, const float *ratings, Py_ssize_t n_all,
                   const int64_t *taken, Py_ssize_t n, uint32_t n_users, uint32_t n_items, cut_rating *out)
    Py_ssize_t cut_minibatch(cut_rating *start, cut_rating *other, Py_ssize_t n, uint32_t n_users, uint32_t n_items,
                             int32_t *rows, Py_ssize_t *n_user_rows, int32_t *user, int32_t *item, float *rating)


def cut_ratings(
    const int32_t[::1] users not None,
    const int32_t[::1] items not None,
    const float[::1] ratings not None,
    const int64_t[::1] taken not None,
    Py_ssize_t n_users,
    Py_ssize_t n_items,
):
    """The ratings in ``taken``, sorted by (user, item); equal pairs keep the order of ``taken``.

    Parameters
    ----------
    users, items : int32 (n_all,)
    ratings : float32 (n_all,)
    taken : int64 (n,)
        Indices of the ratings to use.
    n_users, n_items : int
        In the parameter table, the rows of items follow those of all users.

    Returns
    -------
    rows : int32 (m,)
        The rows touched, ascending.
    user, item : int32 (n,)
        Positions in ``rows``.
    rating : float32 (n,)

    Raises
    ------
    ValueError
        When lengths differ, or a rating, user or item is out of range.
    """
    cdef Py_ssize_t n = taken.shape[0], n_all = users.shape[0], m = 0, n_user_rows = 0
    cdef bint is_valid = True
    cdef cut_rating *records
    if items.shape[0] != n_all or ratings.shape[0] != n_all:
        raise ValueError(f"{n_all} users, {items.shape[0]} items, {ratings.shape[0]} ratings: must be as many of each")
    if n_users < 1 or n_items < 1 or n_users + n_items > 2**31 - 1:
        raise ValueError(f"{n_users} users and {n_items} items: must be at least one, together below 2**31")
    all_rows, user, item, rating = np.empty(2 * n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32), np.empty(
        n, np.float32
    )
    if n == 0:
        return all_rows, user, item, rating
    cdef int32_t[::1] rows_at = all_rows, user_at = user, item_at = item
    cdef float[::1] rating_at = rating
    with nogil:
        records = <cut_rating *> malloc(2 * <size_t> n * sizeof(cut_rating))
        if records:
            is_valid = cut_gather(&users[0], &items[0], &ratings[0], n_all, &taken[0], n, <uint32_t> n_users,
                                  <uint32_t> n_items, records) if n_all else False
            if is_valid:
                m = cut_minibatch(records, records + n, n, <uint32_t> n_users, <uint32_t> n_items, &rows_at[0],
                                  &n_user_rows, &user_at[0], &item_at[0], &rating_at[0])
            free(records)
    if not records:
        raise MemoryError
    if not is_valid:
        raise ValueError(f"ratings must be among all {n_all}, users in [0, {n_users}), items in [0, {n_items})")
    return all_rows[:m].copy(), user, item, rating
