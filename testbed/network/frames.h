/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and events of the virtual network (virtual.c).
 *
 * Of a frame under way its first bytes exist, as far as a program looks, and its length: nobody
 * reads the payload, so none is stored or copied, and a frame of 9,000 bytes costs what one of 64
 * does. Switches rewrite its headers in place; in front there is room for what they add.
 *
 * An event is a frame that arrives. Events wait in a wheel of windows, in which their time is known
 * from the window's begin; what is due beyond the wheel waits behind it.
 */
#ifndef CANARY_NETWORK_FRAMES_H
#define CANARY_NETWORK_FRAMES_H
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_ROOM 30  /* bytes that switches may add in front; behind them a cache line begins */
#define FRAME_HEAD 128 /* bytes of a frame that exist when it is sent */
#define WHEEL 1024     /* windows */
#define NEVER UINT64_MAX
#define SLICES 256     /* of a window, in which events are sorted roughly: */
#define SLICE_NS 64    /* each this long, together the longest window */
#define BATCH 64       /* frames that are made, or handed from thread to thread, together */

typedef struct {
    uint32_t length, tag;  /* on the wire; index of its flow in its source */
    uint32_t link, number; /* the directed link it travels on, and which of the link's frames */
    uint64_t born;         /* when its host sent it */
    uint16_t begin, stored;
    uint32_t kind : 8; /* number of its source, or KIND_REPLY */
    uint32_t to : 24;  /* the host that it is for */
    uint16_t port;     /* of the switch to which it travels */
    uint8_t data[FRAME_ROOM + FRAME_HEAD];
} __attribute__((aligned(64))) frame_t;

/* An event of a window. `key`, by which they are sorted: the place, which is the number of a switch
 * in its thread's list, or behind its end for hosts, and the ns since the window's begin. */
typedef struct {
    uint64_t key;
    frame_t *frame;
} event_t;

typedef struct {
    uint32_t n, cap;
    event_t *items;
} events_t;

/* An event of any time. */
typedef struct {
    uint64_t time;
    frame_t *frame;
    uint32_t place;
} parcel_t;

typedef struct {
    uint64_t n, cap;
    parcel_t *items;
} parcels_t;

/* An event of any time among others in the order of time. */
typedef struct {
    uint64_t time;
    frame_t *frame;
} waiting_t;

/* Those from `head` to before `tail`, each at its number modulo a power of 2; in all other places, of
 * which there is one, are such as are never due. Before `sorted` they are sorted where they are
 * simultaneous; at `limit` there is no room. */
typedef struct {
    waiting_t *items;
    uint64_t mask, head, tail, sorted, limit;
} queue_t;

/* What a host does at a time (ranks.h), in a heap of which the first is due first. */
typedef struct {
    uint64_t time;
    uint32_t who, value, kind;
} deed_t;

typedef struct {
    uint64_t n, cap;
    deed_t *items;
} deeds_t;

/* From thread to thread, on lines of the cache that nothing else shares. */
typedef struct {
    parcels_t parcels;
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
static __attribute__((noinline)) int refill(pool_t *pool, stack_t_ *stack) {
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
static __attribute__((noinline)) int give_back(pool_t *pool, stack_t_ *stack) {
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

static inline int append(parcels_t *parcels, const parcel_t *parcel) {
    if (parcels->n == parcels->cap &&
        !more((void **)&parcels->items, &parcels->cap, sizeof *parcel))
        return 0;
    parcels->items[parcels->n++] = *parcel;
    return 1;
}

#define KEY(place, late) ((uint64_t)(place) << 16 | (late)) /* SLICES * SLICE_NS is less than 1 << 16 */
#define KEY_PLACE(event) ((uint32_t)((event).key >> 16))
#define KEY_LATE(event) ((uint32_t)(event).key & 0xffff)
#define KEY_SLICE(event) (KEY_LATE(event) / SLICE_NS)
#define FEW 24 /* events that are sorted one by one */

/* The order of events at a switch: by time, simultaneous ones by link, then as they were put on it. */
static inline int before(const event_t *a, const event_t *b) {
    if (__builtin_expect(a->key != b->key, 1)) return a->key < b->key;
    if (a->frame->link != b->frame->link) return a->frame->link < b->frame->link;
    return a->frame->number < b->frame->number;
}

static inline void sort_few(event_t *events, uint64_t n) {
    for (uint64_t i = 1; i < n; i++) {
        event_t event = events[i];
        uint64_t j = i;
        for (; j && before(&event, &events[j - 1]); j--) events[j] = events[j - 1];
        events[j] = event;
    }
}

/* Sort by one of a key's parts, `digit`, of values from `low` on: `first` has a count of each. */
#define SORT_BY(digit, low, values)                                                  \
    memset(first, 0, ((values) + 1) * sizeof *first);                                \
    for (uint64_t i = 0; i < n; i++) first[digit(from[i]) - (low) + 1]++;            \
    for (uint64_t v = 0; v < (values); v++) first[v + 1] += first[v];                \
    for (uint64_t i = 0; i < n; i++) to[first[digit(from[i]) - (low)]++] = from[i];

/* Sort many events, of places from `place` to before `end`: roughly, so that which of two comes first
 * is no branch, and then the rest. `first`, of all places and of all slices, and `to`, of twice n, are
 * scratch. Returns where they are. */
static event_t *sort_many(const event_t *from, uint64_t n, uint32_t place, uint32_t end,
                          uint32_t *first, event_t *to) {
    uint32_t places = end - place;
    if (n > 2 * (uint64_t)places) {
        SORT_BY(KEY_SLICE, 0, SLICES)
        from = to;
        to += n;
    }
    SORT_BY(KEY_PLACE, place, places)
    sort_few(to, n); /* little is left to do */
    return to;
}
#endif
