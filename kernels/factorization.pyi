import numpy as np
from numpy.typing import NDArray

def pmf_gradient(
    params: NDArray[np.float32],
    rows: NDArray[np.int32],
    user: NDArray[np.int32],
    item: NDArray[np.int32],
    rating: NDArray[np.float32],
    mean: float,
    l2: float,
    divisor: float,
    biases: bool,
    grad: NDArray[np.float32],
) -> float: ...
def pmf_sgd_pass(
    params: NDArray[np.float32],
    rows: NDArray[np.int32],
    user: NDArray[np.int32],
    item: NDArray[np.int32],
    rating: NDArray[np.float32],
    mean: float,
    l2: float,
    rate: float,
    biases: bool,
) -> float: ...
def pmf_squared_error(
    params: NDArray[np.float32],
    rows: NDArray[np.int32],
    user: NDArray[np.int32],
    item: NDArray[np.int32],
    rating: NDArray[np.float32],
    mean: float,
    biases: bool,
) -> float: ...
def pmf_predict(
    params: NDArray[np.float32],
    user: NDArray[np.int32],
    item: NDArray[np.int32],
    mean: float,
    biases: bool,
    out: NDArray[np.float32],
) -> None: ...
