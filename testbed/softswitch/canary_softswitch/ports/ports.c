/* SPDX-License-Identifier: Apache-2.0 */
/* Packet ports: AF_PACKET sockets and the threads that move packets through switches.
 *
 * The packets of a switch are moved by one thread: it receives in batches, runs a batch under the
 * lock, and sends. The control side takes the same lock for every change. Packets for the CPU port, and the event that digest
 * samples wait, go to whoever calls pp_wait.*/
#include "ports.h"
#include "transmit.h"

static void pp_to_cpu(pp_set *s, const uint8_t *data, uint32_t length) {
    uint8_t *copy = malloc((size_t)length + 1);
    if (copy) memcpy(copy, data, length);
    pthread_mutex_lock(&s->events_lock);
    if (copy && s->cpu_n < PP_CPU) {
        s->cpu[(s->cpu_head + s->cpu_n++) % PP_CPU] = (pp_cpu_packet){length, copy};
        copy = NULL;
        s->events |= PP_EVENT_PACKET;
        pthread_cond_signal(&s->events_cond);
    } else {
        s->cpu_dropped++;
    }
    pthread_mutex_unlock(&s->events_lock);
    free(copy);
}

/* Whether a packet may come to its queue; the program is told what is there and how long it waits. */
static int pp_admit(void *context, uint32_t port, uint32_t length) {
    pp_set *s = context;
    pp_port *p = pp_find(s, port);
    uint32_t priority = s->priority(s->sw), depth;
    pp_queue *q;
    (void)length;
    if (priority >= s->priorities) {
        pp_say(&s->log, PP_ERROR, "Priority out of range, dropping packet");
        return 0; /* the program checks this too */
    }
    if (!p || (!p->egress.n && !p->egress.rated)) return 1;
    q = p->egress.queues + priority;
    if (q->n >= pp_room(q)) {
        p->count.tx_dropped++;
        return 0;
    }
    depth = pp_depth(q);
    s->waits(s->sw, depth, (uint32_t)(pp_wait_ns(q, pp_clock_ns()) / 1000), depth);
    return 1;
}

/* Runs one packet and keeps what leaves for pp_send; with the lock held. */
static void pp_run(pp_set *s, uint32_t port, const uint8_t *data, uint32_t length, uint64_t now) {
    pp_space *space = s->space;
    ss_result *r = &space->result;
    s->number++;
    if (s->log.fd >= 0)
        pp_say(&s->log, PP_DEBUG, "[%llu.0] [cxt 0] Processing packet received on port %u",
               (unsigned long long)s->number, port);
    if (s->process(s->sw, port, data, length, now, pp_admit, s, r)) s->faults++;
    for (uint32_t i = 0; i < r->n; i++) {
        const ss_packet *o = r->packets + i;
        pp_port *p;
        uint16_t place;
        if (o->port == s->cpu_port) {
            pp_say(&s->log, PP_DEBUG, "Transmitting packet-in");
            pp_dump(&s->log, "Sending packet-in", o->port, o->data, o->length);
            pp_to_cpu(s, o->data, o->length);
            continue;
        }
        if (!(p = pp_find(s, o->port))) {
            s->unknown_port++;
            continue;
        }
        if (o->length > PP_ARENA) continue;
        if (p->egress.n || p->egress.rated) {
            pp_queue_up(s, p, o->priority, o->data, o->length);
            if (p->egress.rated) pp_drain(s, p);
            continue;
        }
        if (space->out_n == PP_OUT || space->arena_used + o->length > PP_ARENA) pp_send(s);
        memcpy(space->arena + space->arena_used, o->data, o->length);
        space->out[space->out_n] =
            (pp_out){space->arena_used, o->length, (uint16_t)o->priority, 0};
        space->arena_used += o->length;
        place = (uint16_t)++space->out_n;
        if (p->first) space->out[p->last - 1].next = place;
        else p->first = place, space->busy[space->busy_n++] = (uint16_t)(p - s->ports);
        p->last = place;
    }
}

/* One packet that has come in at a port. */
static void pp_came(pp_set *s, pp_port *p, const uint8_t *data, uint32_t length, uint64_t now) {
    p->count.rx_packets++;
    p->count.rx_bytes += length;
    if (p->in) pp_pcap_write(p->in, data, length);
    if (s->log.fd >= 0) pp_dump(&s->log, "Received packet", p->number, data, length);
    if (s->sw) pp_run(s, p->number, data, length, now);
    else p->count.rx_dropped++;
}

static void pp_signal_digests(pp_set *s) {
    uint32_t pending = s->sw ? s->pending(s->sw) : 0;
    if (pending > s->pending_seen) pp_signal(s, PP_EVENT_DIGEST);
    s->pending_seen = pending;
}

/* After a batch: send packets, report new digests to pp_wait, and flush log and capture files. */
static void pp_finish(pp_set *s) {
    pp_send(s);
    pp_signal_digests(s);
    if (s->log.used) pp_log_flush(&s->log);
    for (uint32_t i = 0; s->captures && i < s->ports_n; i++) {
        if (s->ports[i].in) fflush(s->ports[i].in);
        if (s->ports[i].out) fflush(s->ports[i].out);
    }
}

#include "receive.h"
#include "workers.h"

/* ---- control side ---- */

/* Logs to a stream (path NULL), or to PATH.txt, which is begun anew after max_size bytes while
 * max_files older ones are kept; 0 or -errno. */
int pp_log_to(pp_set *s, int fd, const char *path, int level, uint64_t dump, uint64_t max_size,
              uint32_t max_files) {
    pp_log *l = &s->log;
    l->level = level;
    l->dump = dump;
    l->max_size = max_size;
    l->max_files = max_files;
    if (!path) {
        l->fd = fd;
        return 0;
    }
    if (!(l->path = strdup(path))) return -ENOMEM;
    l->fd = -1;
    pp_log_rotate(l);
    return l->fd < 0 ? -errno : 0;
}
/* A line of the control side. */
void pp_log_line(pp_set *s, int level, const char *text) {
    pp_lock(s);
    pp_say(&s->log, level, "%s", text);
    pp_log_flush(&s->log);
    pp_unlock(s);
}

/* Opens the two sockets of the next port; -errno if it cannot. What it sends goes by a socket of its
 * own, which receives nothing: a vnet header in front of each packet would cost time, and nothing is
 * left to the interface. */
static int pp_open(pp_set *s, pp_port *p, const char *interface) {
    unsigned index = if_nametoindex(interface);
    int one = 1, size = 16 << 20, kind = SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK;
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = (int)index};
    struct packet_mreq promiscuous = {.mr_type = PACKET_MR_PROMISC, .mr_ifindex = (int)index};
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uintptr_t)(s->ports + s->ports_n)};
    if (!index) return -errno;
    if ((p->out_fd = socket(AF_PACKET, kind, 0)) < 0 ||
        bind(p->out_fd, (struct sockaddr *)&at, sizeof at) ||
        (p->fd = socket(AF_PACKET, kind, 0)) < 0)
        return -errno;
    if (setsockopt(p->fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size))
        setsockopt(p->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    at.sll_protocol = __builtin_bswap16(ETH_P_ALL);
    if (setsockopt(p->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) ||
        setsockopt(p->fd, SOL_PACKET, PACKET_AUXDATA, &one, sizeof one) ||
        setsockopt(p->fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) ||
        setsockopt(p->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) ||
        bind(p->fd, (struct sockaddr *)&at, sizeof at) ||
        (!s->paused && epoll_ctl(s->worker->epoll, EPOLL_CTL_ADD, p->fd, &e)))
        return -errno;
    return 0;
}
/* Stop polling a port's sockets. Closing them is not enough: copies may be open elsewhere. */
static void pp_leave(pp_set *s, pp_port *p) {
    if (p->fd >= 0) epoll_ctl(s->worker->epoll, EPOLL_CTL_DEL, p->fd, NULL);
    if (p->egress.watched) epoll_ctl(s->worker->epoll, EPOLL_CTL_DEL, p->out_fd, NULL);
}
static void pp_close(pp_set *s, pp_port *p) {
    pp_leave(s, p);
    if (p->fd >= 0) close(p->fd);
    if (p->out_fd >= 0) close(p->out_fd);
    if (p->in) fclose(p->in);
    if (p->out) fclose(p->out);
    pp_egress_free(&p->egress, s->priorities);
    p->fd = p->out_fd = -1;
    p->in = p->out = NULL;
    p->egress = (pp_egress){0};
}

/* Attaches a port to an interface, or to a file of packets that leave (interface NULL); `in` and
 * `out` are pcap files for its packets, or NULL; 0 or -errno. */
int pp_add(pp_set *s, uint32_t number, const char *interface, const char *in, const char *out) {
    pp_port p = {.set = s, .number = number, .fd = -1, .out_fd = -1};
    int error = 0;
    if (number >= PP_PORTS || s->by_number[number]) return -EEXIST;
    if (s->ports_n == PP_PORTS) return -ENOSPC;
    if (in && !(p.in = pp_pcap_open(in))) error = -errno;
    if (!error && out && !(p.out = pp_pcap_open(out))) error = -errno;
    if (!error && !pp_egress_init(&p.egress, s->priorities)) error = -ENOMEM;
    pp_lock(s);
    if (!error && interface) error = pp_open(s, &p, interface);
    if (error) {
        pp_close(s, &p);
    } else {
        pp_say(&s->log, PP_DEBUG, "Adding interface %s as port %u", interface ? interface : out,
               number);
        s->captures |= p.in || p.out;
        s->ports[s->ports_n] = p;
        s->by_number[number] = (uint16_t)++s->ports_n;
    }
    pp_unlock(s);
    return error;
}
/* Lets a port go; 0 or -errno. Its place stays, and its counters. */
int pp_remove(pp_set *s, uint32_t number) {
    pp_port *p;
    pp_lock(s);
    if ((p = pp_find(s, number))) {
        pp_say(&s->log, PP_DEBUG, "Removing port %u", number);
        pp_close(s, p);
        s->by_number[number] = 0;
    }
    pp_unlock(s);
    return p ? 0 : -ENOENT;
}

/* A switch's ports, which the next of the pool's workers serves; NULL without memory or files. */
pp_set *pp_create(pp_pool *pool, uint32_t cpu_port, uint32_t priorities) {
    pp_set *s = calloc(1, sizeof *s);
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uintptr_t)s + PP_TIMER};
    pthread_condattr_t attr;
    if (!s) return NULL;
    s->pool = pool;
    s->worker = pool->workers + atomic_fetch_add(&pool->sets, 1) % pool->n;
    for (uint32_t i = 0; i < PP_PORTS; i++) {
        s->ports[i].set = s;
        s->ports[i].fd = s->ports[i].out_fd = -1;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->events_lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->events_cond, &attr);
    pthread_condattr_destroy(&attr);
    s->cpu_port = cpu_port;
    s->priorities = priorities;
    s->log.fd = -1;
    s->start_us = pp_clock_us();
    s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (s->timer < 0 || epoll_ctl(s->worker->epoll, EPOLL_CTL_ADD, s->timer, &e)) {
        if (s->timer >= 0) close(s->timer);
        free(s);
        return NULL;
    }
    return s;
}

/* Closes the ports, once their worker is not at them; nobody may be in pp_wait. */
void pp_destroy(pp_set *s) {
    pp_worker *w = s->worker;
    pp_lock_waiting(&w->working, &w->waiting);
    for (uint32_t i = 0; i < s->ports_n; i++) pp_leave(s, s->ports + i);
    close(s->timer);
    pthread_mutex_unlock(&w->working);
    if (s->sw) s->log_to(s->sw, NULL, NULL);
    for (uint32_t i = 0; i < s->ports_n; i++) pp_close(s, s->ports + i); /* takes some 10 ms each */
    for (; s->cpu_n; s->cpu_n--, s->cpu_head++) free(s->cpu[s->cpu_head % PP_CPU].data);
    pp_log_flush(&s->log);
    if (s->log.path) close(s->log.fd);
    free(s->log.path);
    free(s);
}

/* Depth in packets and rate in packets a second (0: none) of the queues that a port and a priority
 * name, PP_NO_PORT for all; a negative number leaves things as they are. -ENOENT: no such queue. */
int pp_queue_limits(pp_set *s, uint32_t number, uint32_t priority, int64_t depth, int64_t rate) {
    int found = 0;
    pp_lock(s);
    for (uint32_t i = 0; i < s->ports_n; i++) {
        pp_port *p = s->ports + i;
        if (!p->egress.queues || (number != PP_NO_PORT && p->number != number)) continue;
        for (uint32_t k = 0; k < s->priorities; k++) {
            if (priority != PP_NO_PORT && k != priority) continue;
            found = 1;
            if (depth >= 0) p->egress.queues[k].depth = (uint32_t)depth;
            if (rate >= 0) p->egress.queues[k].gap_ns = rate ? 1000000000 / (uint64_t)rate : 0;
        }
        p->egress.rated = 0;
        for (uint32_t k = 0; k < s->priorities; k++)
            p->egress.rated |= p->egress.queues[k].gap_ns != 0;
        if (!p->egress.rated && p->egress.n) pp_watch(s, p, 1);
    }
    pp_unlock(s);
    return found || number == PP_NO_PORT ? 0 : -ENOENT;
}

/* A line of the program's log_msg. */
static void pp_program_says(void *context, int error, const char *text, uint32_t length) {
    pp_set *s = context;
    pp_say_text(&s->log, error ? PP_ERROR : PP_INFO, text, length);
}

/* Puts a switch behind the ports (NULL: packets are dropped). With the lock held. */
void pp_switch(pp_set *s, ss_switch *sw, pp_process_fn process, pp_pending_fn pending,
               pp_priority_fn priority, pp_waits_fn waits, pp_log_to_fn log_to) {
    if (s->sw) s->log_to(s->sw, NULL, NULL);
    if (sw && s->log.fd >= 0) log_to(sw, pp_program_says, s);
    s->log_to = log_to;
    s->sw = sw;
    s->process = process;
    s->pending = pending;
    s->priority = priority;
    s->waits = waits;
    s->pending_seen = 0;
}

/* Lets packets wait in the sockets of the ports, or takes them again. With the lock held. */
void pp_pause(pp_set *s, int paused) {
    for (uint32_t i = 0; i < s->ports_n && s->paused != paused; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uintptr_t)(s->ports + i)};
        int what = paused ? EPOLL_CTL_DEL : EPOLL_CTL_ADD;
        if (s->ports[i].fd >= 0) epoll_ctl(s->worker->epoll, what, s->ports[i].fd, &e);
    }
    s->paused = paused;
}

/* Runs a packet as if it had come in at a port. */
void pp_inject(pp_set *s, uint32_t port, const uint8_t *data, uint32_t length) {
    pp_port *p;
    uint64_t now = pp_clock_us() - s->start_us;
    pthread_mutex_lock(&s->pool->injecting);
    pp_lock(s);
    s->space = &s->pool->space;
    if ((p = pp_find(s, port))) pp_came(s, p, data, length, now);
    else if (s->sw) pp_run(s, port, data, length, now);
    pp_finish(s);
    pp_unlock(s);
    pthread_mutex_unlock(&s->pool->injecting);
}

/* Waits for events: PP_EVENT_ bits, 0 when the time is over (ms < 0: never). */
uint32_t pp_wait(pp_set *s, int64_t ms) {
    struct timespec t;
    uint32_t events;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&s->events_lock);
    while (!s->events) {
        if (ms < 0) pthread_cond_wait(&s->events_cond, &s->events_lock);
        else if (pthread_cond_timedwait(&s->events_cond, &s->events_lock, &t)) break;
    }
    events = s->events;
    s->events = 0;
    pthread_mutex_unlock(&s->events_lock);
    return events;
}
uint64_t pp_now(const pp_set *s) { return pp_clock_us() - s->start_us; }
void pp_wake(pp_set *s) { pp_signal(s, PP_EVENT_WAKE); }

/* Takes the next packet for the controller: its whole length, or -1. */
int64_t pp_take(pp_set *s, uint8_t *data, uint32_t room) {
    pp_cpu_packet p = {0, NULL};
    pthread_mutex_lock(&s->events_lock);
    if (s->cpu_n) {
        p = s->cpu[s->cpu_head];
        s->cpu_head = (s->cpu_head + 1) % PP_CPU;
        s->cpu_n--;
    }
    pthread_mutex_unlock(&s->events_lock);
    if (!p.data) return -1;
    memcpy(data, p.data, p.length < room ? p.length : room);
    free(p.data);
    return p.length;
}

/* Counters of the port at a place (in the order they were added); what the kernel dropped
 * before the packet thread could take it is in rx_dropped. */
void pp_read(pp_set *s, uint32_t place, pp_counters *c) {
    struct tpacket_stats k;
    socklen_t n = sizeof k;
    pp_lock(s);
    if (s->ports[place].fd >= 0 &&
        !getsockopt(s->ports[place].fd, SOL_PACKET, PACKET_STATISTICS, &k, &n))
        s->ports[place].count.rx_dropped += k.tp_drops;
    *c = s->ports[place].count;
    pp_unlock(s);
}
/* faults, packets to ports that do not exist, packets the controller was too slow for */
void pp_read_totals(pp_set *s, uint64_t totals[3]) {
    pp_lock(s);
    totals[0] = s->faults;
    totals[1] = s->unknown_port;
    totals[2] = s->cpu_dropped;
    pp_unlock(s);
}
