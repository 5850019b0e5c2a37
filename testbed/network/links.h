/* SPDX-License-Identifier: Apache-2.0 */
/* What the virtual network (virtual.c) is made of: threads and what they own, links, hosts. */
#ifndef CANARY_NETWORK_LINKS_H
#define CANARY_NETWORK_LINKS_H
#include <stdatomic.h>
#include <sys/types.h>

#include "abi.h"
#include "frames.h"
#include "sources.h"

#define NOWHERE UINT32_MAX
#define SOON 8     /* packets of a source ahead of which their flow is fetched into the cache */

typedef int (*forward_fn)(ss_switch *, const ss_arrival *, ss_admit_fn, void *, ss_result *);

/* VERDICT_* and the other CAUSE_* stand before this file: they are the P4 program's
 * (testbed/dataplane). */
enum { CAUSE_QUEUE = 100 };
enum { KIND_REPLY = 255 };
enum { FROM_HOST = 1, FROM_TOR = 2 }; /* ports of an adapter, as its program has them */

typedef struct {
    uint64_t time;
    uint32_t tag;
    uint32_t link; /* NOWHERE when dropped by a switch for no link's fault */
    uint32_t at;   /* switch */
    uint8_t cause, counted, parity, kind;
} drop_t;

typedef struct {
    uint32_t dst;      /* switch index, or host index where to_host */
    uint32_t dst_port; /* of the switch */
    uint32_t to_host;
    uint32_t owner; /* of a link to a switch: whose thread that is, */
    uint64_t delay;
    uint64_t rate;  /* bits per second, 0 = infinite */
    uint64_t queue; /* bytes */
    uint64_t busy_until;
    uint64_t packets;
    uint32_t place; /* and its number there */
    uint32_t ports; /* and where its ports are in port_link */
} __attribute__((aligned(64))) link_t;

/* Bytes that packets found waiting on a link with a rate: the most, and the sum over packets. */
typedef struct {
    uint64_t largest, sum;
} depth_t;

typedef struct {
    uint64_t sent, delivered, fault_drops, queue_drops, ttl_drops, other_drops, misdelivered;
    uint64_t packet_hops, in_flight;
} stats_t;

typedef struct net_t net_t;
typedef struct ranks ranks_t;

/* A network's parts as Python gives them; the arrays are copied. */
typedef struct {
    ss_switch **switches;
    forward_fn forward;
    const link_t *links;       /* fabric, then host->ToR, then ToR->host */
    const uint32_t *port_link; /* [n_switches * max_port] outgoing link */
    const uint32_t *owner;     /* of each switch: its thread, */
    const uint32_t *place;     /* and its number there */
    const uint32_t *boundary;  /* of each thread: how many of its first switches have links to other
                                  threads' switches */
    uint64_t window_ns;
    uint32_t n_switches, n_links, n_hosts, n_parts;
    uint32_t host_link; /* the first link of a host */
    uint32_t max_port;
    uint32_t head; /* bytes of a frame that are stored */
    uint32_t always;
    ss_switch **adapters; /* of each host; NULL: hosts have none */
    forward_fn adapter;
} setup_t;

/* A thread and what it owns. */
typedef struct {
    _Atomic uint64_t done; /* windows of which others may have the results */
    net_t *net __attribute__((aligned(64)));
    uint32_t number, n_switches, n_boundary;
    uint32_t current, ports; /* the switch that has a packet, and where its ports are in port_link */
    uint64_t now, until, window, window_ns;
    uint64_t next_begin; /* when the next window begins */
    uint64_t near_until; /* the window by which `far` is looked through again */
    uint64_t sent_until; /* hosts have sent what they send before */
    uint64_t step;       /* stretches of time that have begun, of all runs */
    uint32_t *switches;  /* those with links to other threads' switches first */
    uint32_t *first;     /* scratch, as are the sorted events */
    event_t *sorted;     /* twice `sorted_cap` */
    uint64_t sorted_cap;
    uint64_t due[WHEEL / 64]; /* a bit for each window of the wheel in which something is due */
    events_t wheel[2][WHEEL]; /* of switches with links to other threads' switches; of the rest */
    events_t spare[2 * WHEEL]; /* memory of windows that are over; the last one's is in the cache */
    uint32_t spare_n;
    parcels_t far;     /* due beyond the wheel */
    deeds_t deeds;     /* of this thread's hosts (ranks.h) */
    mail_t *mail[2];   /* of a window, to each thread */
    stack_t_ frames;
    stats_t stats;
    drop_t *drops;
    uint64_t drops_n, drops_cap;
    reply_t *replies;
    uint64_t replies_n, replies_cap;
    uint64_t next[MAX_SOURCES];      /* packet of each source, */
    uint64_t next_time[MAX_SOURCES]; /* and when; NEVER: none is left */
    uint64_t next_send;              /* the window after the first of these */
    ss_result result, of_adapter;
    int oom;
    pthread_t thread;
} __attribute__((aligned(64))) part_t;

struct net_t {
    stats_t stats;
    uint64_t now, window_ns;
    uint32_t n_switches, n_links, n_hosts, max_port, n_sources, n_parts, host_link, head;
    ss_admit_fn admit; /* asks whether a queue has room; NULL: no link has a rate, so that none fills */
    ss_switch **switches;
    forward_fn forward;
    ss_switch **adapters; /* of each host; NULL: hosts have none */
    forward_fn adapter;
    uint32_t *host_owner;
    uint32_t *port_link; /* [n_switches * max_port] outgoing link */
    link_t *links;       /* fabric, then host->ToR, then ToR->host */
    depth_t *depths;     /* of their queues */
    source_t sources[MAX_SOURCES];
    ranks_t *ranks; /* NULL: hosts answer nothing */
    struct rank_state {
        struct sender *senders;
        struct receiver *receivers;
        struct rank *ranks;
        uint32_t *waits; /* [2 * n_messages]: what each message still needs */
        uint64_t *bits;
    } state;
    pool_t pool;
    queue_t queue; /* of all events, while one thread runs them in the order of time */
    int alike;     /* all links have the same delay, and none has a rate */
    part_t *parts;
    uintptr_t large_pages; /* where the part of the heap ends that has them */
    pid_t pid; /* whose threads they are */
    int started, ending;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint64_t begin, end;  /* of the run that threads are to join, */
    _Atomic uint64_t run; /* and its number */
    _Atomic uint32_t finished;
    int always;              /* threads are used where they are slower, too */
    double speed[2];         /* packet-hops a ns that one thread and all have made of late */
    uint32_t trial, between; /* stretches to the next trial of the slower, and between trials */
};

/* ---- frames and events ------------------------------------------------------------------- */

static inline frame_t *frame_new(part_t *part) {
    if (__builtin_expect(!part->frames.n, 0) && !refill(&part->net->pool, &part->frames)) {
        part->oom = 1;
        return NULL;
    }
    return part->frames.items[--part->frames.n];
}

static inline void frame_free(part_t *part, frame_t *frame) {
    if (__builtin_expect(part->frames.n == 2 * BATCH, 0) &&
        !give_back(&part->net->pool, &part->frames))
        part->oom = 1;
    else
        part->frames.items[part->frames.n++] = frame;
}

/* Room for one more event of a window; the first gets the memory of a window that is over. */
static __attribute__((noinline)) int make_room(part_t *part, events_t *events) {
    if (!events->cap && part->spare_n) {
        *events = part->spare[--part->spare_n];
        return 1;
    }
    uint64_t cap = events->cap;
    if (cap > UINT32_MAX / 2 || !more((void **)&events->items, &cap, sizeof(event_t))) {
        part->oom = 1;
        return 0;
    }
    events->cap = (uint32_t)cap;
    return 1;
}

static inline void put(part_t *part, frame_t *frame, uint32_t place, uint64_t window, uint64_t late) {
    events_t *to = &part->wheel[place >= part->n_boundary][window % WHEEL];
    part->due[window % WHEEL / 64] |= UINT64_C(1) << window % 64;
    if (to->n < to->cap || make_room(part, to)) to->items[to->n++] = (event_t){KEY(place, late), frame};
}

/* Put an event that is not due in the next window where it waits. */
static __attribute__((noinline)) void put_later(part_t *part, frame_t *frame, uint32_t place,
                                                uint64_t time) {
    uint64_t window = time / part->window_ns;
    if (window - part->window < WHEEL)
        put(part, frame, place, window, time % part->window_ns);
    else if (!append(&part->far, &(parcel_t){time, frame, place}))
        part->oom = 1;
}

/* Put an event of this thread where it waits: most are due in the next window. */
static inline void file(part_t *part, frame_t *frame, uint32_t place, uint64_t time) {
    uint64_t late = time - part->next_begin;
    if (late < part->window_ns)
        put(part, frame, place, part->window + 1, late);
    else
        put_later(part, frame, place, time);
}

static void enter(part_t *part, uint64_t window) {
    part->window = window;
    part->next_begin = (window + 1) * part->window_ns;
}

/* Half a turn before they are due, events come from behind the wheel into it. */
static void come_near(part_t *part) {
    uint64_t n = part->far.n;
    part->near_until = (part->window / (WHEEL / 2) + 1) * (WHEEL / 2);
    part->far.n = 0;
    for (uint64_t i = 0; i < n; i++) {
        parcel_t *one = &part->far.items[i];
        file(part, one->frame, one->place, one->time);
    }
}

static int widen(queue_t *queue);

/* Put an event behind all others: it is due no earlier than they. */
static inline void wait_in(part_t *part, uint64_t time, frame_t *frame) {
    queue_t *queue = &part->net->queue;
    const uint64_t tail = queue->tail;
    if (__builtin_expect(tail == queue->limit, 0) && !widen(queue)) {
        part->oom = 1;
        return;
    }
    queue->items[tail & queue->mask] = (waiting_t){time, frame};
    queue->tail = tail + 1;
}

/* ---- links and hosts --------------------------------------------------------------------- */

static void log_drop(part_t *part, const frame_t *frame, uint32_t link, uint8_t cause,
                     uint64_t mark) {
    if (part->drops_n == part->drops_cap &&
        !more((void **)&part->drops, &part->drops_cap, sizeof(drop_t))) {
        part->oom = 1;
        return;
    }
    part->drops[part->drops_n++] =
        (drop_t){part->now, frame->tag, link, part->current, cause, VERDICT_COUNTED(mark),
                 VERDICT_PARITY(mark), (uint8_t)frame->kind};
}

/* Bytes waiting on a link. */
static uint64_t backlog(const link_t *link, uint64_t now) {
    if (!link->rate || link->busy_until <= now) return 0;
    return (uint64_t)((unsigned __int128)(link->busy_until - now) * link->rate / 8000000000ull);
}

/* The link that leaves the current switch at a port; NOWHERE where none does. */
static uint32_t leaving(const part_t *part, uint32_t port) {
    const net_t *net = part->net;
    return port < net->max_port ? net->port_link[part->ports + port] : NOWHERE;
}

/* The egress queue takes a packet or drops it, before the egress pipeline counts it. */
static int has_room(void *context, uint32_t port, uint32_t length) {
    const part_t *part = context;
    uint32_t index = leaving(part, port);
    if (index == NOWHERE) return 1;
    const link_t *link = &part->net->links[index];
    return !link->rate || backlog(link, part->now) + length <= link->queue;
}

static void note_arrival(part_t *part, const frame_t *frame, uint64_t now);

static __attribute__((noinline)) void keep_reply(part_t *part, const frame_t *frame, uint32_t host,
                                                 uint64_t now) {
    if (part->replies_n == part->replies_cap &&
        !more((void **)&part->replies, &part->replies_cap, sizeof(reply_t)))
        part->oom = 1;
    else
        write_reply(&part->replies[part->replies_n++], now, host, frame->data + frame->begin,
                    frame->stored);
}

static int adapt(part_t *part, frame_t *frame, uint32_t host, uint32_t port, uint64_t now);

static void deliver(part_t *part, frame_t *frame, uint32_t host, uint64_t now) {
    if (__builtin_expect(part->net->adapters != NULL, 0) &&
        !adapt(part, frame, host, FROM_TOR, now))
        return;
    part->stats.delivered++;
    if (__builtin_expect(frame->kind == KIND_REPLY, 0)) {
        keep_reply(part, frame, host, now);
    } else {
        source_t *source = &part->net->sources[frame->kind];
        if (frame->to != host) {
            part->stats.misdelivered++;
        } else {
            source->delivered[frame->tag]++;
            if (source->travelled) source->travelled[frame->tag] += now - frame->born;
            if (source->heard) note_arrival(part, frame, now);
        }
    }
    frame_free(part, frame);
}

/* When the last bit of a frame has left on a link with a rate: behind those that wait. */
static __attribute__((noinline)) uint64_t serialised(link_t *link, depth_t *depth, uint32_t length,
                                                     uint64_t now) {
    uint64_t waiting = backlog(link, now);
    if (waiting > depth->largest) depth->largest = waiting;
    depth->sum += waiting;
    uint64_t done = link->busy_until > now ? link->busy_until : now;
    return link->busy_until = done + (uint64_t)length * 8000000000ull / link->rate;
}

static inline int hears(const part_t *part, const frame_t *frame) {
    return frame->kind != KIND_REPLY && part->net->sources[frame->kind].heard;
}

/* Put a frame on a link; it arrives after waiting, serialisation and propagation. What reaches its
 * host within this run has no event of its own, nor has what hosts react to (ranks.h). `ordered`: events are put behind
 * each other (in_order.h). */
static inline __attribute__((always_inline)) void transmit(part_t *part, frame_t *frame,
                                                           uint32_t index, uint64_t now,
                                                           int ordered) {
    link_t *link = &part->net->links[index];
    uint64_t time = now;
    if (!ordered && link->rate)
        time = serialised(link, &part->net->depths[index], frame->length, now);
    time += link->delay;
    frame->link = index;
    frame->number = (uint32_t)link->packets++;
    if (link->to_host) {
        if (time < part->until || (!ordered && hears(part, frame)))
            deliver(part, frame, link->dst, time);
        else if (ordered)
            wait_in(part, time, frame);
        else
            file(part, frame, part->n_switches, time);
        return;
    }
    frame->port = (uint16_t)link->dst_port;
    if (ordered)
        wait_in(part, time, frame);
    else if (link->owner == part->number)
        file(part, frame, link->place, time);
    else if (!append(&part->mail[part->step & 1][link->owner].parcels,
                     &(parcel_t){time, frame, link->place}))
        part->oom = 1;
}

/* Put what a host sends on its link. */
static inline __attribute__((always_inline)) void leave_host(part_t *part, frame_t *frame,
                                                             uint32_t host, uint64_t now,
                                                             int ordered) {
    if (__builtin_expect(part->net->adapters != NULL, 0) &&
        !adapt(part, frame, host, FROM_HOST, now))
        return;
    transmit(part, frame, part->net->host_link + host, now, ordered);
}

/* A program may look further than the bytes that exist: what is behind them is zero. */
static void pad(frame_t *frame, uint32_t head) {
    uint32_t wanted = frame->length < head ? frame->length : head;
    if (wanted > sizeof frame->data - frame->begin) wanted = sizeof frame->data - frame->begin;
    memset(frame->data + frame->begin + frame->stored, 0, wanted - frame->stored);
    frame->stored = (uint16_t)wanted;
}

static void complete(const net_t *net, frame_t *frame) {
    if (frame->stored < net->head && frame->stored < frame->length) pad(frame, net->head);
}

/* Bring what a packet of a flow is made of into the cache: many flows take turns. */
static void fetch_flow(const source_t *source, uint32_t flow) {
    const uint8_t *frame = source->templates + (uint64_t)flow * source->stride;
    __builtin_prefetch(frame);
    __builtin_prefetch(frame + source->stride - 1);
    __builtin_prefetch(&source->template_length[flow]);
    __builtin_prefetch(&source->src_host[flow]);
    __builtin_prefetch(&source->dst_host[flow]);
    __builtin_prefetch(&source->sent[flow], 1);
}

/* Find a source's next packet of this thread's hosts. */
static inline void find_next(part_t *part, uint32_t kind) {
    const net_t *net = part->net;
    const source_t *source = &net->sources[kind];
    uint64_t at = part->next[kind];
    if (net->n_parts > 1) {
        while (at < source->n &&
               net->host_owner[source->src_host[source->flow[at]]] != part->number)
            at++;
        part->next[kind] = at;
    }
    part->next_time[kind] = at < source->n ? source->time[at] : NEVER;
}

/* What a host sends at a time arrives in the window after that time's, at the earliest. */
static void send_next_at(part_t *part, uint64_t time) {
    part->next_send = time == NEVER ? NEVER : time / part->window_ns + 1;
}

static void find_all(part_t *part) {
    uint64_t first = NEVER;
    for (uint32_t i = 0; i < MAX_SOURCES; i++) {
        part->next_time[i] = NEVER;
        if (i < part->net->n_sources) find_next(part, i);
        if (part->next_time[i] < first) first = part->next_time[i];
    }
    send_next_at(part, first);
}

/* Send the next frame of a source. */
static inline __attribute__((always_inline)) void send_next(part_t *part, uint32_t kind,
                                                            int ordered) {
    source_t *source = &part->net->sources[kind];
    uint64_t at = part->next[kind]++;
    if (at + SOON < source->n) fetch_flow(source, source->flow[at + SOON]);
    uint32_t flow = source->flow[at], length = source->template_length[flow];
    frame_t *frame = frame_new(part);
    if (!frame) return;
    frame->begin = FRAME_ROOM;
    uint8_t *data = frame->data + FRAME_ROOM;
    const uint8_t *template = source->templates + (uint64_t)flow * source->stride;
    uint32_t stored = length < FRAME_HEAD ? length : FRAME_HEAD, i = 0;
    if (source->stride == 64) { /* as most are; behind a template it is zero */
        memcpy(data, template, 64);
        i = 64;
    }
    for (; i < stored; i += 16) memcpy(data + i, template + i, 16);
    for (; i < part->net->head; i += 16) memset(data + i, 0, 16);
    frame->length = fill_in(source, at, data);
    frame->tag = flow;
    frame->kind = kind & 0xff;
    frame->to = source->dst_host[flow] & 0xffffff;
    frame->born = source->time[at];
    uint32_t head = part->net->head < frame->length ? part->net->head : frame->length;
    frame->stored = (uint16_t)(stored < head ? head : stored); /* behind the template it is zero */
    source->sent[flow]++;
    part->stats.sent++;
    leave_host(part, frame, source->src_host[flow], source->time[at], ordered);
}

/* Send what this thread's hosts send before a time: sources of lower number first where two send
 * at once. */
static void send_due(part_t *part, uint64_t end) {
    const uint64_t *time = part->next_time;
    part->sent_until = end;
    for (;;) {
        uint32_t from = 0;
        uint64_t until = end; /* or when another source sends */
        for (uint32_t i = 1; i < part->net->n_sources; i++) {
            uint64_t later = time[i];
            if (later < time[from]) {
                later = time[from];
                from = i;
            }
            if (later < until) until = later;
        }
        if (time[from] >= end) {
            send_next_at(part, time[from]);
            return;
        }
        do {
            send_next(part, from, 0);
            find_next(part, from);
        } while (time[from] < until);
    }
}
#endif
