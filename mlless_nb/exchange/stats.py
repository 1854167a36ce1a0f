"""The stats in a frame's header: sums of losses and the counts of their rows."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernels import read_header
from .protocol import Frame

#: Training loss sum and count, validation loss sum and count.
Stats = tuple[float, float, float, float]
NO_STATS: Stats = (0.0, 0.0, 0.0, 0.0)


def told(frame: Frame) -> Stats:
    """The stats in a frame's header."""
    header = read_header(frame)
    return header.loss_sum, header.loss_count, header.val_sum, header.val_count


def sum_of(parts: Sequence[Stats]) -> Stats:
    """The sums of all ``parts``, added in their order."""
    first, second, third, fourth = (sum(column) for column in zip(*parts, strict=True))
    return first, second, third, fourth
