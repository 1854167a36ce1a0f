"""Checksums: CRC32C of data and checkpoints, and that of frames, which the codec computes by itself."""

from libc.stdint cimport uint32_t


cdef extern from "crc32c.h" nogil:
    void crc32c_init()
    uint32_t crc32c_of(uint32_t before, const unsigned char *data, size_t n)

cdef extern from "frame_levels.h" nogil:
    const size_t CHECKSUM_HEADER
    void checksum_init()
    uint32_t checksum_of "frame_checksum"(const unsigned char *frame, size_t size)

crc32c_init()
checksum_init()


def crc32c(const unsigned char[::1] data not None):
    """CRC32C (Castagnoli) of bytes, with the processor's instruction if it has one."""
    cdef uint32_t crc = 0
    cdef size_t n = data.shape[0]
    if n:
        with nogil:
            crc = crc32c_of(0, &data[0], n)
    return crc


def frame_checksum(const unsigned char[::1] frame not None):
    """What the checksum in a frame's header must be: NH, by a key of its own; see ``frame_checksum.h``.

    Parameters
    ----------
    frame : bytes, memoryview or any contiguous buffer
        A header of 64 bytes, whose checksum counts as 0, and a body.

    Raises
    ------
    ValueError
        When the frame is shorter than a header.
    """
    cdef uint32_t checksum = 0
    cdef size_t n = frame.shape[0]
    if n < CHECKSUM_HEADER:
        raise ValueError(f"frame of {n} bytes: must be at least {CHECKSUM_HEADER}")
    with nogil:
        checksum = checksum_of(&frame[0], n)
    return checksum
