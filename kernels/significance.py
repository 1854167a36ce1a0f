"""What a significance filter holds back of a worker's updates; shared by the compiled kernels and their reference."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SignificanceSplit:
    """What ISP holds back of a worker's updates, and what the last update sent.

    To split is ``residual += update``; where ``|residual| > threshold * |params|`` (so always where the parameter is 0
    and the residual is not) the value is sent and the residual becomes 0: nothing is lost. A threshold of 0 sends every
    non-zero, an infinite one nothing at all. A NaN is significant else: it must not hide.

    Parameters
    ----------
    n_rows, width : int
        Shape of the table; below 2**32 entries.
    residual : float32 (n_rows, width), optional
        What is held back, changed in place; zeros of its own unless given.

    Attributes
    ----------
    residual : float32 (n_rows, width)
        What is held back; its rows may be spaced.
    threshold : float
        ``v_t``, at least 0; 0 at first.
    moves : bool
        Whether the pass that makes an update and splits it also adds it to ``params``; ``out`` is undefined then.
    count : int
        Values that the last update sent.
    positions : uint32
        ``row * width + column`` of what was sent, ascending, in the first ``count`` entries; `sent_positions`.
    values : float32
        What was sent, likewise; `sent_values`. Both arrays grow when an update needs it.

    Raises
    ------
    ValueError
        When the residual has another shape or type, or the table too many entries.

    References
    ----------
    MLLess (journal), section 4.1.
    """

    def __init__(self, n_rows: int, width: int, residual: NDArray[np.float32] | None = None) -> None:
        if n_rows * width > 0xFFFFFFFF:
            raise ValueError(f"the table has {n_rows * width} entries: must be below 2**32")
        self.residual = np.zeros((n_rows, width), np.float32) if residual is None else residual
        if self.residual.shape != (n_rows, width):
            raise ValueError(f"residual has shape {self.residual.shape}: must be {n_rows, width}")
        if self.residual.dtype != np.float32:
            raise ValueError(f"residual has type {self.residual.dtype}: must be float32")
        self._threshold = 0.0
        self.moves = False
        self.count = 0
        self.positions, self.values = np.empty(0, np.uint32), np.empty(0, np.float32)

    @property
    def threshold(self) -> float:
        """``v_t``."""
        return self._threshold

    @threshold.setter
    def threshold(self, threshold: float) -> None:
        if not threshold >= 0:
            raise ValueError(f"threshold={threshold}: must be >= 0")
        self._threshold = float(threshold)

    @property
    def sent_positions(self) -> NDArray[np.uint32]:
        """``positions[:count]``."""
        return self.positions[: self.count]

    @property
    def sent_values(self) -> NDArray[np.float32]:
        """``values[:count]``."""
        return self.values[: self.count]

    def make_room(self, size: int) -> None:
        """Have ``positions`` and ``values`` take ``size`` entries at least; what they held is lost where they grow."""
        if len(self.positions) < size:
            self.positions = np.empty(size + size // 8, np.uint32)
            self.values = np.empty(size + size // 8, np.float32)
