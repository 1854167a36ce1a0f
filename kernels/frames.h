/* Frame bodies: values (float32) first, so that they stay aligned, then the index section. Little-endian only. */
#ifndef MLLESS_FRAMES_H
#define MLLESS_FRAMES_H

#include "crc32c.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frames are copied as they are: a big-endian machine would need byte swaps"
#endif

#define FRAME_HEADER_BYTES 64
#define FRAME_CRC_AT 60

typedef struct __attribute__((packed)) {
    char magic[4];
    uint8_t version, index_codec, value_codec, flags;
    uint32_t step;
    uint16_t slot, width;
    uint32_t n_rows, count, body_bytes;
    double loss_sum, loss_count, val_sum, val_count;
    uint32_t crc;
} frame_header;

/* The checksum over everything but itself. */
static uint32_t frame_crc(const unsigned char *frame, size_t size) {
    return crc32c_of(crc32c_of(0, frame, FRAME_CRC_AT), frame + FRAME_HEADER_BYTES, size - FRAME_HEADER_BYTES);
}

/* Ascending ids as varints (seven bits a byte, low first) of id - previous - 1; the first as it is. */
static inline uint32_t gap_at(const uint32_t *ids, size_t k) { return k ? ids[k] - ids[k - 1] - 1 : ids[0]; }

static size_t varint_size(const uint32_t *ids, size_t n) {
    size_t size = n;
    for (size_t start = 0; start < n; start += 4096) { /* a 32-bit sum, and so quick */
        const size_t end = n - start < 4096 ? n : start + 4096;
        uint32_t more = 0;
        for (size_t k = start ? start : 1; k < end; k++) {
            const uint32_t gap = ids[k] - ids[k - 1] - 1;
            more += (gap >= 1u << 7) + (gap >= 1u << 14) + (gap >= 1u << 21) + (gap >= 1u << 28);
        }
        size += more;
    }
    if (n) size += (ids[0] >= 1u << 7) + (ids[0] >= 1u << 14) + (ids[0] >= 1u << 21) + (ids[0] >= 1u << 28);
    return size;
}

static void varint_write(const uint32_t *ids, size_t n, unsigned char *out) {
    size_t k = 0;
    while (k < n) {
        if (k && n - k >= 16) { /* sixteen gaps of one byte each, mostly */
            uint32_t gaps[16], any = 0;
            for (int j = 0; j < 16; j++) any |= gaps[j] = ids[k + j] - ids[k + j - 1] - 1;
            if (any < 128) {
                for (int j = 0; j < 16; j++) out[j] = (unsigned char)gaps[j];
                out += 16;
                k += 16;
                continue;
            }
        }
        const size_t end = n - k > 16 ? k + 16 : n;
        for (; k < end; k++) {
            uint32_t gap = gap_at(ids, k);
            while (gap >= 128) {
                *out++ = (unsigned char)(gap | 128);
                gap >>= 7;
            }
            *out++ = (unsigned char)gap;
        }
    }
}

/* Reads one gap; NULL when it does not end before `end`, is longer than need be, or exceeds 32 bits. */
static inline const unsigned char *varint_next(const unsigned char *at, const unsigned char *end, uint64_t *gap) {
    if (at == end) return NULL;
    uint64_t value = *at++;
    if (value >= 128) {
        value &= 127;
        for (int shift = 7;; shift += 7) {
            if (at == end || shift > 28) return NULL;
            const uint64_t byte = *at++;
            value |= (byte & 127) << shift;
            if (byte < 128) {
                if (byte == 0 || value > UINT32_MAX) return NULL;
                break;
            }
        }
    }
    *gap = value;
    return at;
}

/* Whether [at, end) holds exactly n ids, all below `high`. */
static int varint_valid(const unsigned char *at, const unsigned char *end, size_t n, uint64_t high) {
    uint64_t next = 0, gap;
    size_t k = 0;
    while (k < n) {
        uint64_t eight;
        if (end - at >= 8 && n - k >= 8 && (memcpy(&eight, at, 8), (eight & 0x8080808080808080u) == 0)) {
            /* eight gaps of one byte: a product sums four 16-bit lanes into its top one */
            next += 8 + ((eight & 0x00ff00ff00ff00ffu) * 0x0001000100010001u >> 48) +
                    ((eight >> 8 & 0x00ff00ff00ff00ffu) * 0x0001000100010001u >> 48);
            at += 8;
            k += 8;
        } else {
            at = varint_next(at, end, &gap);
            if (!at) return 0;
            next += gap + 1;
            k++;
        }
        if (next > high) return 0;
    }
    return at == end;
}

static int u32_valid(const uint32_t *ids, size_t n, uint64_t high) {
    int wrong = 0;
    for (size_t k = 1; k < n; k++) wrong |= ids[k] <= ids[k - 1];
    return n == 0 || (!wrong && ids[n - 1] < high);
}

/* The loops below run on what was found valid. */
static void varint_read(const unsigned char *at, size_t n, uint32_t *ids) {
    uint64_t next = 0, gap = 0;
    for (size_t k = 0; k < n; k++) {
        at = varint_next(at, at + 5, &gap);
        ids[k] = (uint32_t)(next + gap);
        next += gap + 1;
    }
}

static void varint_add(const unsigned char *at, size_t n, const float *values, float *params) {
    size_t k = 0;
    float *next = params;
    for (; n - k >= 8; k += 8) {
        uint64_t eight;
        memcpy(&eight, at, 8); /* at least as many bytes as ids are left */
        if ((eight & 0x8080808080808080u) == 0) {
            for (int j = 0; j < 8; j++, eight >>= 8) {
                next += eight & 127;
                *next++ += values[k + j];
            }
            at += 8;
        } else
            for (int j = 0; j < 8; j++) {
                uint64_t gap = 0;
                at = varint_next(at, at + 5, &gap);
                next += gap;
                *next++ += values[k + j];
            }
    }
    for (; k < n; k++) {
        uint64_t gap = 0;
        at = varint_next(at, at + 5, &gap);
        next += gap;
        *next++ += values[k];
    }
}

static void rows_add(const unsigned char *at, size_t m, size_t width, const float *values, float *params) {
    float *next = params;
    for (size_t r = 0; r < m; r++) {
        uint64_t gap = 0;
        at = varint_next(at, at + 5, &gap);
        next += gap * width;
        for (size_t c = 0; c < width; c++) next[c] += values[r * width + c];
        next += width;
    }
}

static void u32_add(const uint32_t *ids, size_t n, const float *values, float *params) {
    for (size_t k = 0; k < n; k++) params[ids[k]] += values[k];
}

static void dense_add(size_t n, const float *values, float *params) {
    for (size_t k = 0; k < n; k++) params[k] += values[k];
}

#endif
