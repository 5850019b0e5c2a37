/* SPDX-License-Identifier: Apache-2.0 */
/* What is read of the virtual network (virtual.c): its counters, and what was lost where. */
#ifndef CANARY_NETWORK_COUNTS_H
#define CANARY_NETWORK_COUNTS_H
#include "links.h"

static uint64_t under_way(const part_t *part) {
    uint64_t n = part->far.n;
    for (uint32_t i = 0; i < WHEEL; i++) n += part->wheel[0][i].n + part->wheel[1][i].n;
    for (uint32_t i = 0; i < part->net->n_parts; i++)
        n += part->mail[0][i].parcels.n + part->mail[1][i].parcels.n;
    return n;
}

EXPORT const stats_t *net_stats(net_t *net) {
    stats_t *sum = &net->stats;
    memset(sum, 0, sizeof *sum);
    for (uint32_t p = 0; p < net->n_parts; p++) {
        const stats_t *one = &net->parts[p].stats;
        sum->sent += one->sent;
        sum->delivered += one->delivered;
        sum->fault_drops += one->fault_drops;
        sum->queue_drops += one->queue_drops;
        sum->ttl_drops += one->ttl_drops;
        sum->other_drops += one->other_drops;
        sum->misdelivered += one->misdelivered;
        sum->packet_hops += one->packet_hops;
        sum->in_flight += under_way(&net->parts[p]);
    }
    return sum;
}

/* The packets that a thread has lost since they were last taken: how many, and these, which the caller
 * puts in order. A large run loses gigabytes of them, so they are kept in one place. */
EXPORT uint64_t net_drops(const net_t *net, uint32_t part) { return net->parts[part].drops_n; }

EXPORT void net_take_drops(net_t *net, uint32_t p, drop_t *to) {
    part_t *part = &net->parts[p];
    if (!part->drops_n) return;
    memcpy(to, part->drops, part->drops_n * sizeof(drop_t));
    free(part->drops);
    part->drops = NULL;
    part->drops_n = part->drops_cap = 0;
}

EXPORT uint64_t net_replies(const net_t *net, uint32_t part, const reply_t **replies) {
    *replies = net->parts[part].replies;
    return net->parts[part].replies_n;
}

EXPORT void net_link_packets(const net_t *net, uint64_t *packets) {
    for (uint32_t i = 0; i < net->n_links; i++) packets[i] = net->links[i].packets;
}

/* The most bytes that a packet found waiting on each link since the last call, and their sum over all
 * packets so far. */
EXPORT void net_depths(net_t *net, uint64_t *largest, uint64_t *sum) {
    for (uint32_t i = 0; i < net->n_links; i++) {
        largest[i] = net->depths[i].largest;
        sum[i] = net->depths[i].sum;
        net->depths[i].largest = 0;
    }
}

#endif
