import numpy as np
from numpy.typing import NDArray

def linear_gradient(
    loss: str,
    params: NDArray[np.float32],
    ids: NDArray[np.int32],
    columns: NDArray[np.int32],
    dense: NDArray[np.float32],
    indptr: NDArray[np.int32],
    indices: NDArray[np.uint16] | NDArray[np.int32],
    values: NDArray[np.float32],
    labels: NDArray[np.float32],
    divisor: float,
    grad: NDArray[np.float32],
) -> float: ...
def linear_loss(
    loss: str,
    params: NDArray[np.float32],
    ids: NDArray[np.int32],
    columns: NDArray[np.int32],
    dense: NDArray[np.float32],
    indptr: NDArray[np.int32],
    indices: NDArray[np.uint16] | NDArray[np.int32],
    values: NDArray[np.float32],
    labels: NDArray[np.float32],
) -> float: ...
def linear_margins(
    params: NDArray[np.float32],
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None: ...
