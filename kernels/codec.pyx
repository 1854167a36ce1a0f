"""Frames: encoding an update as bytes, and decoding it.

The layout of a frame is in ``frame_header.py``.

A frame is checked completely before any of it is used, and nothing is written unless the whole frame is valid.
"""

import numpy as np

from mlless_nb.errors import DecodeError

from .frame_header import INDEX_CODECS, MAX_BODY_BYTES, VALUE_CODECS, FrameHeader, check_fields

from cython cimport view
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy


cdef extern from "frames.h" nogil:
    const size_t FRAME_HEADER_BYTES, FRAME_FAULT, INDEX_SLACK
    const int INDEX_BITS, INDEX_DENSE, INDEX_ROWS, VALUE_FLOAT32
    ctypedef struct frame_header:
        char magic[4]
        uint8_t version, index_codec, value_codec, flags
        uint32_t step
        uint16_t slot, width
        uint32_t n_rows, count, body_bytes
        double loss_sum, loss_count, val_sum, val_count
        uint32_t checksum
    void checksum_init()
    void frame_head(unsigned char *frame, int index_codec, int value_codec, uint32_t step, uint32_t slot,
                    uint32_t n_rows, uint32_t width, size_t count, size_t body_bytes, const double *stats)
    void frame_seal(unsigned char *frame, size_t size)
    bint frame_open(const unsigned char *frame, size_t size, frame_header *header, char *fault)
    size_t frame_n_ids(const frame_header *header)
    bint frame_read_ids(const unsigned char *frame, const frame_header *header, uint32_t *ids, char *fault)
    void frame_put(const frame_header *header, const unsigned char *values, const uint32_t *ids, bint add,
                   size_t stride, float *x)
    void frame_put_bits(const unsigned char *frame, const frame_header *header, const unsigned char *values, bint add,
                        float *x)
    uint64_t values_size(int codec, uint64_t n)
    void values_pack(int codec, size_t n, const float *values, unsigned char *out)
    void values_unpack(int codec, size_t n, const unsigned char *packed, float *values)
    void values_pack_lossy(int codec, size_t n, const uint32_t *positions, float *values, unsigned char *out,
                           float *residual, size_t width, size_t stride)
    void values_pack_dense(int codec, size_t n, const uint32_t *positions, float *values, unsigned char *out,
                           float *residual, size_t width, size_t stride, float *table, size_t size)
    bint u32_valid(const uint32_t *ids, size_t n, uint64_t high)
    int rows_index(const uint32_t *rows, size_t m, size_t width, uint64_t table, size_t *bytes)
    int smallest_index(const uint32_t *positions, size_t n, size_t width, uint64_t table, uint64_t dense_extra,
                       size_t *bytes)
    size_t index_size(int codec, const uint32_t *positions, size_t n, size_t width, uint64_t table)
    void rows_index_write(int codec, const uint32_t *rows, size_t m, uint64_t table, unsigned char *out)
    void index_write(int codec, const uint32_t *positions, size_t n, size_t width, uint64_t table, unsigned char *out)

cdef extern from "scratch.h":
    ctypedef struct scratch_memory:
        char *at
    scratch_memory scratch_take(size_t size)
    void scratch_return(scratch_memory taken)

cdef extern from "checks.h":
    bint ids_ascend(const int32_t *ids, Py_ssize_t n, long long high)
    Py_ssize_t row_stride(const char *name, Py_ssize_t n_rows, Py_ssize_t width, Py_ssize_t stride_bytes) except -1

checksum_init()

new_tuple = tuple.__new__


def encode_update(const int32_t[::1] rows, const float[:, ::1] update not None, step, slot, n_rows, stats):
    """A frame of whole rows, in float32; dense rows of width 1 have their ids as bits.

    Parameters
    ----------
    rows : int32 (m,) or None
        Strictly ascending; None: every row, and no indices in the frame.
    update : float32 (m, width)
    step, slot, n_rows : int
        Step and slot of the update, and number of rows of its table.
    stats : (float, float, float, float)
        loss_sum, loss_count, val_sum, val_count.

    Raises
    ------
    ValueError
        When a shape is wrong, a row is out of range or a field does not fit the header.
    """
    cdef Py_ssize_t m = update.shape[0], width = update.shape[1]
    cdef size_t count = m * width, index_bytes = 0
    cdef uint64_t table
    cdef int index_codec = INDEX_DENSE
    cdef const uint32_t *ids = NULL
    check_fields(step, slot, n_rows, width)
    table = n_rows * width
    if rows is None:
        if m != n_rows:
            raise ValueError(f"update has {m} rows: must be n_rows={n_rows}, or rows must be given")
    else:
        if rows.shape[0] != m:
            raise ValueError(f"rows and update have lengths {rows.shape[0]}, {m}: must be equal")
        if m:
            ids = <const uint32_t *>&rows[0]
            if not ids_ascend(&rows[0], m, n_rows):
                raise ValueError(f"rows must be strictly ascending, in [0, {n_rows})")
        index_codec = rows_index(ids, m, width, table, &index_bytes)
    frame = new_frame(index_codec, VALUE_FLOAT32, step, slot, n_rows, width, count, 4 * count + index_bytes, stats)
    cdef unsigned char *start = <unsigned char *>PyBytes_AS_STRING(frame)
    cdef unsigned char *body = start + FRAME_HEADER_BYTES
    with nogil:
        if count:
            memcpy(body, &update[0, 0], 4 * count)
        if ids != NULL:
            rows_index_write(index_codec, ids, m, table, body + 4 * count)
        frame_seal(start, FRAME_HEADER_BYTES + 4 * count + index_bytes)
    return frame


def encode_sparse(
    const uint32_t[::1] positions not None,
    values not None,
    step,
    slot,
    n_rows,
    width,
    stats,
    str index="auto",
    str codec="float32",
    float[:, ::view.contiguous] residual=None,
):
    """A frame of single values.

    Parameters
    ----------
    positions : uint32 (count,)
        ``row * width + column``, strictly ascending.
    values : float32 (count,)
        A codec that rounds overwrites them with the values that the receivers will decode.
    step, slot, n_rows, width, stats
        As :func:`encode_update`'s.
    index : {"auto", "varint", "u32", "rowmask", "bits", "dense"}
        "auto" takes the smallest, including "rows" if every row is whole.
    codec : {"float32", "bf16", "int8"}
    residual : float32 (n_rows, width)
        Required by a codec that rounds, else unused; rows may be spaced. The rounding error, value - decoded, is stored
        at ``positions``, so that decoded value and residual sum to the given value.

    Raises
    ------
    ValueError
        When a shape, a name or a field is wrong, or the positions do not ascend within the table.
    """
    if index not in ("auto", "varint", "u32", "rowmask", "bits", "dense"):
        raise ValueError(f'index={index!r}: must be "auto", "varint", "u32", "rowmask", "bits" or "dense"')
    if codec not in VALUE_CODECS:
        raise ValueError(f"codec={codec!r}: must be one of {', '.join(VALUE_CODECS)}")
    check_fields(step, slot, n_rows, width)
    cdef int value_codec = VALUE_CODECS.index(codec), index_codec
    cdef size_t count = positions.shape[0], columns = width, index_bytes, n_values, stride = columns
    cdef uint64_t table = n_rows * width, value_bytes
    cdef const float[::1] given
    cdef float[::1] changed
    cdef const uint32_t *ids = &positions[0] if count else NULL
    cdef float *value = NULL
    cdef float *left = NULL
    if value_codec == VALUE_FLOAT32:
        given = values
    else:
        given = changed = values
        if residual is None:
            raise ValueError(f"codec={codec!r} rounds: residual must be given")
        if <uint64_t>residual.shape[0] != n_rows or <size_t>residual.shape[1] != columns:
            raise ValueError(f"residual has shape {residual.shape[0], residual.shape[1]}: must be {n_rows, width}")
        stride = row_stride("residual", residual.shape[0], columns, residual.strides[0])
        left = &residual[0, 0] if count else NULL
    if <size_t>given.shape[0] != count:
        raise ValueError(f"positions and values have lengths {count}, {given.shape[0]}: must be equal")
    if not u32_valid(ids, count, table):
        raise ValueError(f"positions must be strictly ascending, in [0, {table})")
    if count:
        value = <float *>&given[0]
    if index == "auto":
        index_codec = smallest_index(ids, count, columns, table,
                                     values_size(value_codec, table) - values_size(value_codec, count), &index_bytes)
    else:
        index_codec = INDEX_CODECS.index(index)
        index_bytes = index_size(index_codec, ids, count, columns, table)
    n_values = table if index_codec == INDEX_DENSE else count
    value_bytes = values_size(value_codec, n_values)
    frame = new_frame(index_codec, value_codec, step, slot, n_rows, width, n_values, value_bytes + index_bytes, stats)
    cdef unsigned char *start = <unsigned char *>PyBytes_AS_STRING(frame)
    cdef unsigned char *body = start + FRAME_HEADER_BYTES
    cdef float *whole = NULL
    if index_codec == INDEX_DENSE:
        whole = <float *>malloc(4 * table + 1)
        if whole == NULL:
            raise MemoryError
    with nogil:
        if index_codec == INDEX_DENSE:
            values_pack_dense(value_codec, count, ids, value, body, left, columns, stride, whole, table)
            free(whole)
        else:
            if value_codec == VALUE_FLOAT32:
                values_pack(value_codec, count, value, body)
            else:
                values_pack_lossy(value_codec, count, ids, value, body, left, columns, stride)
            index_write(index_codec, ids, count, columns, table, body + value_bytes)
        frame_seal(start, FRAME_HEADER_BYTES + value_bytes + index_bytes)
    return frame


def read_header(frame not None):
    """The header of a frame, without its body. The functions that read the body verify the checksum.

    Parameters
    ----------
    frame : bytes, memoryview or any contiguous buffer

    Raises
    ------
    DecodeError
        When the header is not valid, or does not match the frame's length.
    """
    cdef frame_header header
    cdef Py_buffer view
    cdef char fault[FRAME_FAULT]
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    cdef bint is_open = frame_open(<const unsigned char *>view.buf, view.len, &header, fault)
    PyBuffer_Release(&view)
    if not is_open:
        raise DecodeError(fault.decode())
    return new_tuple(FrameHeader, (
        header.step, header.slot, header.n_rows, header.width, header.count, INDEX_CODECS[header.index_codec],
        VALUE_CODECS[header.value_codec], header.loss_sum, header.loss_count, header.val_sum, header.val_count,
    ))


def apply_frame(frame not None, float[:, ::view.contiguous] params not None, *, bint add=True):
    """Add a frame's values to ``params``; returns its stats: loss_sum, loss_count, val_sum, val_count.

    Parameters
    ----------
    frame : bytes, memoryview or any contiguous buffer
    params : float32 (n_rows, width)
        Changed in place, after the whole frame was checked. Rows may be spaced.
    add : bool
        False: the values overwrite the parameters. A dense frame then replaces the whole table.

    Raises
    ------
    DecodeError
        When a length, the checksum or any index is wrong, or the frame is for a table of another shape. Nothing is
        written then.
    """
    cdef frame_header header
    cdef Py_buffer view
    cdef char fault[FRAME_FAULT]
    cdef scratch_memory room
    cdef uint32_t *ids
    cdef float *decoded
    cdef const unsigned char *start
    cdef const unsigned char *values
    cdef size_t count, stride, n_ids
    cdef bint valid, straight
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    room.at = NULL
    try:
        start = <const unsigned char *>view.buf
        if not frame_open(start, view.len, &header, fault):
            raise DecodeError(fault.decode())
        if header.n_rows != params.shape[0] or header.width != params.shape[1]:
            raise DecodeError(f"frame is for a table of {header.n_rows} x {header.width}: "
                              f"must be {params.shape[0]} x {params.shape[1]}")
        stride = row_stride("params", params.shape[0], params.shape[1], params.strides[0])
        count, n_ids = header.count, frame_n_ids(&header) + INDEX_SLACK
        values = start + FRAME_HEADER_BYTES
        room = scratch_take(4 * (n_ids + (count if header.value_codec != VALUE_FLOAT32 else 0)))
        if room.at == NULL:
            raise MemoryError
        ids, decoded = <uint32_t *>room.at, <float *>room.at + n_ids
        straight = header.index_codec == INDEX_BITS and stride == header.width  # then bits need not be converted to ids
        with nogil:
            valid = frame_read_ids(start, &header, NULL if straight else ids, fault)
            if valid and count:
                if header.value_codec != VALUE_FLOAT32:
                    values_unpack(header.value_codec, count, values, decoded)
                    values = <const unsigned char *>decoded
                if straight:
                    frame_put_bits(start, &header, values, add, &params[0, 0])
                else:
                    frame_put(&header, values, ids, add, stride, &params[0, 0])
        if not valid:
            raise DecodeError(fault.decode())
        return header.loss_sum, header.loss_count, header.val_sum, header.val_count
    finally:
        if room.at != NULL:
            scratch_return(room)
        PyBuffer_Release(&view)


def decode_frame(frame not None):
    """(positions uint32 (count,), values float32 (count,)) of a frame; DecodeError as :func:`apply_frame`."""
    cdef frame_header header
    cdef char fault[FRAME_FAULT]
    cdef const unsigned char[::1] data = memoryview(frame).cast("B")
    cdef size_t size = data.shape[0], n_ids
    if not frame_open(&data[0] if size else NULL, size, &header, fault):
        raise DecodeError(fault.decode())
    n_ids = frame_n_ids(&header)
    ids = np.empty(n_ids + INDEX_SLACK, np.uint32)
    values = np.empty(header.count, np.float32)
    cdef uint32_t[::1] id = ids
    cdef float[::1] value = values
    if not frame_read_ids(&data[0], &header, &id[0], fault):
        raise DecodeError(fault.decode())
    if header.count:
        values_unpack(header.value_codec, header.count, &data[FRAME_HEADER_BYTES], &value[0])
    if header.index_codec == INDEX_DENSE:
        return np.arange(header.count, dtype=np.uint32), values
    ids = ids[:n_ids]
    if header.index_codec == INDEX_ROWS:
        ids = (ids[:, None] * np.uint32(header.width) + np.arange(header.width, dtype=np.uint32)).ravel()
    return ids, values


cdef bytes new_frame(int index_codec, int value_codec, step, slot, n_rows, width, size_t count, size_t body_bytes,
                     stats):
    """A frame of the right size, with its header except the checksum; the caller writes the body."""
    cdef double[4] sums
    if body_bytes > MAX_BODY_BYTES:
        raise ValueError(f"the frame's body has {body_bytes} bytes: must be at most {MAX_BODY_BYTES}")
    sums[0], sums[1], sums[2], sums[3] = stats
    frame = PyBytes_FromStringAndSize(NULL, FRAME_HEADER_BYTES + body_bytes)
    frame_head(<unsigned char *>PyBytes_AS_STRING(frame), index_codec, value_codec, step, slot, n_rows, width, count,
               body_bytes, sums)
    return frame
