/* SPDX-License-Identifier: Apache-2.0 */
/* Sources: the frames that hosts send, in virtual time (virtual.c) and in real time (hosts.c).
 *
 * `testbed.network.sources` fills these structures and has checked what is in them: packets sorted
 * by time and of known flows, templates and sizes no longer than the network takes.
 */
#ifndef CANARY_NETWORK_SOURCES_H
#define CANARY_NETWORK_SOURCES_H
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_SOURCES 8

typedef struct {
    uint64_t n, next;
    const uint64_t *time;
    const uint32_t *flow;
    const uint16_t *size; /* frame bytes; NULL: the template is the whole frame */
    const uint8_t *ttl;   /* NULL: the template's; otherwise a traceroute of the flow */
    const uint8_t *templates; /* zero behind their lengths, to a multiple of 16 bytes */
    const uint16_t *template_length;
    uint32_t stride, flows;
    const uint32_t *src_host, *dst_host;
    uint32_t *sent, *delivered;
    uint64_t *travelled; /* ns that the delivered took; NULL: not noted. virtual.c alone does */
    uint64_t heard;      /* whether hosts react to what arrives (ranks.h), in virtual.c alone */
} source_t;

/* An ICMP message that a host received. */
typedef struct {
    uint64_t time;
    uint32_t host;
    uint32_t length;
    uint8_t data[96];
} reply_t;

static inline void put16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

/* Internet checksum of an IP header of 20 bytes, in the order of its bytes. */
static inline uint16_t ip_checksum(const uint8_t *ip) {
    uint64_t sum = 0;
#pragma GCC unroll 5
    for (int i = 0; i < 20; i += 4) {
        uint32_t word;
        memcpy(&word, ip + i, 4);
        sum += word;
    }
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

/* Whether frames differ from their flow's template: in size, or in TTL. */
static inline int varies(const source_t *source) { return source->size || source->ttl; }

/* Give the frame of a source's packet `at`, which is its flow's template so far, lengths, IP ID, TTL
 * and IP checksum of its own. Returns its length. */
static inline uint32_t fill_in(const source_t *source, uint64_t at, uint8_t *frame) {
    uint32_t flow = source->flow[at], size = source->template_length[flow];
    if (!varies(source)) return size;
    if (source->size && source->size[at] > size) size = source->size[at];
    uint8_t *ip = frame + 14;
    put16(ip + 2, size - 14);
    put16(ip + 4, source->ttl ? source->ttl[at] : source->sent[flow]);
    if (source->ttl) ip[8] = source->ttl[at];
    put16(ip + 10, 0);
    uint16_t checksum = ip_checksum(ip);
    memcpy(ip + 10, &checksum, 2);
    if (ip[9] == 17) put16(ip + 24, size - 34);
    return size;
}

static inline void write_reply(reply_t *reply, uint64_t time, uint32_t host, const uint8_t *frame,
                               uint32_t length) {
    memset(reply, 0, sizeof *reply);
    reply->time = time;
    reply->host = host;
    reply->length = length < sizeof reply->data ? length : sizeof reply->data;
    memcpy(reply->data, frame, reply->length);
}
#endif
