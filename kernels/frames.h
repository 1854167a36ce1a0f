/* A frame: header, values, index section; little-endian, at any address. Faults are reported as text. */
#ifndef MLLESS_FRAMES_H
#define MLLESS_FRAMES_H

#include <stdio.h>

#include "frame_levels.h"
#include "frame_values.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frames are copied as they are: a big-endian machine would need byte swaps"
#endif

#define FRAME_HEADER_BYTES CHECKSUM_HEADER
#define FRAME_VERSION 3
#define FRAME_MAX_BODY (512u << 20) /* the largest string that Redis accepts */
#define FRAME_FAULT 160             /* size of the text of a fault */

typedef struct __attribute__((packed)) {
    char magic[4];
    uint8_t version, index_codec, value_codec, flags;
    uint32_t step;
    uint16_t slot, width;
    uint32_t n_rows, count, body_bytes;
    double loss_sum, loss_count, val_sum, val_count;
    uint32_t checksum;
} frame_header;

/* Fills in the header except the checksum. */
static inline void frame_head(
    unsigned char *frame, int index_codec, int value_codec, uint32_t step, uint32_t slot, uint32_t n_rows,
    uint32_t width, size_t count, size_t body_bytes, const double stats[4]) {
    const frame_header header = {
        {'M', 'L', 'L', 'F'}, FRAME_VERSION, (uint8_t)index_codec, (uint8_t)value_codec, 0, step, (uint16_t)slot,
        (uint16_t)width, n_rows, (uint32_t)count, (uint32_t)body_bytes, stats[0], stats[1], stats[2], stats[3], 0};
    memcpy(frame, &header, FRAME_HEADER_BYTES);
}

static inline void frame_seal(unsigned char *frame, size_t size) {
    const uint32_t checksum = frame_checksum(frame, size);
    memcpy(frame + CHECKSUM_AT, &checksum, 4);
}

/* Fills in the header; 0, with the text of the fault, unless all that can be checked without the body is valid. */
static inline int frame_open(const unsigned char *frame, size_t size, frame_header *header, char fault[FRAME_FAULT]) {
    if (size < FRAME_HEADER_BYTES) {
        snprintf(fault, FRAME_FAULT, "frame of %zu bytes: must be at least %d", size, FRAME_HEADER_BYTES);
        return 0;
    }
    memcpy(header, frame, FRAME_HEADER_BYTES);
    if (memcmp(header->magic, "MLLF", 4) != 0) {
        snprintf(fault, FRAME_FAULT, "not a frame: must start with MLLF");
        return 0;
    }
    if (header->version != FRAME_VERSION) {
        snprintf(fault, FRAME_FAULT, "frame version %d: must be %d", header->version, FRAME_VERSION);
        return 0;
    }
    if (header->index_codec >= N_INDEX_CODECS || header->value_codec >= N_VALUE_CODECS || header->flags != 0) {
        snprintf(fault, FRAME_FAULT, "frame has index codec %d, value codec %d and flags %d: must be below %d, %d and 1",
                 header->index_codec, header->value_codec, header->flags, N_INDEX_CODECS, N_VALUE_CODECS);
        return 0;
    }
    if (header->body_bytes != size - FRAME_HEADER_BYTES || header->body_bytes > FRAME_MAX_BODY) {
        snprintf(fault, FRAME_FAULT, "frame's body has %zu bytes: its header says %u", size - FRAME_HEADER_BYTES,
                 header->body_bytes);
        return 0;
    }
    const uint64_t table = (uint64_t)header->n_rows * header->width;
    if (table > UINT32_MAX || header->count > table ||
        values_size(header->value_codec, header->count) > header->body_bytes) {
        snprintf(fault, FRAME_FAULT, "frame says %u values of %u x %d: too many", header->count, header->n_rows,
                 header->width);
        return 0;
    }
    return 1;
}

/* The number of ids in its index section: positions, or rows, or none (dense). */
static inline size_t frame_n_ids(const frame_header *header) {
    if (header->index_codec == INDEX_DENSE || header->width == 0) return 0;
    return header->index_codec == INDEX_ROWS ? header->count / header->width : header->count;
}

/* The begin of an opened frame's index section. */
static inline const unsigned char *frame_index(const unsigned char *frame, const frame_header *header) {
    return frame + FRAME_HEADER_BYTES + values_size(header->value_codec, header->count);
}

/* Checks the checksum, every length and every index of an opened frame, and decodes the ids (room for INDEX_SLACK more
 * than frame_n_ids; NULL if the index codec is bits, for frame_put_bits). 0, with the text of the fault, if anything is
 * invalid. */
static inline int frame_read_ids(
    const unsigned char *frame, const frame_header *header, uint32_t *ids, char fault[FRAME_FAULT]) {
    static const char *const names[] = {"dense", "u32", "varint", "rows", "rowmask", "bits"};
    const size_t size = FRAME_HEADER_BYTES + (size_t)header->body_bytes, n = frame_n_ids(header);
    const unsigned char *const index = frame_index(frame, header);
    const unsigned char *const end = frame + size;
    const uint32_t checksum = frame_checksum(frame, size);
    const uint64_t table = (uint64_t)header->n_rows * header->width;
    int valid = 0;
    if (checksum != header->checksum) {
        snprintf(fault, FRAME_FAULT, "frame's checksum is %#010x: its header says %#010x", checksum, header->checksum);
        return 0;
    }
    if (header->width == 0)
        valid = index == end;
    else
        switch (header->index_codec) {
            case INDEX_DENSE: valid = header->count == table && index == end; break;
            case INDEX_U32:
                if ((valid = (size_t)(end - index) == 4 * n)) {
                    memcpy(ids, index, 4 * n);
                    valid = u32_valid(ids, n, table);
                }
                break;
            case INDEX_VARINT: valid = varint_read(index, end, n, table, ids); break;
            case INDEX_ROWS:
                valid = header->count % header->width == 0 && varint_read(index, end, n, header->n_rows, ids);
                break;
            case INDEX_BITS: valid = bits_read(index, end, n, table, ids); break;
            case INDEX_ROWMASK: valid = rowmask_read(index, end, n, header->n_rows, header->width, ids); break;
        }
    if (!valid)
        snprintf(fault, FRAME_FAULT, "frame's %s indices are malformed or out of range", names[header->index_codec]);
    return valid;
}

/* Adds the values of a frame whose ids were decoded (without `add`: stores them). */
static inline void frame_put(
    const frame_header *header, const unsigned char *values, const uint32_t *ids, int add, size_t stride, float *x) {
    const size_t n = frame_n_ids(header), width = header->width;
    if (header->index_codec == INDEX_DENSE)
        put_dense(add, header->n_rows, width, stride, values, x);
    else if (header->index_codec == INDEX_ROWS)
        put_rows(add, n, ids, width, stride, values, x);
    else
        put_values(add, n, ids, width, stride, values, x);
}

/* The same for a frame whose bits were checked, and a table whose rows are not spaced. */
static inline void frame_put_bits(
    const unsigned char *frame, const frame_header *header, const unsigned char *values, int add, float *x) {
    const uint64_t table = (uint64_t)header->n_rows * header->width;
    put_bits(add, header->count, frame_index(frame, header), table, values, x);
}

#endif
