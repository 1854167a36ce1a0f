"""What a frame says of itself; shared by the codec and its reference."""

from __future__ import annotations

from typing import NamedTuple

#: Index codecs by their number in the frame.
INDEX_CODECS = ("dense", "u32", "varint", "rows", "rowmask", "bits")
#: Value codecs by their number in the frame.
VALUE_CODECS = ("float32", "bf16", "int8")
#: The most bytes of a frame's body: the largest string that Redis takes.
MAX_BODY_BYTES = 512 * 2**20


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


def check_fields(step: int, slot: int, n_rows: int, width: int) -> None:
    """Raise ValueError unless each field fits its place in a header, and the table's positions fit 32 bits."""
    if (
        0 <= step < 2**32
        and 0 <= slot < 2**16
        and 0 <= width < 2**16
        and n_rows >= 0
        and n_rows * width < 2**32 > n_rows
    ):
        return
    for name, value, limit in (
        ("step", step, 2**32),
        ("slot", slot, 2**16),
        ("width", width, 2**16),
        ("n_rows", n_rows, 2**32),
        ("n_rows * width", n_rows * width, 2**32),
    ):
        if not 0 <= value < limit:
            raise ValueError(f"{name}={value}: must be in [0, {limit})")
