"""The layout of a frame, and its decoded header; shared by the codec and its reference.

A frame is a header of 64 bytes, the values and the index section, all little-endian and at any address::

    magic "MLLF"  version u8 (3)  index codec u8  value codec u8  flags u8 (0)  step u32  slot u16  width u16
    n_rows u32  count u32 (values)  body_bytes u32  loss_sum  loss_count  val_sum  val_count (f64)  checksum u32

The checksum is over all bytes except itself, see ``frame_checksum.h``. A gap between ascending ids is
``id - previous - 1``, as a varint of minimal length (seven bits in each byte, low first). Index codecs:

==  =======  ======================================================================================================
0   dense    every value of the table, no index section; values at positions not given are -0.0 (int8: 0.0)
1   u32      positions ``row * width + column``, ascending
2   varint   gaps of the positions
3   rows     gaps of the ids of whole rows
4   rowmask  per row: the gap of its id, then one bit per column in ``ceil(width / 8)`` bytes, low first, not all 0
5   bits     one bit per position of the table in ``ceil(n_rows * width / 8)`` bytes, low first; unused bits are 0
==  =======  ======================================================================================================

Value codecs: 0 float32; 1 bf16, a float32's upper half, rounded to nearest even; 2 int8, for every 128 values in the
frame's order a float32 scale, then one signed byte per value, decoded as ``scale * byte``. The scale is the greatest
magnitude / 127. It is NaN if one of the 128 values is not finite: all of them then decode as NaN, so that divergence is
noticed.
"""

from __future__ import annotations

from typing import NamedTuple

#: Index codecs by their number in the frame.
INDEX_CODECS = ("dense", "u32", "varint", "rows", "rowmask", "bits")
#: Value codecs by their number in the frame.
VALUE_CODECS = ("float32", "bf16", "int8")
#: Largest body of a frame, bytes: the largest string that Redis accepts.
MAX_BODY_BYTES = 512 * 2**20


class FrameHeader(NamedTuple):
    """Header of a frame.

    ``step`` (1-based) and ``slot`` identify the update; ``n_rows`` x ``width`` is the shape of its table; ``count`` is
    the number of values. The four sums are the worker's training loss and rows, and its validation loss and rows.
    """

    step: int
    slot: int
    n_rows: int
    width: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which a header does not need
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
