"""Merging frames into their sum, for the worker that owns a range of rows; and subtracting sent values from an update.

The loops are in C (``merge.h``); the layout of frames is in ``frame_header.py``.
"""

from mlless_nb.errors import DecodeError

from .frame_header import MAX_BODY_BYTES, check_fields

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset


cdef extern from "merge.h" nogil:
    const size_t FRAME_HEADER_BYTES, FRAME_FAULT, INDEX_SLACK
    const int INDEX_DENSE, INDEX_ROWS, INDEX_VARINT, VALUE_FLOAT32
    ctypedef struct frame_header:
        uint8_t index_codec, value_codec
        uint16_t slot, width
        uint32_t n_rows, count
    void checksum_init()
    void frame_head(unsigned char *frame, int index_codec, int value_codec, uint32_t step, uint32_t slot,
                    uint32_t n_rows, uint32_t width, size_t count, size_t body_bytes, const double *stats)
    void frame_seal(unsigned char *frame, size_t size)
    bint frame_open(const unsigned char *frame, size_t size, frame_header *header, char *fault)
    size_t frame_n_ids(const frame_header *header)
    bint frame_read_ids(const unsigned char *frame, const frame_header *header, uint32_t *ids, char *fault)
    void values_unpack(int codec, size_t n, const unsigned char *packed, float *values)
    size_t varint_size(const uint32_t *ids, size_t n)
    void varint_write(const uint32_t *ids, size_t n, unsigned char *out)
    int smallest_index(const uint32_t *positions, size_t n, size_t width, uint64_t table, uint64_t dense_extra,
                       size_t *bytes)
    void index_write(int codec, const uint32_t *positions, size_t n, size_t width, uint64_t table, unsigned char *out)
    void frame_put(const frame_header *header, const unsigned char *values, const uint32_t *ids, bint add,
                   size_t stride, float *x)
    bint merge_add(const frame_header *header, const unsigned char *values, const uint32_t *ids, size_t first_row,
                   size_t end_row, bint by_rows, float *sums, unsigned char *there)
    size_t merge_collect(size_t first_row, size_t end_row, size_t width, bint by_rows, const unsigned char *there,
                         const float *sums, uint32_t *ids, float *values)
    bint take_out "subtract_sent"(const int32_t *rows, size_t m, size_t width, const uint32_t *positions, size_t n,
                             const float *values, float *update)

cdef extern from "scratch.h":
    ctypedef struct scratch_memory:
        char *at
    scratch_memory scratch_take(size_t size)
    void scratch_return(scratch_memory taken)

checksum_init()


cdef struct part:
    Py_buffer view
    frame_header header


cdef struct scratch:
    scratch_memory memory  # all of the below
    float *sums  # the range's
    unsigned char *there  # a byte a row or a value of the range
    uint32_t *ids  # a frame's, then the sum's
    float *values  # decoded, then the sum's


def merge_frames(frames not None, Py_ssize_t first_row, Py_ssize_t end_row, step, slot, stats):
    """One frame (float32) that is the sum of ``frames`` over the union of their positions.

    Values at one position are added as float32 in the order of the frames. A value that only one frame has keeps its
    bits. The result depends only on the frames and their order.

    Parameters
    ----------
    frames : list or tuple of bytes, memoryview or any contiguous buffer
        At least one, all for the same table.
    first_row, end_row : int
        The range [first_row, end_row) of rows that the frames may touch. A dense frame must be zero elsewhere.
    step, slot : int
        Those of the returned frame.
    stats : (float, float, float, float)
        loss_sum, loss_count, val_sum, val_count of the returned frame.

    Raises
    ------
    DecodeError
        When a frame is malformed, is for another table than the first, or touches rows outside the range.
    ValueError
        When there is no frame, the range is not one of the table's, or a field does not fit the header.
    """
    cdef Py_ssize_t n = len(frames), n_held = 0, k
    cdef part *parts = <part *>calloc(n + 1, sizeof(part))
    cdef scratch room
    memset(&room, 0, sizeof(room))
    try:
        if parts == NULL:
            raise MemoryError
        for frame in frames:
            PyObject_GetBuffer(frame, &parts[n_held].view, PyBUF_SIMPLE)
            n_held += 1
        return merged(parts, n, first_row, end_row, &room, step, slot, stats)
    finally:
        for k in range(n_held):
            PyBuffer_Release(&parts[k].view)
        free(parts)
        if room.memory.at != NULL:
            scratch_return(room.memory)


def subtract_sent(
    const int32_t[::1] rows,
    float[:, ::1] update not None,
    const uint32_t[::1] positions not None,
    const float[::1] values not None,
):
    """``update[position] -= value``: subtract the sent values from an update.

    Parameters
    ----------
    rows : int32 (m,) or None
        Rows of ``update``, strictly ascending; None: all.
    update : float32 (m, width), or (n_rows, width)
        Changed in place.
    positions : uint32 (count,)
        ``row * width + column``, strictly ascending, every one of them in ``rows``.
    values : float32 (count,)

    Raises
    ------
    ValueError
        When a shape is wrong or a position is not in the update. Nothing is changed then.
    """
    cdef size_t m = update.shape[0], width = update.shape[1], n = positions.shape[0]
    cdef const int32_t *ids = NULL
    cdef bint within
    if rows is not None:
        if rows.shape[0] != update.shape[0]:
            raise ValueError(f"rows and update have lengths {rows.shape[0]}, {m}: must be equal")
        ids = &rows[0] if m else NULL
    if values.shape[0] != positions.shape[0]:
        raise ValueError(f"positions and values have lengths {n}, {values.shape[0]}: must be equal")
    if n == 0:
        return
    within = m * width > 0
    if within:
        with nogil:
            within = take_out(ids, m, width, &positions[0], n, &values[0], &update[0, 0])
    if not within:
        raise ValueError("positions must be strictly ascending, each of them in one of the update's rows")


cdef bytes merged(part *parts, Py_ssize_t n, Py_ssize_t first_row, Py_ssize_t end_row, scratch *room, step, slot,
                  stats):
    """:func:`merge_frames` of buffers that are held."""
    cdef char fault[FRAME_FAULT]
    cdef frame_header *header
    cdef size_t n_ids = 0, n_values = 0, n_rows = 0, width = 0, size, n_marks, k
    cdef Py_ssize_t each
    cdef bint by_rows = True, any_dense = False, valid = True, within = True
    if n == 0:
        raise ValueError("frames is empty: must hold at least one")
    for each in range(n):
        header = &parts[each].header
        if not frame_open(<const unsigned char *>parts[each].view.buf, parts[each].view.len, header, fault):
            raise DecodeError(fault.decode())
        n_rows, width = parts[0].header.n_rows, parts[0].header.width
        if header.n_rows != n_rows or header.width != width:
            raise DecodeError(f"frame is for a table of {header.n_rows} x {header.width}: must be {n_rows} x {width}")
        by_rows = by_rows and width > 1 and (header.index_codec == INDEX_DENSE or header.index_codec == INDEX_ROWS)
        any_dense = any_dense or header.index_codec == INDEX_DENSE
        n_ids, n_values = max(n_ids, frame_n_ids(header)), max(n_values, header.count)
    if not 0 <= first_row <= end_row <= <Py_ssize_t>n_rows:
        raise ValueError(f"range [{first_row}, {end_row}): must be within [0, {n_rows}]")
    check_fields(step, slot, n_rows, width)
    size = (end_row - first_row) * width
    n_marks = end_row - first_row if by_rows else size
    n_ids, n_values = max(n_ids, n_marks) + INDEX_SLACK, max(n_values, size) + INDEX_SLACK
    room.memory = scratch_take(4 * (size + n_ids + n_values) + n_marks)
    if room.memory.at == NULL:
        raise MemoryError
    room.sums = <float *>room.memory.at
    room.ids = <uint32_t *>(room.sums + size)
    room.values = <float *>(room.ids + n_ids)
    room.there = <unsigned char *>(room.values + n_values)
    if any_dense and size and end_row - first_row == <Py_ssize_t>n_rows:
        return whole_table(parts, n, room, step, slot, n_rows, width, stats)
    memset(room.there, 0, n_marks)
    with nogil:
        for k in range(size):
            room.sums[k] = -0.0
        for each in range(n):
            valid = frame_read_ids(<const unsigned char *>parts[each].view.buf, &parts[each].header, room.ids, fault)
            within = valid and add_part(&parts[each], first_row, end_row, by_rows, room)
            if not within:
                break
        n_ids = merge_collect(first_row, end_row, width, by_rows, room.there, room.sums, room.ids, room.values)
    if not valid:
        raise DecodeError(fault.decode())
    if not within:
        raise DecodeError(f"frame of slot {parts[each].header.slot} reaches out of the rows [{first_row}, {end_row})")
    return frame_of(room, n_ids, by_rows, step, slot, n_rows, width, first_row * width, size, stats)


cdef bytes whole_table(part *parts, Py_ssize_t n, scratch *room, step, slot, size_t n_rows, size_t width, stats):
    """The sum of frames of which one is dense, so that the sum is dense, too: it is computed inside the new frame."""
    cdef size_t size = n_rows * width, k
    cdef char fault[FRAME_FAULT]
    cdef Py_ssize_t each
    cdef frame_header *header
    cdef const unsigned char *values
    cdef bint valid = True
    frame = new_frame(INDEX_DENSE, step, slot, n_rows, width, size, 4 * size, stats)
    cdef unsigned char *start = <unsigned char *>PyBytes_AS_STRING(frame)
    cdef float *sums = <float *>(start + FRAME_HEADER_BYTES)
    with nogil:
        for each in range(n):
            header, values = &parts[each].header, <const unsigned char *>parts[each].view.buf + FRAME_HEADER_BYTES
            valid = frame_read_ids(<const unsigned char *>parts[each].view.buf, header, room.ids, fault)
            if not valid:
                break
            if each == 0 and header.index_codec == INDEX_DENSE:
                values_unpack(header.value_codec, size, values, sums)
                continue
            if each == 0:
                for k in range(size):
                    sums[k] = -0.0
            if header.value_codec != VALUE_FLOAT32:
                values_unpack(header.value_codec, header.count, values, room.values)
                values = <const unsigned char *>room.values
            if header.count:
                frame_put(header, values, room.ids, True, width, sums)
        if valid:
            frame_seal(start, FRAME_HEADER_BYTES + 4 * size)
    if not valid:
        raise DecodeError(fault.decode())
    return frame


cdef bint add_part(part *each, size_t first_row, size_t end_row, bint by_rows, scratch *room) noexcept nogil:
    """Add a frame whose ids were decoded; False if it touches rows outside the range."""
    cdef const unsigned char *values = <const unsigned char *>each.view.buf + FRAME_HEADER_BYTES
    if each.header.value_codec != VALUE_FLOAT32:
        values_unpack(each.header.value_codec, each.header.count, values, room.values)
        values = <const unsigned char *>room.values
    return merge_add(&each.header, values, room.ids, first_row, end_row, by_rows, room.sums, room.there)


cdef bytes frame_of(scratch *room, size_t n_ids, bint by_rows, step, slot, n_rows, size_t width, size_t first,
                    size_t size, stats):
    """The frame of the collected sums; ``sums`` has the ``size`` values from position ``first`` on."""
    cdef size_t count = n_ids * width if by_rows else n_ids, table = <size_t>n_rows * width, index_bytes, position
    cdef int index_codec = INDEX_VARINT
    cdef float *dense
    with nogil:
        if by_rows and n_ids:
            index_codec, index_bytes = INDEX_ROWS, varint_size(room.ids, n_ids)
            if 4 * (table - count) < index_bytes:
                index_codec, index_bytes = INDEX_DENSE, 0
        else:
            index_codec = smallest_index(room.ids, n_ids, width, table, 4 * (table - n_ids), &index_bytes)
    if index_codec == INDEX_DENSE:
        count = table
    frame = new_frame(index_codec, step, slot, n_rows, width, count, 4 * count + index_bytes, stats)
    cdef unsigned char *start = <unsigned char *>PyBytes_AS_STRING(frame)
    with nogil:
        if index_codec == INDEX_DENSE:
            dense = <float *>(start + FRAME_HEADER_BYTES)
            for position in range(table):
                dense[position] = -0.0
            memcpy(dense + first, room.sums, 4 * size)
        else:
            memcpy(start + FRAME_HEADER_BYTES, room.values, 4 * count)
            if by_rows:
                varint_write(room.ids, n_ids, start + FRAME_HEADER_BYTES + 4 * count)
            else:
                index_write(index_codec, room.ids, n_ids, width, table, start + FRAME_HEADER_BYTES + 4 * count)
        frame_seal(start, FRAME_HEADER_BYTES + 4 * count + index_bytes)
    return frame


cdef bytes new_frame(int index_codec, step, slot, n_rows, width, size_t count, size_t body_bytes, stats):
    """A frame of float32 values, with its header except the checksum; the caller writes the body."""
    cdef double[4] four
    if body_bytes > MAX_BODY_BYTES:
        raise ValueError(f"the frame's body has {body_bytes} bytes: must be at most {MAX_BODY_BYTES}")
    four[0], four[1], four[2], four[3] = stats
    frame = PyBytes_FromStringAndSize(NULL, FRAME_HEADER_BYTES + body_bytes)
    frame_head(<unsigned char *>PyBytes_AS_STRING(frame), index_codec, VALUE_FLOAT32, step, slot, n_rows, width, count,
               body_bytes, four)
    return frame
