/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of a run in real time (hosts.c): nanoseconds of CLOCK_MONOTONIC since its start, without
 * the time for which it stood still. */
#ifndef CANARY_NETWORK_CLOCK_H
#define CANARY_NETWORK_CLOCK_H
#include <pthread.h>
#include <stdint.h>
#include <time.h>

typedef struct {
    uint64_t start, gate, held; /* `start` moves on while the clock stands still at `gate` */
    int running;
    pthread_mutex_t lock;
} run_clock_t;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void clock_init(run_clock_t *clock) {
    pthread_mutex_init(&clock->lock, NULL);
    clock->gate = UINT64_MAX;
}

static void clock_start(run_clock_t *clock) {
    pthread_mutex_lock(&clock->lock);
    clock->start = now_ns();
    clock->running = 1;
    pthread_mutex_unlock(&clock->lock);
}

static uint64_t with_lock(run_clock_t *clock, uint64_t real) {
    uint64_t time = real - clock->start;
    if (!clock->running || time <= clock->gate) return time;
    clock->held += time - clock->gate;
    clock->start += time - clock->gate;
    return clock->gate;
}

/* The time, which never passes the gate; `real` gets the moment on CLOCK_MONOTONIC. */
static uint64_t clock_read(run_clock_t *clock, uint64_t *real) {
    pthread_mutex_lock(&clock->lock);
    uint64_t now = now_ns(), time = with_lock(clock, now);
    pthread_mutex_unlock(&clock->lock);
    if (real) *real = now;
    return time;
}

/* Let the clock go on to `gate`, or stand still now if that has passed. */
static void clock_hold(run_clock_t *clock, uint64_t gate) {
    pthread_mutex_lock(&clock->lock);
    uint64_t time = with_lock(clock, now_ns());
    clock->gate = clock->running && gate < time ? time : gate;
    pthread_mutex_unlock(&clock->lock);
}

/* For how long the clock has stood still. */
static uint64_t clock_held(run_clock_t *clock) {
    pthread_mutex_lock(&clock->lock);
    with_lock(clock, now_ns());
    uint64_t held = clock->held;
    pthread_mutex_unlock(&clock->lock);
    return held;
}

#endif
