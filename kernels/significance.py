"""The residual of a significance filter, and what it sends; shared by the compiled kernels and their reference."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SignificanceSplit:
    """The residual of a worker's updates under ISP, and the values that the last update sent.

    The split is ``residual += update``; if ``|residual| > threshold * |params|`` (so always if the parameter is 0 and
    the residual is not), the value is sent and the residual becomes 0: nothing is lost. A threshold of 0 sends every
    non-zero, an infinite one sends nothing. With a finite threshold a NaN is sent, so that divergence is noticed.

    Parameters
    ----------
    n_rows, width : int
        Shape of the table; below 2**32 entries.
    residual : float32 (n_rows, width), optional
        The residual, changed in place; by default a new table of zeros.

    Attributes
    ----------
    residual : float32 (n_rows, width)
        The residual; its rows may be spaced.
    threshold : float
        ``v_t``, at least 0; 0 at first.
    moves : bool
        Whether the pass that makes and splits an update also adds it to ``params``; ``out`` is undefined then.
    count : int
        Number of values that the last update sent.
    positions : uint32
        ``row * width + column`` of the sent values, ascending, in the first ``count`` entries; see `sent_positions`.
    values : float32
        The sent values, likewise; see `sent_values`. Both arrays grow when an update needs it.

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
        """Grow ``positions`` and ``values`` to at least ``size`` entries; growing loses their contents."""
        if len(self.positions) < size:
            self.positions = np.empty(size + size // 8, np.uint32)
            self.values = np.empty(size + size // 8, np.float32)
