import numpy as np
from numpy.typing import NDArray

def apply_rows(params: NDArray[np.float32], rows: NDArray[np.int32] | None, update: NDArray[np.float32]) -> None: ...
def split_significant(
    params: NDArray[np.float32],
    rows: NDArray[np.int32] | None,
    update: NDArray[np.float32],
    residual: NDArray[np.float32],
    threshold: float,
    positions: NDArray[np.uint32],
    values: NDArray[np.float32],
) -> int: ...
def flush_residual(
    residual: NDArray[np.float32], positions: NDArray[np.uint32], values: NDArray[np.float32]
) -> int: ...
