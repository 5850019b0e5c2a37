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
#include "in_order.h"
#include "pages.h"
#include "ranks.h"

#define NEAR 3        /* events ahead of which frames are fetched into the cache */
#define SEND_AHEAD 16 /* windows for which hosts send at once */
#define SPINS 256     /* looks at what another thread does before giving up the core */
#define LOOKS 16384   /* at whether there is a run, before a thread sleeps: waking takes longer */
#define STRETCH 256   /* windows between two looks at what is under way and whether threads pay */
#define TRIAL 16      /* windows in which the slower of one thread and all is tried again */
#define SELDOM 256    /* stretches between two trials, at most */

/* ---- windows ----------------------------------------------------------------------------- */

/* Sort the n events of a window; returns where they are, NULL without memory. */
static const event_t *sort_events(part_t *part, event_t *events, uint64_t n, int rest) {
    if (n <= FEW) {
        sort_few(events, n);
        return events;
    }
    while (part->sorted_cap < n) {
        uint64_t cap = 2 * part->sorted_cap;
        if (!more((void **)&part->sorted, &cap, sizeof(event_t))) {
            part->oom = 1;
            return NULL;
        }
        part->sorted_cap = cap / 2;
    }
    return sort_many(events, n, rest ? part->n_boundary : 0,
                     rest ? part->n_switches + 1 : part->n_boundary, part->first, part->sorted);
}

/* Run sorted events of the current window. One copy of the code: it stays in the cache. */
ONE_COPY static void run_events(part_t *part, const event_t *events, uint64_t n) {
    const uint64_t begin = part->next_begin - part->window_ns;
    for (const event_t *event = events, *end = events + n; event < end; event++) {
        uint32_t place = KEY_PLACE(*event);
        if (end - event > NEAR) {
            const event_t *later = event + NEAR;
            __builtin_prefetch(later->frame);
            __builtin_prefetch((uint8_t *)later->frame + 64);
        }
        if (place == part->n_switches) {
            deliver(part, event->frame, part->net->links[event->frame->link].dst,
                    begin + KEY_LATE(*event));
            continue;
        }
        part->current = part->switches[place];
        part->ports = part->current * part->net->max_port;
        arrive(part, event->frame, begin + KEY_LATE(*event), 0);
    }
}

/* Put those of n events first that are due before `end`, a time in the current window: a run ends
 * there. Returns how many they are. */
static uint32_t due_before(const part_t *part, event_t *events, uint32_t n, uint64_t end) {
    const uint64_t begin = part->next_begin - part->window_ns;
    uint32_t due = 0;
    for (uint32_t i = 0; i < n; i++)
        if (begin + KEY_LATE(events[i]) < end) {
            event_t event = events[i];
            events[i] = events[due];
            events[due++] = event;
        }
    return due;
}

/* Run what is due before `end`, a time in the current window, at the switches with links to other
 * threads' or at the rest. Nothing comes to this window meanwhile. */
static inline __attribute__((always_inline)) void run_due(part_t *part, int rest, uint64_t end) {
    events_t *bucket = &part->wheel[rest][part->window % WHEEL];
    uint32_t n = bucket->n;
    if (!n) return;
    event_t *events = bucket->items;
    if (end < part->next_begin) n = due_before(part, events, n, end);
    const event_t *sorted = sort_events(part, events, n, rest);
    if (!sorted) return;
    run_events(part, sorted, n);
    bucket->n -= n;
    if (bucket->n) {
        memmove(events, events + n, bucket->n * sizeof *events);
        return;
    }
    part->spare[part->spare_n++] = *bucket;
    *bucket = (events_t){0, 0, NULL};
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
        parcels_t *mail = &net->parts[i].mail[(part->step + 1) & 1][part->number].parcels;
        for (uint64_t m = 0; m < mail->n; m++)
            file(part, mail->items[m].frame, mail->items[m].place, mail->items[m].time);
        mail->n = 0;
    }
}

/* Begin with a window: hosts have sent what arrives in it. */
static inline void begin_window(part_t *part, uint64_t window) {
    enter(part, window);
    uint64_t begin = part->next_begin - part->window_ns;
    if (part->far.n && window >= part->near_until) come_near(part);
    if (part->deeds.n) run_ranks(part, part->next_begin < part->until ? part->next_begin : part->until);
    if (part->sent_until < begin) {
        uint64_t end = begin + SEND_AHEAD * part->window_ns;
        send_due(part, end < part->until ? end : part->until);
    }
}

static inline void end_window(part_t *part) {
    uint64_t slot = part->window % WHEEL;
    if (!(part->wheel[0][slot].n | part->wheel[1][slot].n))
        part->due[slot / 64] &= ~(UINT64_C(1) << slot % 64);
    part->step++;
}

/* A window, or what a run has of it, on several threads. */
static void run_step(part_t *part, uint64_t window, uint64_t end) {
    begin_window(part, window);
    int behind = !others_have(part, part->step);
    if (behind) run_due(part, 1, end);
    wait_for_others(part, part->step);
    take_mail(part);
    run_due(part, 0, end);
    atomic_store_explicit(&part->done, part->step + 1, memory_order_release);
    if (!behind) run_due(part, 1, end);
    end_window(part);
}

/* The same of all parts in turn, on one thread. */
static void run_together(part_t *parts, uint32_t n, uint64_t window, uint64_t end) {
    for (uint32_t p = 0; p < n; p++) {
        part_t *part = &parts[p];
        begin_window(part, window);
        take_mail(part);
        run_due(part, 0, end);
        run_due(part, 1, end);
        end_window(part);
        atomic_store_explicit(&part->done, part->step, memory_order_relaxed);
    }
}

/* ---- threads ----------------------------------------------------------------------------- */

static void begin_run(part_t *part, uint64_t begin, uint64_t end) {
    part->until = end;
    enter(part, begin / part->net->window_ns);
    find_all(part);
    come_near(part);
}

/* Hosts have sent what they send before the end of a run. */
static void end_run(part_t *part, uint64_t end) {
    if (part->sent_until < end) send_due(part, end);
}

/* The window in which a part has something to do next, at the earliest, or NEVER. */
static inline uint64_t next_due(const part_t *part) {
    const net_t *net = part->net;
    uint64_t slot = part->window % WHEEL, next = NEVER;
    for (uint32_t i = 0; net->n_parts > 1 && i < net->n_parts; i++)
        if (part->mail[0][i].parcels.n + part->mail[1][i].parcels.n) return 0; /* at once */
    for (uint64_t i = 0; i <= WHEEL / 64; i++) {
        uint64_t word = (slot / 64 + i) % (WHEEL / 64), due = part->due[word];
        if (i == 0) due &= UINT64_MAX << slot % 64;
        if (!due) continue;
        next = part->window + (64 * word + (uint64_t)__builtin_ctzll(due) - slot) % WHEEL;
        break;
    }
    if (part->far.n && part->near_until < next) next = part->near_until;
    if (part->deeds.n && part->deeds.items->time / part->window_ns < next)
        next = part->deeds.items->time / part->window_ns;
    return part->next_send < next ? part->next_send : next;
}

/* A stretch of time, window by window: of one thread's part, */
static void run_part(part_t *part, uint64_t begin, uint64_t end) {
    begin_run(part, begin, end);
    for (uint64_t window = part->window; window * part->window_ns < end; window++) {
        uint64_t stop = (window + 1) * part->window_ns;
        run_step(part, window, stop < end ? stop : end);
    }
    end_run(part, end);
}

/* or of all parts, without windows in which nothing is due. */
static void run_all(net_t *net, uint64_t begin, uint64_t end) {
    part_t *parts = net->parts;
    for (uint32_t p = 0; p < net->n_parts; p++) begin_run(&parts[p], begin, end);
    for (uint64_t window = parts->window; window * net->window_ns < end;) {
        uint64_t next = NEVER, stop = (window + 1) * net->window_ns;
        run_together(parts, net->n_parts, window, stop < end ? stop : end);
        for (uint32_t p = 0; p < net->n_parts; p++) {
            uint64_t due = next_due(&parts[p]);
            if (due < next) next = due;
        }
        if (next == NEVER) break;
        window = next > window ? next : window + 1;
    }
    for (uint32_t p = 0; p < net->n_parts; p++) end_run(&parts[p], end);
}

static void run_one_thread(net_t *net, uint64_t begin, uint64_t end) {
    (net->alike ? run_in_order : run_all)(net, begin, end);
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
        run_part(part, net->begin, net->end);
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
    run_part(&net->parts[0], begin, end);
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
    if (net->n_parts == 1) {
        run_one_thread(net, begin, until);
        return until;
    }
    int all = net->always || net->speed[1] > net->speed[0], trial = !net->trial--;
    uint64_t end = begin + (trial ? TRIAL : STRETCH) * net->window_ns, before_it = hops(net);
    if (trial) {
        all = net->always || !all;
        net->trial = net->between;
        if (net->between < SELDOM) net->between *= 2;
        if (all) { /* waking up is not what the threads are measured by */
            run_threads(net, begin, end < until ? end : until);
            if (end >= until) return until;
            begin = end;
            end += TRIAL * net->window_ns;
            before_it = hops(net);
        }
    }
    if (end > until) end = until;
    double start = wall_ns();
    if (all)
        run_threads(net, begin, end);
    else
        run_one_thread(net, begin, end);
    double speed = (double)(hops(net) - before_it) / (wall_ns() - start + 1);
    int was = net->speed[1] > net->speed[0];
    net->speed[all] = net->speed[all] > 0 ? (net->speed[all] + speed) / 2 : speed;
    if (was != (net->speed[1] > net->speed[0])) net->between = net->trial = 1; /* chance, perhaps */
    return end;
}

/* The time at which something is due next, at the earliest. */
static uint64_t upcoming(net_t *net) {
    uint64_t first = NEVER;
    for (uint32_t p = 0; p < net->n_parts; p++) {
        uint64_t due = next_due(&net->parts[p]);
        if (due < first) first = due;
    }
    if (first == NEVER) return NEVER;
    first *= net->window_ns;
    return first > net->now ? first : net->now;
}

/* ---- called from Python ------------------------------------------------------------------ */

static int make_part(net_t *net, uint32_t number, const uint32_t *owner, const uint32_t *place,
                     const uint32_t *boundary) {
    part_t *part = &net->parts[number];
    part->net = net;
    part->window_ns = net->window_ns;
    part->number = number;
    part->n_boundary = boundary[number];
    part->switches = calloc(net->n_switches, sizeof(uint32_t));
    part->first = calloc(net->n_switches + SLICES + 2, sizeof(uint32_t));
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
    net->adapter = setup->adapter;
    if (setup->adapters) net->adapters = copied(setup->adapters, setup->n_hosts * sizeof(ss_switch *));
    net->switches = copied(setup->switches, n_switches * sizeof(ss_switch *));
    net->links = copied(setup->links, n_links * sizeof(link_t));
    net->depths = calloc(n_links + 1, sizeof(depth_t));
    net->port_link =
        copied(setup->port_link, (size_t)n_switches * net->max_port * sizeof(uint32_t));
    net->host_owner = calloc(setup->n_hosts + 1, sizeof(uint32_t));
    net->parts = aligned_alloc(64, n_parts * sizeof(part_t));
    if (!net->switches || !net->links || !net->depths || !net->port_link || !net->host_owner ||
        !net->parts || (setup->adapters && !net->adapters))
        return NULL;
    memset(net->parts, 0, n_parts * sizeof(part_t));
    net->n_parts = n_parts;
    for (uint32_t h = 0; h < setup->n_hosts; h++)
        net->host_owner[h] = setup->owner[net->links[net->host_link + h].dst];
    net->alike = 1;
    for (uint32_t l = 0; l < n_links; l++) {
        link_t *link = &net->links[l];
        if (link->rate) net->admit = has_room;
        if (link->rate || link->delay != net->links->delay) net->alike = 0;
        if (link->to_host) continue;
        link->owner = setup->owner[link->dst];
        link->place = setup->place[link->dst];
        link->ports = link->dst * net->max_port;
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
            free(part->mail[i / net->n_parts][i % net->n_parts].parcels.items);
        free(part->far.items);
        free(part->deeds.items);
        free(part->mail[0]);
        free(part->mail[1]);
        free(part->switches);
        free(part->first);
        free(part->sorted);
        free(part->drops);
        free(part->replies);
    }
    pool_free(&net->pool);
    free_ranks(net);
    free(net->parts);
    free(net->queue.items);
    free(net->switches);
    free(net->adapters);
    free(net->links);
    free(net->depths);
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

/* Bring all parts to a time before which no event is left. */
static void end_at(net_t *net, uint64_t until) {
    for (uint32_t p = 0; p < net->n_parts; p++) begin_run(&net->parts[p], net->now, until);
    for (uint32_t p = 0; p < net->n_parts; p++) end_run(&net->parts[p], until);
    net->now = until;
}

/* Run every event before `until`. Returns 0, -1 when memory ran out, -2 without threads. */
EXPORT int net_run(net_t *net, uint64_t until) {
    use_large_pages(net);
    if (net->started + 1 < (int)net->n_parts && start(net)) return -2;
    for (uint32_t p = 0; p < net->n_parts; p++) find_all(&net->parts[p]);
    for (;;) {
        uint64_t begin = upcoming(net);
        if (begin >= until) break;
        net->now = run_stretch(net, begin, until);
        for (uint32_t p = 0; p < net->n_parts; p++)
            if (net->parts[p].oom) return -1;
    }
    end_at(net, until);
    return 0;
}
