/* Packet ports: AF_PACKET sockets and the thread that moves packets through a switch.
 *
 * One thread receives in batches, runs the batch under the lock, and sends. The control side
 * takes the same lock for every change. Packets for the CPU port, and the news that digest
 * samples wait, go to whoever calls pp_wait.*/
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

enum {
    PP_BATCH = 64,         /* packets received at once */
    PP_BUFFER = 16384,     /* longest packet; longer ones are dropped and counted */
    PP_TAG = 4,            /* room to put a VLAN tag back */
    PP_OUT = 512,          /* packets sent at once */
    PP_ARENA = 1 << 20,    /* bytes sent at once */
    PP_PORTS = 512,
    PP_CPU = 4096,         /* packets that wait for the controller */
    PP_NO_PORT = 0xFFFFFFFF
};
enum { PP_NEWS_PACKET = 1, PP_NEWS_DIGEST = 2, PP_NEWS_WAKE = 4 };

typedef int (*pp_process_fn)(ss_switch *, uint32_t, const uint8_t *, uint32_t, uint64_t,
                             ss_admit_fn, void *, ss_result *);
typedef uint32_t (*pp_pending_fn)(ss_switch *);

typedef struct {
    uint64_t rx_packets, rx_bytes, rx_dropped, tx_packets, tx_bytes, tx_dropped;
} pp_counters;

typedef struct {
    uint32_t number;
    int fd, ifindex;
    pp_counters count;
} pp_port;

typedef struct {
    uint32_t port, offset, length;
} pp_out;

typedef struct {
    uint32_t length;
    uint8_t *data;
} pp_cpu_packet;

typedef struct {
    pthread_mutex_t lock;
    atomic_uint waiting; /* control threads that want the lock */
    pthread_t thread;
    int running, epoll, wake, tx;
    uint32_t ports_n, cpu_port;
    pp_port ports[PP_PORTS];
    uint16_t by_number[PP_PORTS]; /* port number to its place + 1 */
    ss_switch *sw;
    pp_process_fn process;
    pp_pending_fn pending;
    uint64_t start_us, faults, unknown_port, cpu_dropped;
    uint32_t pending_seen;
    ss_result result;
    pp_out out[PP_OUT]; /* to send; guarded by the lock, like the arena */
    uint32_t out_n, arena_used;
    uint8_t *arena, *buffers;
    pthread_mutex_t news_lock;
    pthread_cond_t news_cond;
    uint32_t news, cpu_head, cpu_n;
    pp_cpu_packet cpu[PP_CPU];
} pp_set;

static uint64_t pp_clock_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* A mutex would let the packet thread take the lock again and again: it steps back while
 * the control side waits. */
void pp_lock(pp_set *s) {
    atomic_fetch_add(&s->waiting, 1);
    pthread_mutex_lock(&s->lock);
    atomic_fetch_sub(&s->waiting, 1);
}
void pp_unlock(pp_set *s) {
    uint32_t pending = s->sw ? s->pending(s->sw) : 0;
    if (pending < s->pending_seen) s->pending_seen = pending; /* some were acknowledged */
    pthread_mutex_unlock(&s->lock);
}
static void pp_lock_packets(pp_set *s) {
    for (int i = 0; i < 100 && atomic_load(&s->waiting); i++) sched_yield();
    pthread_mutex_lock(&s->lock);
}

static void pp_tell(pp_set *s, uint32_t news) {
    pthread_mutex_lock(&s->news_lock);
    s->news |= news;
    pthread_cond_signal(&s->news_cond);
    pthread_mutex_unlock(&s->news_lock);
}

pp_set *pp_create(uint32_t cpu_port) {
    pp_set *s = calloc(1, sizeof *s);
    pthread_condattr_t attr;
    if (!s) return NULL;
    s->arena = malloc(PP_ARENA);
    s->buffers = malloc((size_t)PP_BATCH * (PP_BUFFER + PP_TAG));
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->tx = -1;
    if (!s->arena || !s->buffers || s->epoll < 0 || s->wake < 0) {
        free(s->arena);
        free(s->buffers);
        if (s->epoll >= 0) close(s->epoll);
        if (s->wake >= 0) close(s->wake);
        free(s);
        return NULL;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->news_lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->news_cond, &attr);
    pthread_condattr_destroy(&attr);
    s->cpu_port = cpu_port;
    s->start_us = pp_clock_us();
    return s;
}

/* ---- sending ---- */

static pp_port *pp_find(pp_set *s, uint32_t number) {
    uint16_t place = number < PP_PORTS ? s->by_number[number] : 0;
    return place ? s->ports + place - 1 : NULL;
}

static void pp_send(pp_set *s) {
    struct mmsghdr m[PP_OUT];
    struct iovec v[PP_OUT];
    struct sockaddr_ll to[PP_OUT];
    pp_port *port[PP_OUT];
    uint32_t n = 0, at = 0;
    for (uint32_t i = 0; i < s->out_n; i++) {
        pp_port *p = pp_find(s, s->out[i].port);
        if (!p) {
            s->unknown_port++;
            continue;
        }
        port[n] = p;
        v[n] = (struct iovec){s->arena + s->out[i].offset, s->out[i].length};
        memset(to + n, 0, sizeof *to);
        to[n].sll_family = AF_PACKET;
        to[n].sll_ifindex = p->ifindex;
        if (v[n].iov_len >= ETH_HLEN) memcpy(&to[n].sll_protocol, (uint8_t *)v[n].iov_base + 12, 2);
        memset(m + n, 0, sizeof *m);
        m[n].msg_hdr.msg_name = to + n;
        m[n].msg_hdr.msg_namelen = sizeof *to;
        m[n].msg_hdr.msg_iov = v + n;
        m[n].msg_hdr.msg_iovlen = 1;
        n++;
    }
    s->out_n = s->arena_used = 0;
    while (at < n) {
        int done = sendmmsg(s->tx, m + at, n - at, MSG_DONTWAIT);
        if (done < 0 && errno == EINTR) continue;
        for (; done > 0; done--, at++) {
            port[at]->count.tx_packets++;
            port[at]->count.tx_bytes += v[at].iov_len;
        }
        if (done < 0) port[at++]->count.tx_dropped++; /* the first one could not be sent */
    }
}

static void pp_to_cpu(pp_set *s, const uint8_t *data, uint32_t length) {
    uint8_t *copy = malloc((size_t)length + 1);
    if (copy) memcpy(copy, data, length);
    pthread_mutex_lock(&s->news_lock);
    if (copy && s->cpu_n < PP_CPU) {
        s->cpu[(s->cpu_head + s->cpu_n++) % PP_CPU] = (pp_cpu_packet){length, copy};
        copy = NULL;
        s->news |= PP_NEWS_PACKET;
        pthread_cond_signal(&s->news_cond);
    } else {
        s->cpu_dropped++;
    }
    pthread_mutex_unlock(&s->news_lock);
    free(copy);
}

/* Runs one packet and keeps what leaves for pp_send; with the lock held. */
static void pp_run(pp_set *s, uint32_t port, const uint8_t *data, uint32_t length, uint64_t now) {
    ss_result *r = &s->result;
    if (s->process(s->sw, port, data, length, now, NULL, NULL, r)) s->faults++;
    for (uint32_t i = 0; i < r->n; i++) {
        const ss_packet *o = r->packets + i;
        if (o->port == s->cpu_port) {
            pp_to_cpu(s, o->data, o->length);
            continue;
        }
        if (o->length > PP_ARENA) continue;
        if (s->out_n == PP_OUT || s->arena_used + o->length > PP_ARENA) pp_send(s);
        memcpy(s->arena + s->arena_used, o->data, o->length);
        s->out[s->out_n++] = (pp_out){o->port, s->arena_used, o->length};
        s->arena_used += o->length;
    }
}

static void pp_digest_news(pp_set *s) {
    uint32_t pending = s->sw ? s->pending(s->sw) : 0;
    if (pending > s->pending_seen) pp_tell(s, PP_NEWS_DIGEST);
    s->pending_seen = pending;
}

/* ---- receiving ---- */

/* The kernel takes a VLAN tag out of the packet: put it back. */
static uint8_t *pp_retag(struct msghdr *h, uint8_t *data, uint32_t *length) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
        struct tpacket_auxdata a;
        uint16_t tpid, tci;
        if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA) continue;
        memcpy(&a, CMSG_DATA(c), sizeof a);
        if (!(a.tp_status & TP_STATUS_VLAN_VALID) || *length < 12) continue;
        tpid = a.tp_status & TP_STATUS_VLAN_TPID_VALID ? a.tp_vlan_tpid : ETH_P_8021Q;
        tpid = __builtin_bswap16(tpid);
        tci = __builtin_bswap16(a.tp_vlan_tci);
        memmove(data - PP_TAG, data, 12);
        data -= PP_TAG;
        memcpy(data + 12, &tpid, 2);
        memcpy(data + 14, &tci, 2);
        *length += PP_TAG;
    }
    return data;
}

static void pp_receive(pp_set *s, pp_port *p) {
    struct mmsghdr m[PP_BATCH];
    struct iovec v[PP_BATCH];
    struct {
        _Alignas(struct cmsghdr) uint8_t bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
    } control[PP_BATCH];
    uint64_t now;
    int n;
    for (int i = 0; i < PP_BATCH; i++) {
        v[i] = (struct iovec){s->buffers + (size_t)i * (PP_BUFFER + PP_TAG) + PP_TAG, PP_BUFFER};
        memset(m + i, 0, sizeof *m);
        m[i].msg_hdr.msg_iov = v + i;
        m[i].msg_hdr.msg_iovlen = 1;
        m[i].msg_hdr.msg_control = control + i;
        m[i].msg_hdr.msg_controllen = sizeof control[i].bytes;
    }
    n = recvmmsg(p->fd, m, PP_BATCH, MSG_DONTWAIT | MSG_TRUNC, NULL);
    if (n <= 0) return; /* nothing there, or the interface went down */
    now = pp_clock_us() - s->start_us;
    pp_lock_packets(s);
    for (int i = 0; i < n; i++) {
        uint32_t length = m[i].msg_len;
        uint8_t *data = v[i].iov_base;
        p->count.rx_packets++;
        p->count.rx_bytes += length;
        if (length > PP_BUFFER || !s->sw) {
            p->count.rx_dropped++;
            continue;
        }
        data = pp_retag(&m[i].msg_hdr, data, &length);
        pp_run(s, p->number, data, length, now);
    }
    pp_send(s);
    pp_digest_news(s);
    pthread_mutex_unlock(&s->lock);
}

static void *pp_loop(void *arg) {
    pp_set *s = arg;
    struct epoll_event e[64];
    for (;;) {
        int n = epoll_wait(s->epoll, e, 64, -1);
        if (n < 0 && errno != EINTR) return NULL;
        for (int i = 0; i < n; i++) {
            if (e[i].data.u32 == PP_NO_PORT) return NULL;
            pp_receive(s, s->ports + e[i].data.u32);
        }
    }
}

/* ---- control side ---- */

/* Attaches a port to an interface; 0 or -errno. Only before pp_start. */
int pp_add(pp_set *s, uint32_t number, const char *interface) {
    unsigned index = if_nametoindex(interface);
    int one = 1, size = 16 << 20, fd, error;
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = __builtin_bswap16(ETH_P_ALL)};
    struct packet_mreq promiscuous = {.mr_type = PACKET_MR_PROMISC};
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = s->ports_n};
    if (!index) return -errno;
    if (number >= PP_PORTS || s->by_number[number]) return -EEXIST;
    if (s->tx < 0) {
        s->tx = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
        if (s->tx < 0) return -errno;
        setsockopt(s->tx, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    }
    fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size))
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    at.sll_ifindex = promiscuous.mr_ifindex = (int)index;
    if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) ||
        setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &one, sizeof one) ||
        setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) ||
        bind(fd, (struct sockaddr *)&at, sizeof at) ||
        epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e)) {
        error = errno;
        close(fd);
        return -error;
    }
    s->ports[s->ports_n] = (pp_port){.number = number, .fd = fd, .ifindex = (int)index};
    s->by_number[number] = (uint16_t)++s->ports_n;
    return 0;
}

int pp_start(pp_set *s) {
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = PP_NO_PORT};
    int error;
    if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->wake, &e)) return -errno;
    error = pthread_create(&s->thread, NULL, pp_loop, s);
    s->running = !error;
    return -error;
}

/* Ends the packet thread and closes the ports; nobody may be in pp_wait. */
void pp_destroy(pp_set *s) {
    uint64_t one = 1;
    if (s->running && write(s->wake, &one, sizeof one) == (ssize_t)sizeof one)
        pthread_join(s->thread, NULL);
    for (uint32_t i = 0; i < s->ports_n; i++) close(s->ports[i].fd);
    for (; s->cpu_n; s->cpu_n--, s->cpu_head++) free(s->cpu[s->cpu_head % PP_CPU].data);
    if (s->tx >= 0) close(s->tx);
    close(s->epoll);
    close(s->wake);
    free(s->arena);
    free(s->buffers);
    free(s);
}

/* Puts a switch behind the ports (NULL: packets are dropped). With the lock held. */
void pp_switch(pp_set *s, ss_switch *sw, pp_process_fn process, pp_pending_fn pending) {
    s->sw = sw;
    s->process = process;
    s->pending = pending;
    s->pending_seen = 0;
}

/* Runs a packet as if it had come in at a port. */
void pp_inject(pp_set *s, uint32_t port, const uint8_t *data, uint32_t length) {
    pp_lock(s);
    if (s->sw) {
        pp_run(s, port, data, length, pp_clock_us() - s->start_us);
        pp_send(s);
        pp_digest_news(s);
    }
    pp_unlock(s);
}

/* Waits for news: PP_NEWS_ bits, 0 when the time is over (ms < 0: never). */
uint32_t pp_wait(pp_set *s, int64_t ms) {
    struct timespec t;
    uint32_t news;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&s->news_lock);
    while (!s->news) {
        if (ms < 0) pthread_cond_wait(&s->news_cond, &s->news_lock);
        else if (pthread_cond_timedwait(&s->news_cond, &s->news_lock, &t)) break;
    }
    news = s->news;
    s->news = 0;
    pthread_mutex_unlock(&s->news_lock);
    return news;
}
void pp_wake(pp_set *s) { pp_tell(s, PP_NEWS_WAKE); }

/* Takes the next packet for the controller: its whole length, or -1. */
int64_t pp_take(pp_set *s, uint8_t *data, uint32_t room) {
    pp_cpu_packet p = {0, NULL};
    pthread_mutex_lock(&s->news_lock);
    if (s->cpu_n) {
        p = s->cpu[s->cpu_head];
        s->cpu_head = (s->cpu_head + 1) % PP_CPU;
        s->cpu_n--;
    }
    pthread_mutex_unlock(&s->news_lock);
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
    if (!getsockopt(s->ports[place].fd, SOL_PACKET, PACKET_STATISTICS, &k, &n))
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
