/* SPDX-License-Identifier: Apache-2.0 */
/* What a sender left to its interface: a veth has no hardware that would do it, so it is done here.
 *
 * The kernel sends TCP and UDP over a veth with checksums that are begun only, and TCP in frames of
 * up to 64 KiB that the interface is to cut. AF_PACKET's vnet header says so of each frame. */
#include <linux/virtio_net.h>

#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

static uint64_t pp_sum(const uint8_t *data, uint32_t n) {
    uint64_t sum = 0;
    for (; n >= 4; n -= 4, data += 4) {
        uint32_t x;
        memcpy(&x, data, 4);
        sum += x;
    }
    if (n) {
        uint32_t x = 0;
        memcpy(&x, data, n);
        sum += x;
    }
    return sum;
}
static uint16_t pp_fold(uint64_t sum) {
    while (sum >> 16) sum = (sum & 0xFFFF) + (sum >> 16);
    return (uint16_t)~sum;
}
static void pp_put16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}
static uint32_t pp_get16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }

/* Completes a checksum whose pseudo-header is in its place already. */
static void pp_checksum(const struct virtio_net_hdr *h, uint8_t *data, uint32_t length) {
    uint32_t start = h->csum_start, at = start + h->csum_offset;
    uint16_t sum;
    if (start > length || at + 2 > length) return;
    sum = pp_fold(pp_sum(data + start, length - start));
    if (!sum && h->csum_offset == 6) sum = 0xFFFF; /* of UDP 0 means that there is none */
    memcpy(data + at, &sum, 2);
}

typedef struct { uint32_t l3, l4, head, next, ip6, udp; } pp_cut; /* next: how far it is cut */

/* Whether a frame is one to be cut; its headers. */
static int pp_cut_begin(const struct virtio_net_hdr *h, const uint8_t *data, uint32_t length,
                        pp_cut *c) {
    uint32_t kind = h->gso_type & ~VIRTIO_NET_HDR_GSO_ECN, type;
    c->l3 = 14;
    while ((type = length > c->l3 ? pp_get16(data + c->l3 - 2) : 0) == 0x8100 || type == 0x88A8)
        c->l3 += 4;
    c->l4 = h->csum_start;
    c->ip6 = type == 0x86DD;
    c->udp = kind == VIRTIO_NET_HDR_GSO_UDP_L4;
    if (!h->gso_size || !(h->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)) return 0;
    if (!c->udp && kind != VIRTIO_NET_HDR_GSO_TCPV4 && kind != VIRTIO_NET_HDR_GSO_TCPV6) return 0;
    if (!c->ip6 && type != 0x0800) return 0;
    if (c->l4 < c->l3 + (c->ip6 ? 40 : 20) || c->l4 + 20 > length) return 0;
    c->head = c->l4 + (c->udp ? 8 : 4u * (data[c->l4 + 12] >> 4));
    c->next = c->head;
    return c->head > c->l4 && c->head < length;
}

/* The next packet of a frame into `to`, which has room for its headers and gso_size: its length, 0
 * after the last. `index`: how many came before it. */
static uint32_t pp_cut_next(const struct virtio_net_hdr *h, const uint8_t *data, uint32_t length,
                            pp_cut *c, uint32_t index, uint8_t *to) {
    uint32_t n = length - c->next < h->gso_size ? length - c->next : h->gso_size;
    uint32_t size = c->head + n, l4 = size - c->l4, at = c->l4 + (c->udp ? 6 : 16);
    uint8_t *ip = to + c->l3;
    uint64_t sum;
    uint16_t checksum = 0;
    if (!n) return 0;
    memcpy(to, data, c->head);
    memcpy(to + c->head, data + c->next, n);
    if (c->udp) {
        pp_put16(to + c->l4 + 4, l4);
    } else {
        uint32_t seq;
        memcpy(&seq, to + c->l4 + 4, 4);
        seq = __builtin_bswap32(__builtin_bswap32(seq) + c->next - c->head);
        memcpy(to + c->l4 + 4, &seq, 4);
        if (c->next + n < length) to[c->l4 + 13] &= (uint8_t)~0x09; /* FIN, PSH: of the last */
        if (index) to[c->l4 + 13] &= 0x7F;                          /* CWR: of the first */
    }
    if (c->ip6) {
        pp_put16(ip + 4, size - c->l3 - 40);
        sum = pp_sum(ip + 8, 32);
    } else {
        pp_put16(ip + 2, size - c->l3);
        pp_put16(ip + 4, pp_get16(ip + 4) + index);
        memset(ip + 10, 0, 2);
        checksum = pp_fold(pp_sum(ip, 4u * (ip[0] & 15)));
        memcpy(ip + 10, &checksum, 2);
        sum = pp_sum(ip + 12, 8);
    }
    memset(to + at, 0, 2);
    sum += __builtin_bswap16((uint16_t)(c->udp ? 17 : 6)) + __builtin_bswap16((uint16_t)l4);
    checksum = pp_fold(sum + pp_sum(to + c->l4, l4));
    if (!checksum && c->udp) checksum = 0xFFFF;
    memcpy(to + at, &checksum, 2);
    c->next += n;
    return size;
}
