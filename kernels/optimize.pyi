import numpy as np
from numpy.typing import NDArray

from .significance import SignificanceSplit

def split_significant(
    params: NDArray[np.float32],
    rows: NDArray[np.int32] | None,
    update: NDArray[np.float32],
    split: SignificanceSplit,
) -> int: ...
def flush_residual(
    residual: NDArray[np.float32], positions: NDArray[np.uint32], values: NDArray[np.float32]
) -> int: ...
def sgd_update(
    params: NDArray[np.float32],
    rows: NDArray[np.int32],
    grad: NDArray[np.float32],
    rate: float,
    l2: float,
    l2_rows: int,
    out: NDArray[np.float32],
    split: SignificanceSplit | None = None,
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
    split: SignificanceSplit | None = None,
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
    split: SignificanceSplit | None = None,
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
    split: SignificanceSplit | None = None,
) -> None: ...
def ftrl_update(
    params: NDArray[np.float32],
    rows: NDArray[np.int32],
    grad: NDArray[np.float32],
    z: NDArray[np.float32],
    n: NDArray[np.float32],
    scale: float,
    rate: float,
    beta: float,
    l1: float,
    ridge: float,
    l2: float,
    l2_rows: int,
    out: NDArray[np.float32],
    split: SignificanceSplit | None = None,
) -> None: ...
