/* SPDX-License-Identifier: Apache-2.0 */
/* The virtual network (virtual.c) on one thread, in the order of time.
 *
 * Where all links have the same delay and none has a rate, what is sent on later arrives later, too:
 * the events wait in a queue, without windows, and only simultaneous ones are sorted.
 */
#ifndef CANARY_NETWORK_IN_ORDER_H
#define CANARY_NETWORK_IN_ORDER_H
#include "hops.h"

/* A frame's place among simultaneous ones: by link, then as they were put on it. */
static inline uint64_t turn(const waiting_t *one) {
    return (uint64_t)one->frame->link << 32 | one->frame->number;
}

static int by_time(const void *a, const void *b) {
    const waiting_t *one = a, *two = b;
    if (one->time != two->time) return one->time < two->time ? -1 : 1;
    return turn(one) < turn(two) ? -1 : turn(one) > turn(two);
}

/* Make room: behind events that have been run, or by twice as much memory. One place is left free, for
 * one that is never due. Events keep their numbers. */
static __attribute__((noinline)) int widen(queue_t *queue) {
    uint64_t cap = queue->items ? queue->mask + 1 : 0, n = queue->tail - queue->head;
    if (n >= cap / 2) {
        cap = cap ? 2 * cap : 1024;
        waiting_t *items = calloc(cap, sizeof *items);
        if (!items) return 0;
        for (uint64_t i = queue->tail; i != queue->head + cap; i++) items[i & (cap - 1)].time = NEVER;
        for (uint64_t i = queue->head; i != queue->tail; i++)
            items[i & (cap - 1)] = queue->items[i & queue->mask];
        free(queue->items);
        queue->items = items;
        queue->mask = cap - 1;
    }
    queue->limit = queue->head + cap - 1;
    return 1;
}

static inline void sort_turns(waiting_t *items, uint64_t n) {
    for (uint64_t i = 1; i < n; i++) {
        const waiting_t one = items[i];
        const uint64_t its = turn(&one);
        waiting_t *at = items + i;
        for (; at > items && its < turn(at - 1); at--) *at = at[-1];
        *at = one;
    }
}

/* Sort the events that are due at the time of the first: few, for the most part. */
static __attribute__((noinline)) void sort_simultaneous(queue_t *queue, uint64_t time) {
    waiting_t *items = queue->items;
    const uint64_t first = queue->head, mask = queue->mask;
    uint64_t end = first + 1;
    while (items[end & mask].time == time) end++;
    queue->sorted = end;
    const uint64_t n = end - first;
    if ((first & mask) + n <= mask + 1) {
        if (n > FEW)
            qsort(items + (first & mask), n, sizeof *items, by_time);
        else
            sort_turns(items + (first & mask), n);
        return;
    }
    for (uint64_t i = first + 1; i < end; i++) { /* they go round the end */
        const waiting_t one = items[i & mask];
        uint64_t j = i;
        for (; j > first && turn(&one) < turn(&items[(j - 1) & mask]); j--)
            items[j & mask] = items[(j - 1) & mask];
        items[j & mask] = one;
    }
}

/* Take all events that wait elsewhere into the queue. */
static void take_all(net_t *net, uint64_t begin, uint64_t end) {
    queue_t *queue = &net->queue;
    part_t *first = net->parts;
    queue->head = queue->tail = queue->sorted = 0;
    queue->limit = queue->items ? queue->mask : 0;
    for (uint32_t p = 0; p < net->n_parts; p++) {
        part_t *part = &net->parts[p];
        const uint64_t now = begin / part->window_ns;
        part->until = end;
        find_all(part);
        for (uint32_t i = 0; i < part->far.n; i++)
            wait_in(first, part->far.items[i].time, part->far.items[i].frame);
        part->far.n = 0;
        for (uint32_t i = 0; i < 2 * net->n_parts; i++) {
            parcels_t *mail = &part->mail[i / net->n_parts][i % net->n_parts].parcels;
            for (uint64_t m = 0; m < mail->n; m++)
                wait_in(first, mail->items[m].time, mail->items[m].frame);
            mail->n = 0;
        }
        for (uint32_t i = 0; i < WHEEL; i++) {
            uint64_t window = now + i, due = part->due[window % WHEEL / 64] >> window % 64;
            if (!due) i += 63 - window % 64; /* nor in the windows of the same word behind it */
            if (!(due & 1)) continue;
            for (uint32_t rest = 0; rest < 2; rest++) {
                events_t *bucket = &part->wheel[rest][window % WHEEL];
                for (uint32_t e = 0; e < bucket->n; e++)
                    wait_in(first, window * part->window_ns + KEY_LATE(bucket->items[e]),
                            bucket->items[e].frame);
                bucket->n = 0;
            }
        }
        memset(part->due, 0, sizeof part->due);
    }
    if (queue->tail) qsort(queue->items, queue->tail, sizeof *queue->items, by_time);
}

/* Put the events that are left, at `end`, to the parts that they are of. */
static void give_all(net_t *net, uint64_t end) {
    queue_t *queue = &net->queue;
    for (uint32_t p = 0; p < net->n_parts; p++) {
        net->parts[p].sent_until = end;
        enter(&net->parts[p], end / net->window_ns);
        find_all(&net->parts[p]);
    }
    for (; queue->head < queue->tail; queue->head++) {
        waiting_t *one = &queue->items[queue->head & queue->mask];
        const link_t *link = &net->links[one->frame->link];
        part_t *part = &net->parts[link->to_host ? net->host_owner[link->dst] : link->owner];
        file(part, one->frame, link->to_host ? part->n_switches : link->place, one->time);
        one->time = NEVER;
    }
}

/* The part whose host sends next, its source, and when; NEVER: none is left. `others`: when the first
 * of the other sources of all parts sends. */
static part_t *next_sender(net_t *net, uint32_t *source, uint64_t *time, uint64_t *others) {
    part_t *part = NULL;
    *time = *others = NEVER;
    for (uint32_t p = 0; p < net->n_parts; p++)
        for (uint32_t i = 0; i < net->n_sources; i++) {
            uint64_t at = net->parts[p].next_time[i];
            if (at < *time) {
                *others = *time;
                *time = at;
                part = &net->parts[p];
                *source = i;
            } else if (at < *others) {
                *others = at;
            }
        }
    return part;
}

/* Run every event before `end`. The first part stands for all. */
static void run_in_order(net_t *net, uint64_t begin, uint64_t end) {
    queue_t *queue = &net->queue;
    part_t *part = net->parts, *sender;
    uint32_t source = 0;
    uint64_t sends, others;
    take_all(net, begin, end);
    if (!queue->items && !widen(queue)) {
        part->oom = 1;
        return;
    }
    sender = next_sender(net, &source, &sends, &others);
    for (;;) {
        waiting_t *items = queue->items;
        const uint64_t head = queue->head, mask = queue->mask, time = items[head & mask].time;
        if (sends <= time) {
            if (sends >= end) break;
            send_next(sender, source, 1);
            find_next(sender, source);
            sends = sender->next_time[source];
            if (sends >= others) sender = next_sender(net, &source, &sends, &others);
            continue;
        }
        if (time >= end) break;
        if (__builtin_expect(items[(head + 1) & mask].time == time, 0) && head >= queue->sorted)
            sort_simultaneous(queue, time);
        frame_t *frame = items[head & mask].frame;
        const link_t *link = &net->links[frame->link];
        items[head & mask].time = NEVER;
        queue->head = head + 1;
        if (__builtin_expect(link->to_host, 0)) {
            deliver(part, frame, link->dst, time);
            continue;
        }
        part->current = link->dst;
        part->ports = link->ports;
        arrive(part, frame, time, 1);
    }
    give_all(net, end);
}
#endif
