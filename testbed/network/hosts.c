/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts' agents: one thread sends every host's frames at their times, one counts what arrives.
 *
 * Sockets are opened inside the hosts' network namespaces and then used from here, so one process
 * serves all hosts. Times are nanoseconds of the run's clock, which agents_start starts. A frame is
 * known again by its 5-tuple and by whether it started with a small TTL (probes, traceroutes).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "sources.h"

#define SNAP 128
#define FRAME_MAX 1600
#define BATCH 64
#define GRAIN_NS 1000000    /* frames due within this time of each other leave together */
#define PATIENCE_NS 1000000 /* how long the sender sleeps without looking for new frames */
#define SMALL_TTL 16
#define LATE_CLASSES 16

typedef struct {
    uint64_t a, b; /* addresses; ports, protocol, small TTL */
    uint32_t flow;
    uint32_t source; /* plus 1; 0 is an empty slot */
} slot_t;

typedef struct {
    uint64_t sent, delivered, misdelivered, send_errors, receive_drops, replies, strangers, shims;
    uint64_t from_agents, received, last_arrival;
    uint64_t late[LATE_CLASSES]; /* frames sent 0, 1, 2-3, 4-7, ... ms after their time */
} stats_t;

typedef struct {
    int fd;
    uint64_t receive_drops;
    uint32_t n;
    uint32_t source[BATCH], flow[BATCH];
    struct mmsghdr messages[BATCH];
    struct iovec vectors[BATCH];
    uint8_t frames[BATCH][FRAME_MAX];
} host_t;

typedef struct {
    uint32_t n_hosts, n_sources;
    host_t *hosts;
    source_t sources[MAX_SOURCES];
    slot_t *slots;
    uint64_t slots_n, slots_cap; /* cap is a power of two */
    reply_t *replies;
    uint64_t replies_n, replies_cap;
    stats_t stats;
    run_clock_t clock;
    int running, epoll;
    pthread_t sender, receiver;
    pthread_mutex_t sending, receiving;
} agents_t;

static uint32_t get32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* ---- flows ------------------------------------------------------------------------------ */

/* The key of a flow: for IP-in-IP that of the inner packet, as a switch removes the outer one. */
static int identify(const uint8_t *frame, uint32_t length, int small, uint64_t *a, uint64_t *b) {
    const uint8_t *ip = frame + 14;
    if (length < 14 + 20 + 4 || ip[0] != 0x45) return 0;
    if (ip[9] == 4) {
        ip += 20;
        if (length < 14 + 40 + 4 || ip[0] != 0x45) return 0;
    }
    if (ip[9] != 6 && ip[9] != 17) return 0;
    *a = (uint64_t)get32(ip + 12) << 32 | get32(ip + 16);
    *b = (uint64_t)get32(ip + 20) << 32 | (uint64_t)ip[9] << 8 | (small || ip[8] < SMALL_TTL);
    return 1;
}

static slot_t *find(slot_t *slots, uint64_t cap, uint64_t a, uint64_t b) {
    uint64_t hash = (a ^ b * 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
    hash ^= hash >> 29;
    for (uint64_t i = hash & (cap - 1);; i = (i + 1) & (cap - 1))
        if (!slots[i].source || (slots[i].a == a && slots[i].b == b)) return &slots[i];
}

static int reserve(agents_t *agents, uint64_t more) {
    uint64_t cap = 1024;
    while (cap < 2 * (agents->slots_n + more)) cap *= 2;
    if (cap <= agents->slots_cap) return 0;
    slot_t *slots = calloc(cap, sizeof(slot_t));
    if (!slots) return -1;
    for (uint64_t i = 0; i < agents->slots_cap; i++)
        if (agents->slots[i].source)
            *find(slots, cap, agents->slots[i].a, agents->slots[i].b) = agents->slots[i];
    free(agents->slots);
    agents->slots = slots;
    agents->slots_cap = cap;
    return 0;
}

static int learn(agents_t *agents, uint32_t number) {
    const source_t *source = &agents->sources[number];
    if (reserve(agents, source->flows)) return -1;
    for (uint32_t flow = 0; flow < source->flows; flow++) {
        uint64_t a, b;
        const uint8_t *frame = source->templates + (uint64_t)flow * source->stride;
        if (!identify(frame, source->template_length[flow], source->ttl != NULL, &a, &b)) continue;
        slot_t *slot = find(agents->slots, agents->slots_cap, a, b);
        if (slot->source) continue;
        *slot = (slot_t){a, b, flow, number + 1};
        agents->slots_n++;
    }
    return 0;
}

/* ---- sending ---------------------------------------------------------------------------- */

static void flush(agents_t *agents, host_t *host) {
    uint32_t done = 0, tries = 0;
    while (done < host->n) {
        int n = sendmmsg(host->fd, host->messages + done, host->n - done, 0);
        if (n > 0) {
            done += (uint32_t)n;
            agents->stats.sent += (uint64_t)n;
        } else if ((errno == ENOBUFS || errno == EAGAIN || errno == EINTR) && tries++ < 100) {
            struct timespec pause = {0, 100000};
            nanosleep(&pause, NULL);
        } else { /* this frame never left */
            agents->sources[host->source[done]].sent[host->flow[done]]--;
            agents->stats.send_errors++;
            done++;
        }
    }
    host->n = 0;
}

static inline uint32_t get16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }

static inline uint32_t sum16(const uint8_t *data, uint32_t length) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i + 1 < length; i += 2) sum += get16(data + i);
    return length & 1 ? sum + ((uint32_t)data[length - 1] << 8) : sum;
}

static inline uint32_t fold(uint32_t sum) {
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

/* Zero payload, and an L4 checksum that is surely wrong: the receiving kernel then drops the
 * segment without an answer. The payload adds nothing to the sum. */
static void complete(uint8_t *frame, uint32_t header, uint32_t size) {
    uint8_t *ip = frame + 14, *l4 = ip + 20;
    memset(frame + header, 0, size - header);
    uint32_t at = ip[9] == 17 ? 6 : 16;
    if (header < 34 + at + 2 || (ip[9] != 6 && ip[9] != 17)) return;
    put16(l4 + at, 0);
    uint32_t right = ~fold(sum16(ip + 12, 8) + ip[9] + size - 34 + sum16(l4, header - 34)) & 0xffff;
    put16(l4 + at, right ^ (right == 0x5555 || right == 0xaaaa ? 0x3333 : 0x5555));
}

static void prepare(agents_t *agents, uint32_t number) {
    source_t *source = &agents->sources[number];
    uint64_t at = source->next++;
    uint32_t flow = source->flow[at];
    host_t *host = &agents->hosts[source->src_host[flow]];
    uint8_t *frame = host->frames[host->n];
    const uint8_t *template = source->templates + (uint64_t)flow * source->stride;
    memcpy(frame, template, source->template_length[flow]);
    uint32_t size = fill_in(source, at, frame);
    if (varies(source)) complete(frame, source->template_length[flow], size);
    source->sent[flow]++;
    host->source[host->n] = number;
    host->flow[host->n] = flow;
    host->vectors[host->n].iov_len = size;
    if (++host->n == BATCH) flush(agents, host);
}

static void count_delay(stats_t *stats, uint64_t delay) {
    uint32_t class = 0;
    for (uint64_t ms = delay / 1000000; ms && class + 1 < LATE_CLASSES; ms /= 2) class++;
    stats->late[class]++;
}

/* Busy switches must not make frames late. Only root may; without it they are just later. */
static void hurry(const char *name) {
    pthread_setname_np(pthread_self(), name);
    struct sched_param priority = {.sched_priority = 1};
    pthread_setschedparam(pthread_self(), SCHED_RR, &priority);
}

static void *send_all(void *context) {
    agents_t *agents = context;
    hurry("hosts-send");
    while (__atomic_load_n(&agents->running, __ATOMIC_ACQUIRE)) {
        uint64_t real, now = clock_read(&agents->clock, &real), next = now + PATIENCE_NS;
        pthread_mutex_lock(&agents->sending);
        for (uint32_t i = 0; i < agents->n_sources; i++) {
            source_t *source = &agents->sources[i];
            while (source->next < source->n && source->time[source->next] <= now) {
                count_delay(&agents->stats, now - source->time[source->next]);
                prepare(agents, i);
            }
            if (source->next < source->n && source->time[source->next] < next)
                next = source->time[source->next];
        }
        for (uint32_t i = 0; i < agents->n_hosts; i++)
            if (agents->hosts[i].n) flush(agents, &agents->hosts[i]);
        pthread_mutex_unlock(&agents->sending);
        if (next < now + GRAIN_NS) next = now + GRAIN_NS;
        next += real - now;
        struct timespec until = {(time_t)(next / 1000000000ull), (long)(next % 1000000000ull)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
    return NULL;
}

/* ---- receiving -------------------------------------------------------------------------- */

static void keep_reply(agents_t *agents, uint32_t host, const uint8_t *frame, uint32_t length) {
    if (agents->replies_n == agents->replies_cap) {
        uint64_t cap = agents->replies_cap ? agents->replies_cap * 2 : 1024;
        reply_t *more = realloc(agents->replies, cap * sizeof(reply_t));
        if (!more) return;
        agents->replies = more;
        agents->replies_cap = cap;
    }
    reply_t *reply = &agents->replies[agents->replies_n++];
    write_reply(reply, clock_read(&agents->clock, NULL), host, frame, length);
    agents->stats.replies++;
}

static void arrived(agents_t *agents, uint32_t host, const uint8_t *frame, uint32_t length) {
    uint64_t a, b;
    if (length >= 14 && get16(frame + 12) == 0x88B5) agents->stats.shims++;
    if (length < 34 || get16(frame + 12) != 0x0800) return;
    if (frame[14] == 0x45 && frame[23] == 1 && length >= 36 && frame[34] == 11) {
        keep_reply(agents, host, frame, length);
        return;
    }
    const slot_t *slot = NULL;
    if (agents->slots_cap && identify(frame, length, 0, &a, &b))
        slot = find(agents->slots, agents->slots_cap, a, b);
    if (!slot || !slot->source) {
        agents->stats.strangers++; /* the kernels' own packets */
        return;
    }
    source_t *source = &agents->sources[slot->source - 1];
    if (source->dst_host[slot->flow] != host || frame[23] == 4) {
        agents->stats.misdelivered++;
        return;
    }
    source->delivered[slot->flow]++;
    agents->stats.delivered++;
    agents->stats.from_agents += source->sent[slot->flow] > 0; /* not by a kernel's TCP */
}

static void *receive_all(void *context) {
    agents_t *agents = context;
    hurry("hosts-receive");
    static __thread uint8_t data[BATCH][SNAP];
    struct mmsghdr messages[BATCH] = {0};
    struct iovec vectors[BATCH];
    struct epoll_event events[64];
    for (int i = 0; i < BATCH; i++) {
        vectors[i] = (struct iovec){data[i], SNAP};
        messages[i].msg_hdr.msg_iov = &vectors[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    while (__atomic_load_n(&agents->running, __ATOMIC_ACQUIRE)) {
        int ready = epoll_wait(agents->epoll, events, 64, 20);
        for (int e = 0; e < ready; e++) {
            uint32_t host = events[e].data.u32;
            int n = recvmmsg(agents->hosts[host].fd, messages, BATCH, MSG_DONTWAIT, NULL);
            if (n <= 0) continue;
            pthread_mutex_lock(&agents->receiving);
            for (int i = 0; i < n; i++) arrived(agents, host, data[i], messages[i].msg_len);
            agents->stats.received += (uint64_t)n;
            agents->stats.last_arrival = clock_read(&agents->clock, NULL);
            pthread_mutex_unlock(&agents->receiving);
        }
    }
    return NULL;
}

/* ---- called from Python ----------------------------------------------------------------- */

EXPORT agents_t *agents_new(uint32_t n_hosts) {
    agents_t *agents = calloc(1, sizeof(agents_t));
    if (!agents) return NULL;
    agents->hosts = calloc(n_hosts, sizeof(host_t));
    agents->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!agents->hosts || agents->epoll < 0) {
        free(agents->hosts);
        free(agents);
        return NULL;
    }
    agents->n_hosts = n_hosts;
    clock_init(&agents->clock);
    pthread_mutex_init(&agents->sending, NULL);
    pthread_mutex_init(&agents->receiving, NULL);
    for (uint32_t h = 0; h < n_hosts; h++) {
        host_t *host = &agents->hosts[h];
        host->fd = -1;
        for (int i = 0; i < BATCH; i++) {
            host->vectors[i].iov_base = host->frames[i];
            host->messages[i].msg_hdr.msg_iov = &host->vectors[i];
            host->messages[i].msg_hdr.msg_iovlen = 1;
        }
    }
    return agents;
}

/* Open a host's socket. The calling thread must be in the host's network namespace. */
EXPORT int agents_open(agents_t *agents, uint32_t host, const char *interface) {
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), one = 1, size = 32 << 20;
    if (fd < 0) return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size)) /* not root's */
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one);
    struct sockaddr_ll address = {.sll_family = AF_PACKET,
                                  .sll_protocol = htons(ETH_P_ALL),
                                  .sll_ifindex = (int)if_nametoindex(interface)};
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = host};
    if (!address.sll_ifindex || bind(fd, (struct sockaddr *)&address, sizeof address) ||
        epoll_ctl(agents->epoll, EPOLL_CTL_ADD, fd, &event)) {
        int error = errno;
        close(fd);
        return -error;
    }
    agents->hosts[host].fd = fd;
    return 0;
}

EXPORT int agents_add_source(agents_t *agents, const source_t *source) {
    int number = -1;
    pthread_mutex_lock(&agents->sending);
    pthread_mutex_lock(&agents->receiving);
    if (agents->n_sources < MAX_SOURCES) {
        agents->sources[agents->n_sources] = *source;
        if (!learn(agents, agents->n_sources)) number = (int)agents->n_sources++;
    }
    pthread_mutex_unlock(&agents->receiving);
    pthread_mutex_unlock(&agents->sending);
    return number;
}

/* Replace what a source sends next; -1 while it still has frames to send. */
EXPORT int agents_feed_source(agents_t *agents, uint32_t number, const source_t *source) {
    pthread_mutex_lock(&agents->sending);
    int busy = agents->sources[number].next < agents->sources[number].n;
    if (!busy) {
        pthread_mutex_lock(&agents->receiving);
        agents->sources[number] = *source;
        pthread_mutex_unlock(&agents->receiving);
    }
    pthread_mutex_unlock(&agents->sending);
    return busy ? -1 : 0;
}

EXPORT int agents_start(agents_t *agents) {
    clock_start(&agents->clock);
    __atomic_store_n(&agents->running, 1, __ATOMIC_RELEASE);
    if (pthread_create(&agents->receiver, NULL, receive_all, agents)) return -1;
    if (pthread_create(&agents->sender, NULL, send_all, agents)) {
        __atomic_store_n(&agents->running, 0, __ATOMIC_RELEASE);
        pthread_join(agents->receiver, NULL);
        return -1;
    }
    return 0;
}

EXPORT uint64_t agents_now(agents_t *agents) { return clock_read(&agents->clock, NULL); }

EXPORT void agents_hold(agents_t *agents, uint64_t gate) { clock_hold(&agents->clock, gate); }

EXPORT uint64_t agents_held(agents_t *agents) { return clock_held(&agents->clock); }

/* Frames that sources still have to send. */
EXPORT uint64_t agents_waiting(agents_t *agents) {
    uint64_t waiting = 0;
    pthread_mutex_lock(&agents->sending);
    for (uint32_t i = 0; i < agents->n_sources; i++)
        waiting += agents->sources[i].n - agents->sources[i].next;
    pthread_mutex_unlock(&agents->sending);
    return waiting;
}

/* With the lock `receiving` held. */
static void read_drops(agents_t *agents) {
    for (uint32_t h = 0; h < agents->n_hosts; h++) {
        struct tpacket_stats stats; /* reading them sets them to 0 */
        socklen_t length = sizeof stats;
        if (agents->hosts[h].fd < 0 ||
            getsockopt(agents->hosts[h].fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length))
            continue;
        agents->hosts[h].receive_drops += stats.tp_drops;
        agents->stats.receive_drops += stats.tp_drops;
    }
}

/* What each host could not take, to[n_hosts]. */
EXPORT void agents_receive_drops(agents_t *agents, uint64_t *to) {
    pthread_mutex_lock(&agents->receiving);
    read_drops(agents);
    for (uint32_t h = 0; h < agents->n_hosts; h++) to[h] = agents->hosts[h].receive_drops;
    pthread_mutex_unlock(&agents->receiving);
}

/* The totals of one moment. */
EXPORT void agents_stats(agents_t *agents, stats_t *to) {
    pthread_mutex_lock(&agents->sending);
    pthread_mutex_lock(&agents->receiving);
    read_drops(agents);
    *to = agents->stats;
    pthread_mutex_unlock(&agents->receiving);
    pthread_mutex_unlock(&agents->sending);
}

/* Copies at most `most` replies and returns how many there are. */
EXPORT uint64_t agents_replies(agents_t *agents, reply_t *to, uint64_t most) {
    pthread_mutex_lock(&agents->receiving);
    uint64_t n = agents->replies_n;
    if (most) memcpy(to, agents->replies, (most < n ? most : n) * sizeof(reply_t));
    pthread_mutex_unlock(&agents->receiving);
    return n;
}

EXPORT void agents_stop(agents_t *agents) {
    if (!agents->running) return;
    __atomic_store_n(&agents->running, 0, __ATOMIC_RELEASE);
    pthread_join(agents->sender, NULL);
    pthread_join(agents->receiver, NULL);
}

EXPORT void agents_free(agents_t *agents) {
    agents_stop(agents);
    for (uint32_t h = 0; h < agents->n_hosts; h++)
        if (agents->hosts[h].fd >= 0) close(agents->hosts[h].fd);
    close(agents->epoll);
    free(agents->hosts);
    free(agents->slots);
    free(agents->replies);
    free(agents);
}
