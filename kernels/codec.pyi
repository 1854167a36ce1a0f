from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .frame_header import FrameHeader

def encode_update(
    rows: NDArray[np.int32] | None,
    update: NDArray[np.float32],
    step: int,
    slot: int,
    n_rows: int,
    stats: Sequence[float],
) -> bytes: ...
def encode_sparse(
    positions: NDArray[np.uint32],
    values: NDArray[np.float32],
    step: int,
    slot: int,
    n_rows: int,
    width: int,
    stats: Sequence[float],
    index: str = "auto",
    codec: str = "float32",
    residual: NDArray[np.float32] | None = None,
) -> bytes: ...
def read_header(frame: bytes | bytearray | memoryview) -> FrameHeader: ...
def apply_frame(
    frame: bytes | bytearray | memoryview, params: NDArray[np.float32], *, add: bool = True
) -> tuple[float, float, float, float]: ...
def decode_frame(frame: bytes | bytearray | memoryview) -> tuple[NDArray[np.uint32], NDArray[np.float32]]: ...
