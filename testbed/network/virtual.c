/* SPDX-License-Identifier: Apache-2.0 */
/* The virtual network: soft switches on all cores, in virtual time.
 *
 * What happens at a switch changes no other before a link's delay has passed. So time goes in
 * windows no longer than that: the events of a window are sorted by switch, and each switch's run
 * in one go. Simultaneous events of a switch go by link, then as they were put on it, never by who
 * was first: any number of threads gives the same bytes. Time is in nanoseconds.
 *
 * A thread owns switches, the links that leave them, and their hosts; nothing of it is written by
 * another. In each window it takes what others sent in the last one, runs the switches with a link
 * to other threads' switches, and says so. The rest needs nothing of others and nobody waits for
 * it: it is run after that, or before, while others are behind.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "portable.h"
#include "counts.h"
#include "hops.h"

#define NEAR 3          /* events ahead of which frames are fetched into the cache; */
#define MANY 100        /* of more switches a thread, which do not stay in the cache: */
#define SWITCH_AHEAD 14 /* frames and switches, */
#define TABLES_AHEAD 10 /* their tables, */
#define SLOTS_AHEAD 6   /* where the packet's rows lie, */
#define ROWS_AHEAD 3    /* and these */
#define SPINS 256       /* looks at what another thread does before giving up the core */
#define LOOKS 16384     /* at whether there is a run, before a thread sleeps: waking takes longer */
#define STRETCH 256     /* windows between two looks at what is under way and whether threads pay */
#define TRIAL 16        /* windows in which the slower of one thread and all is tried again */
#define SELDOM 256      /* stretches between two trials, at most */

/* ---- windows ----------------------------------------------------------------------------- */

/* Sort what is due before `end`, a time in the current window, at the switches with links to other
 * threads' or at the rest; returns how much that is. */
static uint64_t sort_due(part_t *part, int rest, uint64_t end) {
    events_t *bucket = &part->wheel[rest][part->window % WHEEL];
    uint64_t n = bucket->n, due = 0;
    if (!n) return 0;
    while (part->sorted_cap < n)
        if (!more((void **)&part->order, &part->order_cap, sizeof(uint32_t)) ||
            !more((void **)&part->sorted, &part->sorted_cap, sizeof(event_t))) {
            part->oom = 1;
            return 0;
        }
    if (end % part->net->window_ns) { /* a run ends within this window: the due ones to the front */
        for (uint64_t i = 0; i < n; i++)
            if (bucket->items[i].time < end) {
                event_t event = bucket->items[i];
                bucket->items[i] = bucket->items[due];
                bucket->items[due++] = event;
            }
    } else {
        due = n;
    }
    sort_events(bucket->items, due, part->window * part->net->window_ns,
                rest ? part->n_boundary : 0, rest ? part->n_switches + 1 : part->n_boundary,
                part->first, part->order, part->sorted);
    bucket->n -= due;
    if (bucket->n) {
        memmove(bucket->items, bucket->items + due, bucket->n * sizeof(event_t));
    } else if (bucket->cap) {
        part->spare[part->spare_n++] = *bucket;
        *bucket = (events_t){0, 0, NULL};
    }
    return due;
}

/* A window has few packets for each of many switches: what these need is on its way to the cache
 * while the packets before are processed, step by step, as each says where the next lies. */
static void look_ahead(part_t *part, int64_t i, int64_t n) {
    static const int64_t ahead[] = {SWITCH_AHEAD, TABLES_AHEAD, SLOTS_AHEAD, ROWS_AHEAD};
    const net_t *net = part->net;
    for (int step = 0; step < 4; step++) {
        int64_t at = i + ahead[step];
        if (at < 0 || at >= n || part->sorted[at].place == part->n_switches) continue;
        const event_t *event = &part->sorted[at];
        uint32_t index = part->switches[event->place];
        frame_t *frame = event->frame;
        int first = !at || event->place != event[-1].place;
        if (step == 0) {
            __builtin_prefetch(frame);
            __builtin_prefetch((uint8_t *)frame + 64);
            if (first) net->prefetch(net->switches[index], 0);
        } else if (step == 1 && first) {
            net->prefetch(net->switches[index], 1);
            const uint32_t *leaving = net->port_link + (uint64_t)index * net->max_port;
            for (uint32_t port = 0; port < net->max_port; port++)
                if (leaving[port] != NOWHERE) __builtin_prefetch(&net->links[leaving[port]], 1);
        } else if (step == 2) {
            complete(net, frame);
            net->guess(net->switches[index], frame->data + frame->begin, frame->stored,
                       frame->length, part->guesses[at % GUESSED]);
        } else if (step == 3) {
            net->guess_rows(net->switches[index], part->guesses[at % GUESSED]);
        }
    }
}

/* Run what is due before `end`, see `sort_due`. One copy of the code: it stays in the cache. */
ONE_COPY static void run_due(part_t *part, int rest, uint64_t end) {
    int64_t n = (int64_t)sort_due(part, rest, end);
    for (int64_t i = -SWITCH_AHEAD; n && part->net->prefetch && i < 0; i++) look_ahead(part, i, n);
    for (int64_t i = 0; i < n; i++) {
        const event_t *event = &part->sorted[i];
        if (part->net->prefetch) {
            look_ahead(part, i, n);
        } else if (i + NEAR < n) {
            __builtin_prefetch(part->sorted[i + NEAR].frame);
            __builtin_prefetch((uint8_t *)part->sorted[i + NEAR].frame + 64);
        }
        if (event->place == part->n_switches) {
            deliver(part, event->frame, part->net->links[event->link].dst, event->time);
            continue;
        }
        part->current = part->switches[event->place];
        arrive(part, event);
    }
}

/* Whether all others have given out their results of so many stretches. */
static int others_have(const part_t *part, uint64_t steps) {
    const net_t *net = part->net;
    for (uint32_t i = 0; i < net->n_parts; i++)
        if (i != part->number &&
            atomic_load_explicit(&net->parts[i].done, memory_order_acquire) < steps)
            return 0;
    return 1;
}

static void pause_after(uint32_t looks) {
    if (looks % SPINS)
        pause_processor();
    else
        sched_yield();
}

static void wait_for_others(const part_t *part, uint64_t steps) {
    for (uint32_t looks = 1; !others_have(part, steps); looks++) pause_after(looks);
}

static void take_mail(part_t *part) {
    const net_t *net = part->net;
    for (uint32_t i = 0; i < net->n_parts; i++) {
        if (i == part->number) continue;
        events_t *mail = &net->parts[i].mail[(part->step + 1) & 1][part->number].events;
        for (uint64_t m = 0; m < mail->n; m++) file(part, &mail->items[m]);
        mail->n = 0;
    }
}

/* One stretch of time: a window, or what a run has of it. */
static void run_step(part_t *part, uint64_t begin, uint64_t end) {
    part->window = begin / part->net->window_ns;
    if (part->far.n && part->window % (WHEEL / 2) == 0) come_near(part);
    int behind = !others_have(part, part->step);
    if (behind) run_due(part, 1, end);
    wait_for_others(part, part->step);
    take_mail(part);
    run_due(part, 0, end);
    atomic_store_explicit(&part->done, part->step + 1, memory_order_release);
    if (!behind) run_due(part, 1, end);
    send_due(part, end);
    part->step++;
}

/* ---- threads ----------------------------------------------------------------------------- */

static void begin_run(part_t *part, uint64_t begin, uint64_t end) {
    part->until = end;
    part->window = begin / part->net->window_ns;
    come_near(part);
}

/* A stretch of time, step by step: of one thread's part, or of all parts in turn. */
static void run_parts(part_t *parts, uint32_t n, uint64_t begin, uint64_t end) {
    uint64_t window = parts->net->window_ns;
    for (uint32_t p = 0; p < n; p++) begin_run(&parts[p], begin, end);
    while (begin < end) {
        uint64_t stop = (begin / window + 1) * window;
        if (stop > end) stop = end;
        for (uint32_t p = 0; p < n; p++) run_step(&parts[p], begin, stop);
        begin = stop;
    }
}

/* What a thread does: it joins every run, from the one after its first look on. */
static void *work(void *argument) {
    part_t *part = argument;
    net_t *net = part->net;
    for (uint64_t run = 0;; run++) {
        for (uint32_t looks = 1; looks < LOOKS && atomic_load(&net->run) == run; looks++)
            pause_after(looks);
        pthread_mutex_lock(&net->lock);
        while (atomic_load(&net->run) == run && !net->ending)
            pthread_cond_wait(&net->wake, &net->lock);
        int ending = net->ending;
        pthread_mutex_unlock(&net->lock);
        if (ending) return NULL;
        run_parts(part, 1, net->begin, net->end);
        atomic_fetch_add_explicit(&net->finished, 1, memory_order_release);
    }
}

/* Start the threads with all signals blocked. Returns 0, or -1 when there are too many. */
static int start(net_t *net) {
    sigset_t all, before_it;
    int failed = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_it);
    while (!failed && net->started + 1 < (int)net->n_parts) {
        part_t *part = &net->parts[net->started + 1];
        failed = pthread_create(&part->thread, NULL, work, part);
        net->started += !failed;
    }
    pthread_sigmask(SIG_SETMASK, &before_it, NULL);
    return failed ? -1 : 0;
}

static void run_threads(net_t *net, uint64_t begin, uint64_t end) {
    pthread_mutex_lock(&net->lock);
    net->begin = begin;
    net->end = end;
    atomic_store(&net->finished, 0);
    atomic_fetch_add(&net->run, 1);
    pthread_cond_broadcast(&net->wake);
    pthread_mutex_unlock(&net->lock);
    run_parts(&net->parts[0], 1, begin, end);
    for (uint32_t looks = 1;
         atomic_load_explicit(&net->finished, memory_order_acquire) + 1 < net->n_parts; looks++)
        pause_after(looks);
}

static uint64_t hops(const net_t *net) {
    uint64_t sum = 0;
    for (uint32_t p = 0; p < net->n_parts; p++) sum += net->parts[p].stats.packet_hops;
    return sum;
}

static double wall_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

/* Run a stretch, on all threads where that is faster: where cores are busy with other things they
 * wait for each other. The clock decides who computes, never what. Returns where it ended. */
static uint64_t run_stretch(net_t *net, uint64_t begin, uint64_t until) {
    int all = net->always || net->speed[1] > net->speed[0], trial = !net->trial--;
    uint64_t end = begin + (trial ? TRIAL : STRETCH) * net->window_ns, before_it = hops(net);
    if (trial) {
        all = net->always || !all;
        net->trial = net->between;
        if (net->between < SELDOM) net->between *= 2;
        if (all && net->n_parts > 1) { /* waking up is not what the threads are measured by */
            run_threads(net, begin, end < until ? end : until);
            if (end >= until) return until;
            begin = end;
            end += TRIAL * net->window_ns;
            before_it = hops(net);
        }
    }
    if (end > until) end = until;
    double start = wall_ns();
    if (all && net->n_parts > 1)
        run_threads(net, begin, end);
    else
        run_parts(net->parts, net->n_parts, begin, end);
    double speed = (double)(hops(net) - before_it) / (wall_ns() - start + 1);
    int was = net->speed[1] > net->speed[0];
    net->speed[all] = net->speed[all] > 0 ? (net->speed[all] + speed) / 2 : speed;
    if (was != (net->speed[1] > net->speed[0])) net->between = net->trial = 1; /* chance, perhaps */
    return end;
}

/* When something is due next, at the earliest; UINT64_MAX when nothing is under way. */
static uint64_t upcoming(const net_t *net) {
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < net->n_sources; i++) {
        const source_t *source = &net->sources[i];
        uint64_t at = source->n;
        for (uint32_t p = 0; p < net->n_parts; p++)
            if (net->parts[p].next[i] < at) at = net->parts[p].next[i];
        if (at < source->n && source->time[at] < first) first = source->time[at];
    }
    for (uint32_t p = 0; p < net->n_parts; p++) {
        const part_t *part = &net->parts[p];
        for (uint32_t i = 0; i < net->n_parts; i++)
            if (part->mail[0][i].events.n + part->mail[1][i].events.n) return net->now;
        for (uint64_t i = 0; i < part->far.n; i++)
            if (part->far.items[i].time < first) first = part->far.items[i].time;
        uint64_t window = net->now / net->window_ns;
        for (uint64_t w = window; w < window + WHEEL && w * net->window_ns < first; w++)
            if (part->wheel[0][w % WHEEL].n || part->wheel[1][w % WHEEL].n)
                first = w * net->window_ns;
    }
    return first > net->now ? first : net->now;
}

/* ---- called from Python ------------------------------------------------------------------ */

static int make_part(net_t *net, uint32_t number, const uint32_t *owner, const uint32_t *place,
                     const uint32_t *boundary) {
    part_t *part = &net->parts[number];
    part->net = net;
    part->number = number;
    part->n_boundary = boundary[number];
    part->switches = calloc(net->n_switches, sizeof(uint32_t));
    part->first = calloc(net->n_switches + 2, sizeof(uint32_t));
    for (int i = 0; i < 2; i++) part->mail[i] = aligned_alloc(64, net->n_parts * sizeof(mail_t));
    if (!part->switches || !part->first || !part->mail[0] || !part->mail[1]) return -1;
    for (int i = 0; i < 2; i++) memset(part->mail[i], 0, net->n_parts * sizeof(mail_t));
    for (uint32_t i = 0; i < net->n_switches; i++)
        if (owner[i] == number) {
            part->switches[place[i]] = i;
            part->n_switches++;
        }
    return 0;
}

static void *copied(const void *from, size_t size) {
    void *copy = aligned_alloc(64, (size + 64) & ~(size_t)63);
    if (copy) memcpy(copy, from, size);
    return copy;
}

EXPORT net_t *net_new(const setup_t *setup) {
    uint32_t n_switches = setup->n_switches, n_links = setup->n_links, n_parts = setup->n_parts;
    net_t *net = calloc(1, sizeof(net_t));
    if (!net) return NULL;
    pthread_mutex_init(&net->pool.lock, NULL);
    pthread_mutex_init(&net->lock, NULL);
    pthread_cond_init(&net->wake, NULL);
    net->pid = getpid();
    net->n_switches = n_switches;
    net->n_links = n_links;
    net->host_link = setup->host_link;
    net->max_port = setup->max_port;
    net->window_ns = setup->window_ns;
    net->head = setup->head;
    net->always = (int)setup->always;
    net->between = 1;
    net->forward = setup->forward;
    net->prefetch = n_switches / n_parts > MANY ? setup->prefetch : NULL;
    net->guess = setup->guess;
    net->guess_rows = setup->guess_rows;
    net->switches = copied(setup->switches, n_switches * sizeof(ss_switch *));
    net->links = copied(setup->links, n_links * sizeof(link_t));
    net->port_link =
        copied(setup->port_link, (size_t)n_switches * net->max_port * sizeof(uint32_t));
    net->host_owner = calloc(setup->n_hosts + 1, sizeof(uint32_t));
    net->parts = aligned_alloc(64, n_parts * sizeof(part_t));
    if (!net->switches || !net->links || !net->port_link || !net->host_owner || !net->parts)
        return NULL;
    memset(net->parts, 0, n_parts * sizeof(part_t));
    net->n_parts = n_parts;
    for (uint32_t h = 0; h < setup->n_hosts; h++)
        net->host_owner[h] = setup->owner[net->links[net->host_link + h].dst];
    for (uint32_t l = 0; l < n_links; l++) {
        link_t *link = &net->links[l];
        net->rated |= link->rate != 0;
        if (link->to_host) continue;
        link->owner = setup->owner[link->dst];
        link->place = setup->place[link->dst];
    }
    for (uint32_t p = 0; p < n_parts; p++)
        if (make_part(net, p, setup->owner, setup->place, setup->boundary)) return NULL;
    return net;
}

static void end_threads(net_t *net) {
    if (net->pid != getpid()) return; /* they stayed where this process was forked */
    pthread_mutex_lock(&net->lock);
    net->ending = 1;
    pthread_cond_broadcast(&net->wake);
    pthread_mutex_unlock(&net->lock);
    while (net->started) pthread_join(net->parts[net->started--].thread, NULL);
}

EXPORT void net_free(net_t *net) {
    end_threads(net);
    for (uint32_t p = 0; p < net->n_parts; p++) {
        part_t *part = &net->parts[p];
        for (uint32_t i = 0; i < 2 * WHEEL; i++) free(part->wheel[i / WHEEL][i % WHEEL].items);
        for (uint32_t i = 0; i < part->spare_n; i++) free(part->spare[i].items);
        for (uint32_t i = 0; i < 2 * net->n_parts; i++)
            free(part->mail[i / net->n_parts][i % net->n_parts].events.items);
        free(part->far.items);
        free(part->mail[0]);
        free(part->mail[1]);
        free(part->switches);
        free(part->first);
        free(part->order);
        free(part->sorted);
        free(part->drops);
        free(part->replies);
    }
    pool_free(&net->pool);
    free(net->parts);
    free(net->switches);
    free(net->links);
    free(net->port_link);
    free(net->host_owner);
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
    for (uint32_t p = 0; p < net->n_parts; p++) net->parts[p].next[kind] = 0;
}

/* Let another switch stand in the place of one, between two runs. */
EXPORT void net_replace(net_t *net, uint32_t index, ss_switch *in_its_place) {
    net->switches[index] = in_its_place;
}

/* Run every event before `until`. Returns 0, -1 when memory ran out, -2 without threads. */
EXPORT int net_run(net_t *net, uint64_t until) {
    if (net->started + 1 < (int)net->n_parts && start(net)) return -2;
    for (;;) {
        uint64_t begin = upcoming(net);
        if (begin >= until) break;
        net->now = run_stretch(net, begin, until);
        for (uint32_t p = 0; p < net->n_parts; p++)
            if (net->parts[p].oom) return -1;
    }
    net->now = until;
    return 0;
}
