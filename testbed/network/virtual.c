/* The virtual network: a discrete-event loop over soft switches, in virtual time.
 *
 * An event is a frame that arrives somewhere. Frames come from sources (arrays sorted by time, a
 * template per flow) and from the links; the earliest goes first, ties in the order of creation,
 * so a run is a function of its inputs. Time is in nanoseconds.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "sources.h"

#define NOWHERE UINT32_MAX

typedef int (*process_fn)(ss_switch *, uint32_t, const uint8_t *, uint32_t, uint64_t, ss_admit_fn,
                          void *, ss_result *);

/* VERDICT_* and the other CAUSE_* stand before this file: they are the P4 program's
 * (testbed/dataplane). */
enum { CAUSE_QUEUE = 100 };
enum { KIND_REPLY = 255 };

typedef struct {
    uint64_t time;
    uint64_t order;
    uint32_t link; /* the directed link it travels on */
    uint32_t length;
    uint32_t tag; /* index of its flow in its source */
    uint8_t kind; /* number of its source, or KIND_REPLY */
    uint8_t data[FRAME_MAX];
} frame_t;

typedef struct {
    uint64_t time;
    uint64_t order;
    frame_t *frame;
} event_t;

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
    uint32_t pad;
    uint64_t delay;
    uint64_t rate;  /* bits per second, 0 = infinite */
    uint64_t queue; /* bytes */
    uint64_t busy_until;
    uint64_t packets;
} link_t;

typedef struct {
    uint64_t sent, delivered, fault_drops, queue_drops, ttl_drops, other_drops, misdelivered;
    uint64_t packet_hops, in_flight;
} stats_t;

typedef struct {
    uint64_t now;
    stats_t stats;
    uint32_t n_switches, n_links, max_port, n_sources;
    ss_switch **switches;
    process_fn process;
    uint32_t *port_link; /* [n_switches * max_port] outgoing link */
    link_t *links;       /* fabric, then host->ToR, then ToR->host */
    source_t sources[MAX_SOURCES];
    event_t *heap;
    uint64_t heap_n, heap_cap, order;
    frame_t **pool;
    uint64_t pool_n, pool_cap;
    drop_t *drops;
    uint64_t drops_n, drops_cap;
    reply_t *replies;
    uint64_t replies_n, replies_cap;
    ss_result result;
    uint32_t current; /* the switch that has a packet */
    uint32_t host_link; /* the first host->ToR link */
    int oom;
} net_t;

static void *grow(net_t *net, void *array, uint64_t *cap, size_t item) {
    uint64_t more = *cap ? *cap * 2 : 1024;
    void *bigger = realloc(array, more * item);
    if (!bigger) {
        net->oom = 1;
        return array;
    }
    *cap = more;
    return bigger;
}

static frame_t *frame_new(net_t *net) {
    if (net->pool_n) return net->pool[--net->pool_n];
    frame_t *frame = calloc(1, sizeof(frame_t));
    if (!frame) net->oom = 1;
    return frame;
}

static void frame_free(net_t *net, frame_t *frame) {
    if (net->pool_n == net->pool_cap)
        net->pool = grow(net, net->pool, &net->pool_cap, sizeof(frame_t *));
    if (net->pool_n < net->pool_cap)
        net->pool[net->pool_n++] = frame;
    else
        free(frame);
}

static int before(const event_t *a, const event_t *b) {
    return a->time < b->time || (a->time == b->time && a->order < b->order);
}

static void push(net_t *net, frame_t *frame) {
    if (net->heap_n == net->heap_cap)
        net->heap = grow(net, net->heap, &net->heap_cap, sizeof(event_t));
    if (net->heap_n == net->heap_cap) return;
    event_t event = {frame->time, net->order++, frame};
    uint64_t i = net->heap_n++;
    while (i) {
        uint64_t up = (i - 1) / 2;
        if (!before(&event, &net->heap[up])) break;
        net->heap[i] = net->heap[up];
        i = up;
    }
    net->heap[i] = event;
}

static frame_t *pop(net_t *net) {
    frame_t *top = net->heap[0].frame;
    event_t last = net->heap[--net->heap_n];
    uint64_t i = 0, n = net->heap_n;
    for (;;) {
        uint64_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && before(&net->heap[child + 1], &net->heap[child])) child++;
        if (!before(&net->heap[child], &last)) break;
        net->heap[i] = net->heap[child];
        i = child;
    }
    if (n) net->heap[i] = last;
    return top;
}

static void log_drop(net_t *net, const frame_t *frame, uint32_t link, uint8_t cause, uint64_t mark) {
    if (net->drops_n == net->drops_cap)
        net->drops = grow(net, net->drops, &net->drops_cap, sizeof(drop_t));
    if (net->drops_n == net->drops_cap) return;
    net->drops[net->drops_n++] = (drop_t){net->now, frame->tag, link, net->current, cause,
                                          VERDICT_COUNTED(mark), VERDICT_PARITY(mark),
                                          frame->kind};
}

/* Bytes waiting on a link. */
static uint64_t backlog(const link_t *link, uint64_t now) {
    if (!link->rate || link->busy_until <= now) return 0;
    return (uint64_t)((unsigned __int128)(link->busy_until - now) * link->rate / 8000000000ull);
}

/* The link that leaves the current switch at a port; NOWHERE where none does. */
static uint32_t leaving(const net_t *net, uint32_t port) {
    return port < net->max_port ? net->port_link[net->current * net->max_port + port] : NOWHERE;
}

/* The egress queue takes a packet or drops it, before the egress pipeline counts it. */
static int admit(void *context, uint32_t port, uint32_t length) {
    const net_t *net = context;
    uint32_t index = leaving(net, port);
    if (index == NOWHERE) return 1;
    const link_t *link = &net->links[index];
    return !link->rate || backlog(link, net->now) + length <= link->queue;
}

/* Put a frame on a link; it arrives after waiting, serialisation and propagation. */
static void transmit(net_t *net, frame_t *frame, uint32_t index, uint64_t now) {
    link_t *link = &net->links[index];
    uint64_t done = now;
    if (link->rate) {
        if (link->busy_until > now) done = link->busy_until;
        done += (uint64_t)frame->length * 8000000000ull / link->rate;
        link->busy_until = done;
    }
    link->packets++;
    frame->link = index;
    frame->time = done + link->delay;
    push(net, frame);
}

static void deliver(net_t *net, frame_t *frame, uint32_t host) {
    net->stats.delivered++;
    if (frame->kind == KIND_REPLY) {
        if (net->replies_n == net->replies_cap)
            net->replies = grow(net, net->replies, &net->replies_cap, sizeof(reply_t));
        if (net->replies_n == net->replies_cap) return;
        write_reply(&net->replies[net->replies_n++], net->now, host, frame->data, frame->length);
        return;
    }
    source_t *source = &net->sources[frame->kind];
    if (source->dst_host[frame->tag] == host)
        source->delivered[frame->tag]++;
    else
        net->stats.misdelivered++;
}

static void drop(net_t *net, const frame_t *frame, const ss_result *result) {
    stats_t *stats = &net->stats;
    uint8_t cause = VERDICT_CAUSE(result->observed);
    uint32_t link = NOWHERE;
    if (result->queue_dropped) {
        cause = CAUSE_QUEUE;
        link = leaving(net, result->egress_port);
        stats->queue_drops++;
    } else if (cause == CAUSE_FAULT) {
        /* at its egress it was on its way out already, at its ingress not in yet */
        link = result->egress_port == SS_NO_PORT ? frame->link : leaving(net, result->egress_port);
        stats->fault_drops++;
    } else if (cause == CAUSE_CORRUPT) {
        link = frame->link;
        stats->fault_drops++;
    } else if (cause == CAUSE_TTL) {
        stats->ttl_drops++;
    } else {
        stats->other_drops++;
    }
    log_drop(net, frame, link, cause, result->observed);
}

static void arrive(net_t *net, frame_t *frame) {
    const link_t *link = &net->links[frame->link];
    net->now = frame->time;
    if (link->to_host) {
        deliver(net, frame, link->dst);
        frame_free(net, frame);
        return;
    }
    ss_result *result = &net->result;
    net->current = link->dst;
    net->process(net->switches[link->dst], link->dst_port, frame->data, frame->length,
                 frame->time / 1000, admit, net, result);
    net->stats.packet_hops++;
    uint64_t verdict = result->observed;
    if (VERDICT_EXPIRED(verdict) && VERDICT_CAUSE(verdict) != CAUSE_TTL) {
        /* the packet expired here and an ICMP message goes back in its place */
        net->stats.ttl_drops++;
        net->stats.sent++;
        frame->kind = KIND_REPLY;
    }
    if (result->n == 0) {
        drop(net, frame, result);
        frame_free(net, frame);
        return;
    }
    for (uint32_t i = 0; i < result->n; i++) {
        const ss_packet *out = &result->packets[i];
        uint32_t index = leaving(net, out->port);
        frame_t *copy = i ? frame_new(net) : frame;
        if (!copy) return;
        if (i) { /* a copy is one more packet in the network */
            net->stats.sent++;
            copy->tag = frame->tag;
            copy->kind = frame->kind;
        }
        if (index == NOWHERE || out->length > FRAME_MAX) {
            net->stats.other_drops++;
            frame_free(net, copy);
            continue;
        }
        copy->length = out->length;
        memcpy(copy->data, out->data, out->length);
        transmit(net, copy, index, net->now);
    }
}

/* Send the next frame of a source. */
static void send_next(net_t *net, uint32_t kind) {
    source_t *source = &net->sources[kind];
    uint64_t at = source->next++;
    uint32_t flow = source->flow[at];
    frame_t *frame = frame_new(net);
    if (!frame) return;
    net->now = source->time[at];
    frame->length = write_frame(source, at, frame->data);
    frame->tag = flow;
    frame->kind = (uint8_t)kind;
    source->sent[flow]++;
    net->stats.sent++;
    transmit(net, frame, net->host_link + source->src_host[flow], net->now);
}

/* ---- called from Python ----------------------------------------------------------------- */

EXPORT net_t *net_new(uint32_t n_switches, ss_switch **switches, void *process, uint32_t n_links,
               const link_t *links, uint32_t host_link, uint32_t max_port,
               const uint32_t *port_link) {
    net_t *net = calloc(1, sizeof(net_t));
    if (!net) return NULL;
    net->n_switches = n_switches;
    net->n_links = n_links;
    net->host_link = host_link;
    net->max_port = max_port;
    net->process = (process_fn)process;
    net->switches = malloc(n_switches * sizeof(ss_switch *));
    net->links = malloc(n_links * sizeof(link_t));
    net->port_link = malloc((size_t)n_switches * max_port * sizeof(uint32_t));
    if (!net->switches || !net->links || !net->port_link) return NULL;
    memcpy(net->switches, switches, n_switches * sizeof(ss_switch *));
    memcpy(net->links, links, n_links * sizeof(link_t));
    memcpy(net->port_link, port_link, (size_t)n_switches * max_port * sizeof(uint32_t));
    return net;
}

EXPORT void net_free(net_t *net) {
    while (net->heap_n) free(net->heap[--net->heap_n].frame);
    while (net->pool_n) free(net->pool[--net->pool_n]);
    free(net->heap);
    free(net->pool);
    free(net->drops);
    free(net->replies);
    free(net->switches);
    free(net->links);
    free(net->port_link);
    free(net);
}

/* Arrays stay the caller's and must live as long as the network. Returns the source's number. */
EXPORT int net_add_source(net_t *net, const source_t *source) {
    if (net->n_sources == MAX_SOURCES) return -1;
    net->sources[net->n_sources] = *source;
    return (int)net->n_sources++;
}

/* Replace what a source will send next (traceroutes are decided on while the network runs). */
EXPORT void net_feed_source(net_t *net, uint32_t kind, const source_t *source) {
    net->sources[kind] = *source;
}

/* Run every event before `until`. Returns 0, or -1 when memory ran out. */
EXPORT int net_run(net_t *net, uint64_t until) {
    for (;;) {
        uint64_t best = net->heap_n ? net->heap[0].time : UINT64_MAX;
        uint32_t from = NOWHERE;
        for (uint32_t i = 0; i < net->n_sources; i++) {
            const source_t *source = &net->sources[i];
            if (source->next < source->n && source->time[source->next] <= best) {
                best = source->time[source->next];
                from = i;
            }
        }
        if (best >= until) break;
        if (from == NOWHERE)
            arrive(net, pop(net));
        else
            send_next(net, from);
        if (net->oom) return -1;
    }
    net->now = until;
    net->stats.in_flight = net->heap_n;
    return 0;
}

EXPORT const stats_t *net_stats(const net_t *net) { return &net->stats; }

EXPORT uint64_t net_drops(const net_t *net, const drop_t **drops) {
    *drops = net->drops;
    return net->drops_n;
}

EXPORT uint64_t net_replies(const net_t *net, const reply_t **replies) {
    *replies = net->replies;
    return net->replies_n;
}

EXPORT void net_link_packets(const net_t *net, uint64_t *packets) {
    for (uint32_t i = 0; i < net->n_links; i++) packets[i] = net->links[i].packets;
}
