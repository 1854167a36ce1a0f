import numpy as np
from numpy.typing import NDArray

def sgd_update(
    params: NDArray[np.float32],
    rows: NDArray[np.int32],
    grad: NDArray[np.float32],
    rate: float,
    l2: float,
    l2_rows: int,
    out: NDArray[np.float32],
) -> None: ...
def momentum_update(
    params: NDArray[np.float32],
    rows: NDArray[np.int32],
    grad: NDArray[np.float32],
    velocity: NDArray[np.float32],
    rate: float,
    momentum: float,
    nesterov: bool,
    l2: float,
    l2_rows: int,
    out: NDArray[np.float32],
) -> None: ...
def adam_update(
    params: NDArray[np.float32],
    rows: NDArray[np.int32],
    grad: NDArray[np.float32],
    first: NDArray[np.float32],
    second: NDArray[np.float32],
    rate: float,
    b1: float,
    b2: float,
    eps: float,
    step: int,
    l2: float,
    l2_rows: int,
    out: NDArray[np.float32],
) -> None: ...
def adagrad_update(
    params: NDArray[np.float32],
    rows: NDArray[np.int32],
    grad: NDArray[np.float32],
    squares: NDArray[np.float32],
    rate: float,
    eps: float,
    l2: float,
    l2_rows: int,
    out: NDArray[np.float32],
) -> None: ...
