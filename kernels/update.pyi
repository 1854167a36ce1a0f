import numpy as np
from numpy.typing import NDArray

def instruction_set() -> str: ...
def apply_rows(params: NDArray[np.float32], rows: NDArray[np.int32] | None, update: NDArray[np.float32]) -> None: ...
def snapshot_rows(
    params: NDArray[np.float32],
    rows: NDArray[np.int32] | None,
    base: NDArray[np.float32],
    marks: NDArray[np.uint32],
    round_id: int,
) -> None: ...
def extract_delta(
    params: NDArray[np.float32],
    rows: NDArray[np.int32] | None,
    base: NDArray[np.float32],
    scale: float,
    out: NDArray[np.float32],
) -> None: ...
