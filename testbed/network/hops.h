/* SPDX-License-Identifier: Apache-2.0 */
/* One packet-hop of the virtual network (virtual.c): a frame arrives at a switch, and goes on. */
#ifndef CANARY_NETWORK_HOPS_H
#define CANARY_NETWORK_HOPS_H
#include "links.h"

static void drop(part_t *part, frame_t *frame) {
    const ss_result *result = &part->result;
    stats_t *stats = &part->stats;
    uint8_t cause = VERDICT_CAUSE(result->observed);
    uint32_t link = NOWHERE;
    if (result->queue_dropped) {
        cause = CAUSE_QUEUE;
        link = leaving(part, result->egress_port);
        stats->queue_drops++;
    } else if (cause == CAUSE_FAULT) {
        /* at its egress it was on its way out already, at its ingress not in yet */
        link = result->egress_port == SS_NO_PORT ? frame->link : leaving(part, result->egress_port);
        stats->fault_drops++;
    } else if (cause == CAUSE_CORRUPT) {
        link = frame->link;
        stats->fault_drops++;
    } else if (cause == CAUSE_TTL) {
        stats->ttl_drops++;
    } else {
        stats->other_drops++;
    }
    log_drop(part, frame, link, cause, result->observed);
    frame_free(part, frame);
}

/* The bytes of a frame become those of a switch's output, which lies in them for the most part. */
static void take_output(frame_t *frame, const ss_packet *out) {
    const uintptr_t at = (uintptr_t)out->data - (uintptr_t)frame->data;
    frame->length = out->length;
    if (at < sizeof frame->data) {
        frame->begin = (uint16_t)at;
        frame->stored = (uint16_t)out->stored;
        return;
    }
    frame->begin = FRAME_ROOM;
    frame->stored = (uint16_t)(out->stored < FRAME_HEAD ? out->stored : FRAME_HEAD);
    memcpy(frame->data + FRAME_ROOM, out->data, frame->stored);
}

/* Pass a frame through the adapter of a host, a switch of its own program, at once: from the host, or
 * from its ToR. Returns 0 if the adapter dropped it. */
static __attribute__((noinline)) int adapt(part_t *part, frame_t *frame, uint32_t host,
                                           uint32_t port, uint64_t now) {
    const net_t *net = part->net;
    ss_result *result = &part->of_adapter;
    complete(net, frame);
    const ss_arrival in = {frame->data, frame->data + frame->begin, now / 1000,
                           (uint16_t)port, frame->stored,           frame->length};
    net->adapter(net->adapters[host], &in, NULL, part, result);
    if (result->n) {
        take_output(frame, &result->packets[0]);
        return 1;
    }
    const uint64_t before = part->now; /* the switch before it has not done with its packet */
    const uint32_t current = part->current;
    const uint8_t cause = VERDICT_CAUSE(result->observed);
    part->now = now;
    part->current = net->n_switches + host;
    if (cause == CAUSE_CORRUPT) /* by the link that it came on */
        part->stats.fault_drops++;
    else
        part->stats.other_drops++;
    log_drop(part, frame, cause == CAUSE_CORRUPT ? frame->link : NOWHERE, cause, result->observed);
    frame_free(part, frame);
    part->now = before;
    part->current = current;
    return 0;
}

/* Send on what a switch makes of a frame: the first of its outputs in the frame itself. */
static inline __attribute__((always_inline)) void send_on(part_t *part, frame_t *frame,
                                                          const ss_packet *out, int ordered) {
    uint32_t index = leaving(part, out->port);
    take_output(frame, out);
    if (index == NOWHERE) {
        part->stats.other_drops++;
        frame_free(part, frame);
    } else {
        transmit(part, frame, index, part->now, ordered);
    }
}

/* The same of several outputs. A copy is one more packet in the network. */
static __attribute__((noinline)) void send_all_on(part_t *part, frame_t *frame,
                                                    int ordered) {
    const ss_result *result = &part->result;
    const uint32_t tag = frame->tag, kind = frame->kind, to = frame->to;
    const uint64_t born = frame->born;
    for (uint32_t i = 0; i < result->n; i++) {
        if (i) {
            if (!(frame = frame_new(part))) return;
            part->stats.sent++;
            frame->tag = tag;
            frame->kind = kind & 0xff;
            frame->to = to & 0xffffff;
            frame->born = born;
        }
        send_on(part, frame, &result->packets[i], ordered);
    }
}

static inline __attribute__((always_inline)) void arrive(part_t *part, frame_t *frame,
                                                         uint64_t time, int ordered) {
    net_t *net = part->net;
    ss_result *result = &part->result;
    part->now = time;
    complete(net, frame);
    const ss_arrival in = {frame->data, frame->data + frame->begin, time / 1000,
                           frame->port, frame->stored,              frame->length};
    net->forward(net->switches[part->current], &in, net->admit, part, result);
    part->stats.packet_hops++;
    uint64_t verdict = result->observed;
    if (VERDICT_EXPIRED(verdict) && VERDICT_CAUSE(verdict) != CAUSE_TTL) {
        /* the packet expired here and an ICMP message goes back in its place */
        part->stats.ttl_drops++;
        part->stats.sent++;
        frame->kind = KIND_REPLY;
    }
    if (result->n == 0) {
        drop(part, frame);
        return;
    }
    if (__builtin_expect(result->n > 1, 0))
        send_all_on(part, frame, ordered);
    else
        send_on(part, frame, &result->packets[0], ordered);
}
#endif
