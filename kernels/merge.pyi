from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def merge_frames(
    frames: Sequence[bytes | bytearray | memoryview],
    first_row: int,
    end_row: int,
    step: int,
    slot: int,
    stats: Sequence[float],
) -> bytes: ...
def subtract_sent(
    rows: NDArray[np.int32] | None,
    update: NDArray[np.float32],
    positions: NDArray[np.uint32],
    values: NDArray[np.float32],
) -> None: ...
