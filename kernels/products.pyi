import numpy as np
from numpy.typing import NDArray

def rows_product(
    columns: NDArray[np.int32],
    dense: NDArray[np.float32],
    indptr: NDArray[np.int32],
    indices: NDArray[np.uint16] | NDArray[np.int32],
    values: NDArray[np.float32],
    weights: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None: ...
def transposed_product(
    columns: NDArray[np.int32],
    dense: NDArray[np.float32],
    indptr: NDArray[np.int32],
    indices: NDArray[np.uint16] | NDArray[np.int32],
    values: NDArray[np.float32],
    slopes: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None: ...
