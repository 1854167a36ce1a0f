"""Frames: an update as bytes, and back.

A frame is a header of 64 bytes, the values (float32) and the index section, all little-endian::

    magic "MLLF"  version u8  index codec u8  value codec u8  flags u8  step u32  slot u16  width u16
    n_rows u32  count u32 (values)  body_bytes u32  loss_sum  loss_count  val_sum  val_count (f64)  crc32c u32

The CRC32C is over everything but itself. Index codecs: 0 dense (every value of the table, no index section), 1 u32
(positions ``row * width + column``, ascending), 2 varint (their gaps), 3 rows (whole rows: the gaps of their ids).
Nothing of a frame is believed before all of it has been checked, and nothing is written unless all of it is valid.
"""

import numpy as np

from mlless_nb.errors import DecodeError

from .frame_header import INDEX_CODECS, VALUE_CODECS, FrameHeader

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "frames.h" nogil:
    const size_t FRAME_HEADER_BYTES
    ctypedef struct frame_header:
        char magic[4]
        uint8_t version, index_codec, value_codec, flags
        uint32_t step
        uint16_t slot, width
        uint32_t n_rows, count, body_bytes
        double loss_sum, loss_count, val_sum, val_count
        uint32_t crc
    void crc32c_init()
    uint32_t crc32c_of(uint32_t before, const unsigned char *data, size_t n)
    uint32_t frame_crc(const unsigned char *frame, size_t size)
    size_t varint_size(const uint32_t *ids, size_t n)
    void varint_write(const uint32_t *ids, size_t n, unsigned char *out)
    bint varint_valid(const unsigned char *start, const unsigned char *end, size_t n, uint64_t high)
    void varint_read(const unsigned char *start, size_t n, uint32_t *ids)
    bint u32_valid(const uint32_t *ids, size_t n, uint64_t high)
    void varint_add(const unsigned char *start, size_t n, const float *values, float *params)
    void rows_add(const unsigned char *start, size_t m, size_t width, const float *values, float *params)
    void u32_add(const uint32_t *ids, size_t n, const float *values, float *params)
    void dense_add(size_t n, const float *values, float *params)

cdef extern from "checks.h" nogil:
    bint ids_ascend(const int32_t *ids, Py_ssize_t n, long long high)

cdef extern from "string.h" nogil:
    void *memset(void *target, int value, size_t n)
    void *memcpy(void *target, const void *source, size_t n)
    int memcmp(const void *a, const void *b, size_t n)

cdef enum:
    VERSION = 1
    DENSE = 0
    U32 = 1
    VARINT = 2
    ROWS = 3

crc32c_init()

#: The most bytes of a frame's body: the largest string that Redis takes.
MAX_BODY_BYTES = 512 * 2**20


def crc32c(const unsigned char[::1] data not None):
    """CRC32C (Castagnoli) of bytes, by the processor's own instruction where it has one."""
    cdef uint32_t crc = 0
    cdef size_t n = data.shape[0]
    if n:
        with nogil:
            crc = crc32c_of(0, &data[0], n)
    return crc


def encode_update(const int32_t[::1] rows, const float[:, ::1] update not None, step, slot, n_rows, stats):
    """A frame of whole rows.

    Parameters
    ----------
    rows : int32 (m,) or None
        Strictly ascending; None: every row, and no indices in the frame.
    update : float32 (m, width)
    step, slot, n_rows : int
        Whose update, of a table of how many rows.
    stats : (float, float, float, float)
        loss_sum, loss_count, val_sum, val_count.

    Raises
    ------
    ValueError
        When a shape is wrong, a row is out of range or a field does not fit the header.
    """
    cdef Py_ssize_t m = update.shape[0], width = update.shape[1]
    cdef size_t count = m * width, index_bytes = 0
    if rows is None:
        if m != n_rows:
            raise ValueError(f"update has {m} rows: must be n_rows={n_rows}, or rows must be given")
    else:
        if rows.shape[0] != m:
            raise ValueError(f"rows and update have lengths {rows.shape[0]}, {m}: must be equal")
        if not ids_ascend(&rows[0], m, n_rows):
            raise ValueError(f"rows must be strictly ascending, in [0, {n_rows})")
        index_bytes = varint_size(<const uint32_t *>&rows[0], m)
    frame = new_frame(DENSE if rows is None else ROWS, step, slot, n_rows, width, count, 4 * count + index_bytes, stats)
    cdef unsigned char *body = <unsigned char *>PyBytes_AS_STRING(frame) + FRAME_HEADER_BYTES
    with nogil:
        if count:
            memcpy(body, &update[0, 0], 4 * count)
        if rows is not None:
            varint_write(<const uint32_t *>&rows[0], m, body + 4 * count)
    return seal(frame)


def encode_sparse(
    const uint32_t[::1] positions not None,
    const float[::1] values not None,
    step,
    slot,
    n_rows,
    width,
    stats,
    str codec="auto",
):
    """A frame of single values.

    Parameters
    ----------
    positions : uint32 (count,)
        ``row * width + column``, strictly ascending.
    values : float32 (count,)
    step, slot, n_rows, width, stats
        As :func:`encode_update`'s.
    codec : {"auto", "varint", "u32"}
        "auto" takes the smallest, the dense one included.
    """
    cdef size_t count = positions.shape[0], index_bytes, position
    cdef uint64_t table = n_rows * width
    if values.shape[0] != positions.shape[0]:
        raise ValueError(f"positions and values have lengths {count}, {values.shape[0]}: must be equal")
    if codec not in ("auto", "varint", "u32"):
        raise ValueError(f'codec={codec!r}: must be "auto", "varint" or "u32"')
    if not u32_valid(&positions[0], count, table):
        raise ValueError(f"positions must be strictly ascending, in [0, {table})")
    index_bytes = 4 * count if codec == "u32" else varint_size(&positions[0], count)
    cdef int index_codec = U32 if codec == "u32" else VARINT
    if codec == "auto":
        if index_bytes > 4 * count:
            index_codec, index_bytes = U32, 4 * count
        if 4 * table < 4 * count + index_bytes:
            index_codec, index_bytes = DENSE, 4 * (table - count)
    frame = new_frame(index_codec, step, slot, n_rows, width, table if index_codec == DENSE else count,
                      4 * count + index_bytes, stats)
    cdef unsigned char *body = <unsigned char *>PyBytes_AS_STRING(frame) + FRAME_HEADER_BYTES
    cdef float *dense = <float *>body
    with nogil:
        if index_codec == DENSE:
            memset(body, 0, 4 * table)
            for position in range(count):
                dense[positions[position]] = values[position]
        elif count:
            memcpy(body, &values[0], 4 * count)
            if index_codec == U32:
                memcpy(body + 4 * count, &positions[0], 4 * count)
            else:
                varint_write(&positions[0], count, body + 4 * count)
    return seal(frame)


def read_header(const unsigned char[::1] frame not None):
    """The header of a frame, without looking at its body: its checksum is verified by the functions that read the body.

    Raises
    ------
    DecodeError
        When it is not a frame's, or does not fit the frame's length.
    """
    cdef frame_header header
    open_header(frame, &header)
    return FrameHeader(
        header.step, header.slot, header.n_rows, header.width, header.count, INDEX_CODECS[header.index_codec],
        VALUE_CODECS[header.value_codec], header.loss_sum, header.loss_count, header.val_sum, header.val_count,
    )


def apply_frame(const unsigned char[::1] frame not None, float[:, ::1] params not None):
    """Add a frame's values to ``params``; returns how many.

    Parameters
    ----------
    frame : bytes
    params : float32 (n_rows, width)
        Changed in place, once the whole frame has been found valid.

    Raises
    ------
    DecodeError
        When a length, the checksum or any index is wrong, or the frame is for a table of another shape. Nothing is
        written then.
    """
    cdef frame_header header
    frame = aligned(frame)
    open_header(frame, &header)
    if header.n_rows != params.shape[0] or header.width != params.shape[1]:
        raise DecodeError(
            f"frame is for a table of {header.n_rows} x {header.width}: must be {params.shape[0]} x {params.shape[1]}"
        )
    open_body(frame, &header)
    cdef size_t count = header.count
    if count == 0:
        return 0
    cdef const unsigned char *body = &frame[0] + FRAME_HEADER_BYTES
    cdef const float *values = <const float *>body
    with nogil:
        if header.index_codec == DENSE:
            dense_add(count, values, &params[0, 0])
        elif header.index_codec == U32:
            u32_add(<const uint32_t *>(body + 4 * count), count, values, &params[0, 0])
        elif header.index_codec == VARINT:
            varint_add(body + 4 * count, count, values, &params[0, 0])
        else:
            rows_add(body + 4 * count, count // header.width, header.width, values, &params[0, 0])
    return count


def decode_frame(const unsigned char[::1] frame not None):
    """(positions uint32 (count,), values float32 (count,)) of a frame; DecodeError as :func:`apply_frame`."""
    cdef frame_header header
    frame = aligned(frame)
    open_header(frame, &header)
    open_body(frame, &header)
    cdef size_t count = header.count
    values = np.frombuffer(frame, np.float32, count, FRAME_HEADER_BYTES).copy()
    if header.index_codec == DENSE:
        return np.arange(count, dtype=np.uint32), values
    if header.index_codec == U32:
        return np.frombuffer(frame, np.uint32, count, FRAME_HEADER_BYTES + 4 * count).copy(), values
    cdef size_t n_ids = count // header.width if header.index_codec == ROWS else count
    ids = np.empty(n_ids, np.uint32)
    cdef uint32_t[::1] ids_view = ids
    if n_ids:
        varint_read(&frame[0] + FRAME_HEADER_BYTES + 4 * count, n_ids, &ids_view[0])
    if header.index_codec == ROWS:
        ids = (ids[:, None] * np.uint32(header.width) + np.arange(header.width, dtype=np.uint32)).ravel()
    return ids, values


cdef bytes new_frame(int index_codec, step, slot, n_rows, width, size_t count, size_t body_bytes, stats):
    """A frame of the right size with its header filled in but for the checksum; its body is the caller's to write."""
    cdef frame_header header
    for name, value, limit in (("step", step, 2**32), ("slot", slot, 2**16), ("width", width, 2**16),
                               ("n_rows", n_rows, 2**32), ("n_rows * width", n_rows * width, 2**32)):
        if not 0 <= value < limit:
            raise ValueError(f"{name}={value}: must be in [0, {limit})")
    if body_bytes > MAX_BODY_BYTES:
        raise ValueError(f"the frame's body has {body_bytes} bytes: must be at most {MAX_BODY_BYTES}")
    memcpy(header.magic, b"MLLF", 4)
    header.version, header.index_codec, header.value_codec, header.flags = VERSION, index_codec, 0, 0
    header.step, header.slot, header.width, header.n_rows = step, slot, width, n_rows
    header.count, header.body_bytes, header.crc = count, body_bytes, 0
    header.loss_sum, header.loss_count, header.val_sum, header.val_count = stats
    frame = PyBytes_FromStringAndSize(NULL, FRAME_HEADER_BYTES + body_bytes)
    memcpy(PyBytes_AS_STRING(frame), &header, FRAME_HEADER_BYTES)
    return frame


cdef bytes seal(bytes frame):
    """The frame with its checksum; only for one that nobody else has seen."""
    cdef unsigned char *start = <unsigned char *>PyBytes_AS_STRING(frame)
    cdef size_t size = len(frame)
    with nogil:
        (<frame_header *>start).crc = frame_crc(start, size)
    return frame


cdef const unsigned char[::1] aligned(const unsigned char[::1] frame):
    """The frame where its floats can be read in place."""
    if frame.shape[0] and <size_t>&frame[0] % 4:
        return bytes(frame)
    return frame


cdef int open_header(const unsigned char[::1] frame, frame_header *header) except -1:
    """Fill the header in; raise DecodeError unless all that can be told without the body is right."""
    cdef size_t size = frame.shape[0]
    if size < FRAME_HEADER_BYTES:
        raise DecodeError(f"frame of {size} bytes: must be at least {FRAME_HEADER_BYTES}")
    memcpy(header, &frame[0], FRAME_HEADER_BYTES)
    if memcmp(header.magic, b"MLLF", 4) != 0:
        raise DecodeError("not a frame: must start with MLLF")
    if header.version != VERSION:
        raise DecodeError(f"frame version {header.version}: must be {VERSION}")
    if header.index_codec > ROWS or header.value_codec != 0 or header.flags != 0:
        raise DecodeError(
            f"frame has codecs {header.index_codec}, {header.value_codec} and flags {header.flags}: "
            f"must be 0 to {ROWS}, 0 and 0"
        )
    if header.body_bytes != size - FRAME_HEADER_BYTES or header.body_bytes > MAX_BODY_BYTES:
        raise DecodeError(f"frame's body has {size - FRAME_HEADER_BYTES} bytes: its header says {header.body_bytes}")
    cdef uint64_t table = <uint64_t>header.n_rows * header.width
    if table > 0xFFFFFFFF or header.count > table or 4 * <uint64_t>header.count > header.body_bytes:
        raise DecodeError(f"frame says {header.count} values of {header.n_rows} x {header.width}: too many")
    return 0


cdef int open_body(const unsigned char[::1] frame, frame_header *header) except -1:
    """Raise DecodeError unless the checksum, every length and every index are right."""
    cdef size_t size = frame.shape[0], count = header.count, index_bytes = header.body_bytes - 4 * count
    cdef const unsigned char *start = &frame[0]
    cdef const unsigned char *index = start + FRAME_HEADER_BYTES + 4 * count
    cdef uint64_t table = <uint64_t>header.n_rows * header.width
    cdef uint32_t crc
    cdef bint valid
    with nogil:
        crc = frame_crc(start, size)
        if crc != header.crc:
            valid = False
        elif header.index_codec == DENSE:
            valid = count == table and index_bytes == 0
        elif header.index_codec == U32:
            valid = index_bytes == 4 * count and u32_valid(<const uint32_t *>index, count, table)
        elif header.index_codec == VARINT:
            valid = varint_valid(index, start + size, count, table)
        elif header.width == 0:
            valid = index_bytes == 0
        else:
            valid = count % header.width == 0 and varint_valid(
                index, start + size, count // header.width, header.n_rows
            )
    if crc != header.crc:
        raise DecodeError(f"frame's checksum is {crc:#010x}: its header says {header.crc:#010x}")
    if not valid:
        raise DecodeError(f"frame's {INDEX_CODECS[header.index_codec]} indices are malformed or out of range")
    return 0
