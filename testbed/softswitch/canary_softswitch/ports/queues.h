/* SPDX-License-Identifier: Apache-2.0 */
/* What waits for a port, as in simple_switch: queues by priority, each with a depth and a rate.
 *
 * A port that is neither rated nor too slow for what it gets has nothing waiting: its packets go
 * straight to the socket. A socket that takes no more (a link that is slower than the switch) and a
 * rate fill the queues. The egress control has run when a packet comes here, at the time it came to
 * the queue: what it reads of the wait is what the queue says then. */

enum {
    PP_PRIORITIES = 256,
    PP_DEPTH = 64,      /* packets of a queue, unless told otherwise */
    PP_TRANSMIT = 128,  /* packets between the queues and a socket: simple_switch's output buffer */
};

typedef struct pp_waiting {
    struct pp_waiting *next;
    uint64_t due_ns; /* not before */
    uint32_t length;
    uint8_t data[];
} pp_waiting;

typedef struct {
    pp_waiting *first, *last;
    uint32_t n, depth;
    uint64_t gap_ns, last_ns; /* between two packets; 0: no rate */
} pp_queue;

typedef struct {
    pp_queue *queues; /* by priority, 0 the lowest */
    uint32_t n;       /* packets in all of them */
    int rated, watched;
} pp_egress;

static uint64_t pp_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* 0 without memory */
static int pp_egress_init(pp_egress *e, uint32_t priorities) {
    e->queues = calloc(priorities, sizeof *e->queues);
    for (uint32_t i = 0; e->queues && i < priorities; i++) e->queues[i].depth = PP_DEPTH;
    return !!e->queues;
}
static void pp_egress_free(pp_egress *e, uint32_t priorities) {
    for (uint32_t i = 0; e->queues && i < priorities; i++)
        for (pp_waiting *w = e->queues[i].first, *next; w; w = next) {
            next = w->next;
            free(w);
        }
    free(e->queues);
}

/* Packets a queue may hold before the next one is dropped. */
static uint32_t pp_room(const pp_queue *q) {
    return q->depth + (q->gap_ns ? 0 : PP_TRANSMIT);
}
/* What the program reads as the depth of a queue. */
static uint32_t pp_depth(const pp_queue *q) {
    if (q->gap_ns) return q->n;
    return q->n > PP_TRANSMIT ? q->n - PP_TRANSMIT : 0;
}
/* How long a packet that comes now will wait: by the rate, else as long as the first has until now. */
static uint64_t pp_wait_ns(const pp_queue *q, uint64_t now_ns) {
    if (!q->gap_ns) return q->first ? now_ns - q->first->due_ns : 0;
    return q->last_ns + q->gap_ns > now_ns ? q->last_ns + q->gap_ns - now_ns : 0;
}
/* 0: full */
static int pp_push(pp_egress *e, uint32_t priority, const uint8_t *data, uint32_t length,
                   uint64_t now_ns) {
    pp_queue *q = e->queues + priority;
    pp_waiting *w = q->n < pp_room(q) ? malloc(sizeof *w + length) : NULL;
    if (!w) return 0;
    if (q->gap_ns) {
        q->last_ns = q->last_ns + q->gap_ns > now_ns ? q->last_ns + q->gap_ns : now_ns;
        w->due_ns = q->last_ns;
    } else {
        w->due_ns = now_ns;
    }
    w->next = NULL;
    w->length = length;
    memcpy(w->data, data, length);
    if (q->last) q->last->next = w;
    else q->first = w;
    q->last = w;
    q->n++;
    e->n++;
    return 1;
}
/* The queue to serve now, or NULL; then *next_ns is lowered to when one is due. */
static pp_queue *pp_due(pp_egress *e, uint32_t priorities, uint64_t now_ns, uint64_t *next_ns) {
    for (uint32_t i = priorities; e->n && i-- > 0;) {
        pp_queue *q = e->queues + i;
        if (!q->first) continue;
        if (q->first->due_ns <= now_ns) return q;
        if (q->first->due_ns < *next_ns) *next_ns = q->first->due_ns;
    }
    return NULL;
}
static void pp_pop(pp_egress *e, pp_queue *q) {
    pp_waiting *w = q->first;
    q->first = w->next;
    if (!q->first) q->last = NULL;
    q->n--;
    e->n--;
    free(w);
}
