"""What a CSR minibatch holds, entry by entry, however it is packed."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array

from mlless_nb.data.minibatches import CsrMinibatch


def matrix_of(minibatch: CsrMinibatch, n_features: int) -> csr_array[Any, Any]:
    """The minibatch's rows, float32 (n, n_features), without zeros."""
    values = minibatch.values if len(minibatch.values) else np.ones(len(minibatch.indices), np.float32)
    at_row = np.repeat(np.arange(minibatch.n), np.diff(minibatch.indptr))
    rows = np.concatenate([at_row, np.tile(np.arange(minibatch.n), len(minibatch.columns))])
    local = np.concatenate([minibatch.indices, np.repeat(minibatch.columns, minibatch.n)])
    assert (local < len(minibatch.ids)).all()
    entries = np.concatenate([values, minibatch.dense.ravel()])
    matrix = coo_array((entries, (rows, minibatch.ids[local])), shape=(minibatch.n, n_features)).tocsr()
    matrix.eliminate_zeros()
    return matrix
