/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and events of the virtual network (virtual.c).
 *
 * Of a frame under way its first bytes exist, as far as a program looks, and its length: nobody
 * reads the payload, so none is stored or copied, and a frame of 9,000 bytes costs what one of 64
 * does. Switches rewrite its headers in place; in front there is room for what they add.
 *
 * An event is a frame that arrives. Events wait in a wheel of windows; what is due beyond the wheel
 * waits behind it.
 */
#ifndef CANARY_NETWORK_FRAMES_H
#define CANARY_NETWORK_FRAMES_H
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_ROOM 48  /* bytes that switches may add in front */
#define FRAME_HEAD 128 /* bytes of a frame that exist when it is sent */
#define WHEEL 1024     /* windows */
#define SLICES 256     /* of a window, in which events are sorted roughly: */
#define SLICE_NS 64    /* each this long, together the longest window */
#define BATCH 64       /* frames that are made, or handed from thread to thread, together */

typedef struct {
    uint32_t length, tag; /* on the wire; index of its flow in its source */
    uint16_t begin, stored;
    uint32_t kind : 8; /* number of its source, or KIND_REPLY */
    uint32_t to : 24;  /* the host that it is for */
    uint8_t data[FRAME_ROOM + FRAME_HEAD];
} __attribute__((aligned(64))) frame_t;

typedef struct {
    uint64_t time;
    frame_t *frame;
    uint32_t link, number; /* the directed link it travels on, and which of the link's frames */
    uint32_t place, port;  /* of the switch in its thread's list; behind its end are hosts */
} event_t;

typedef struct {
    uint64_t n, cap;
    event_t *items;
} events_t;

/* Events from thread to thread, on lines of the cache that nothing else shares. */
typedef struct {
    events_t events;
} __attribute__((aligned(64))) mail_t;

/* Frames that are free for all threads. */
typedef struct {
    pthread_mutex_t lock;
    uint64_t n, cap;
    frame_t **items;
    uint64_t chunks_n, chunks_cap;
    void **chunks;
} pool_t;

/* Those of one thread. */
typedef struct {
    uint64_t n;
    frame_t *items[2 * BATCH];
} stack_t_;

static inline int more(void **items, uint64_t *cap, size_t size) {
    uint64_t wanted = *cap ? *cap * 2 : 16;
    void *bigger = realloc(*items, wanted * size);
    if (!bigger) return 0;
    *items = bigger;
    *cap = wanted;
    return 1;
}

/* Fill a thread's empty stack with a batch: of what others gave back, or newly made. */
static int refill(pool_t *pool, stack_t_ *stack) {
    int ok = 1;
    pthread_mutex_lock(&pool->lock);
    if (pool->n >= BATCH) {
        pool->n -= BATCH;
        memcpy(stack->items, pool->items + pool->n, BATCH * sizeof *stack->items);
        stack->n = BATCH;
    } else {
        frame_t *made = NULL;
        if (pool->chunks_n == pool->chunks_cap)
            ok = more((void **)&pool->chunks, &pool->chunks_cap, sizeof *pool->chunks);
        if (ok) ok = (made = aligned_alloc(64, BATCH * sizeof *made)) != NULL;
        if (ok) {
            memset(made, 0, BATCH * sizeof *made);
            pool->chunks[pool->chunks_n++] = made;
            for (stack->n = 0; stack->n < BATCH; stack->n++) stack->items[stack->n] = made + stack->n;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return ok;
}

/* Give half of a full stack to the others. */
static int give_back(pool_t *pool, stack_t_ *stack) {
    int ok = 1;
    pthread_mutex_lock(&pool->lock);
    while (ok && pool->cap < pool->n + BATCH)
        ok = more((void **)&pool->items, &pool->cap, sizeof *pool->items);
    if (ok) {
        stack->n -= BATCH;
        memcpy(pool->items + pool->n, stack->items + stack->n, BATCH * sizeof *stack->items);
        pool->n += BATCH;
    }
    pthread_mutex_unlock(&pool->lock);
    return ok;
}

static void pool_free(pool_t *pool) {
    while (pool->chunks_n) free(pool->chunks[--pool->chunks_n]);
    free(pool->chunks);
    free(pool->items);
    pthread_mutex_destroy(&pool->lock);
}

static inline int append(events_t *events, const event_t *event) {
    if (events->n == events->cap && !more((void **)&events->items, &events->cap, sizeof *event))
        return 0;
    events->items[events->n++] = *event;
    return 1;
}

/* The order of simultaneous events at a switch: by link, then as they were put on it. */
static inline int before(const event_t *a, const event_t *b) {
    if (a->time != b->time) return a->time < b->time;
    if (a->link != b->link) return a->link < b->link;
    return a->number < b->number;
}

/* Their numbers, by slices of the time from `begin` on: which of two comes first is no branch then. */
static void sort_slices(const event_t *in, uint64_t n, uint64_t begin, uint32_t *order) {
    uint32_t first[SLICES + 1] = {0};
    for (uint64_t i = 0; i < n; i++) first[((in[i].time - begin) / SLICE_NS & (SLICES - 1)) + 1]++;
    for (uint32_t s = 0; s < SLICES; s++) first[s + 1] += first[s];
    for (uint64_t i = 0; i < n; i++)
        order[first[(in[i].time - begin) / SLICE_NS & (SLICES - 1)]++] = (uint32_t)i;
}

/* Sort events of a window, which begins at `begin`, by place and, of a place, by `before`. Places
 * are from `place` to before `end`; first[end + 1] is scratch, as are `order` and `out`. */
static void sort_events(const event_t *in, uint64_t n, uint64_t begin, uint32_t place, uint32_t end,
                        uint32_t *first, uint32_t *order, event_t *out) {
    memset(first + place, 0, (end - place + 1) * sizeof *first);
    for (uint64_t i = 0; i < n; i++) first[in[i].place + 1]++;
    for (uint32_t p = place; p < end; p++) first[p + 1] += first[p];
    if (n > 2 * (uint64_t)(end - place)) {
        sort_slices(in, n, begin, order);
        for (uint64_t i = 0; i < n; i++) out[first[in[order[i]].place]++] = in[order[i]];
    } else {
        for (uint64_t i = 0; i < n; i++) out[first[in[i].place]++] = in[i];
    }
    for (uint64_t i = 1; i < n; i++) { /* little is left to do */
        if (out[i - 1].place != out[i].place || !before(&out[i], &out[i - 1])) continue;
        event_t event = out[i];
        uint64_t j = i;
        for (; j && out[j - 1].place == event.place && before(&event, &out[j - 1]); j--)
            out[j] = out[j - 1];
        out[j] = event;
    }
}
#endif
