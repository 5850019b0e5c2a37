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
    uint8_t *data = out->data;
    frame->length = out->length;
    if (data >= frame->data && data < frame->data + sizeof frame->data) {
        frame->begin = (uint16_t)(data - frame->data);
        frame->stored = (uint16_t)out->stored;
        return;
    }
    frame->begin = FRAME_ROOM;
    frame->stored = (uint16_t)(out->stored < FRAME_HEAD ? out->stored : FRAME_HEAD);
    memcpy(frame->data + FRAME_ROOM, data, frame->stored);
}

/* Send on what a switch makes of a frame: the first of its outputs in the frame itself. */
static inline void send_on(part_t *part, frame_t *frame, const ss_packet *out) {
    uint32_t index = leaving(part, out->port);
    take_output(frame, out);
    if (index == NOWHERE) {
        part->stats.other_drops++;
        frame_free(part, frame);
    } else {
        transmit(part, frame, index, part->now);
    }
}

/* A copy is one more packet in the network. */
static __attribute__((noinline)) void send_copies(part_t *part, const frame_t *frame) {
    const ss_result *result = &part->result;
    for (uint32_t i = 1; i < result->n; i++) {
        frame_t *copy = frame_new(part);
        if (!copy) return;
        part->stats.sent++;
        copy->tag = frame->tag;
        copy->kind = frame->kind;
        copy->to = frame->to;
        send_on(part, copy, &result->packets[i]);
    }
}

static inline void arrive(part_t *part, frame_t *frame, uint64_t time) {
    net_t *net = part->net;
    ss_result *result = &part->result;
    part->now = time;
    complete(net, frame);
    const ss_arrival in = {frame->data, frame->data + frame->begin, time / 1000,
                           frame->port, frame->stored,              frame->length};
    net->forward(net->switches[part->current], &in, net->rated ? admit : NULL, part, result);
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
    if (__builtin_expect(result->n > 1, 0)) {
        const frame_t model = *frame;
        send_on(part, frame, &result->packets[0]);
        send_copies(part, &model);
        return;
    }
    send_on(part, frame, &result->packets[0]);
}
#endif
