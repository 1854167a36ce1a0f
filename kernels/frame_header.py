"""What a frame says of itself; shared by the codec and its reference."""

from __future__ import annotations

from typing import NamedTuple

#: Index codecs by their number in the frame.
INDEX_CODECS = ("dense", "u32", "varint", "rows")
#: Value codecs by their number in the frame.
VALUE_CODECS = ("f32",)


class FrameHeader(NamedTuple):
    """Header of a frame.

    ``step`` (1-based) and ``slot`` say whose update it is; ``n_rows`` x ``width`` is the table it belongs to; ``count``
    is the number of values. The four sums are the worker's training loss and rows, and its validation loss and rows.
    """

    step: int
    slot: int
    n_rows: int
    width: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of a header
    index_codec: str
    value_codec: str
    loss_sum: float
    loss_count: float
    val_sum: float
    val_count: float
