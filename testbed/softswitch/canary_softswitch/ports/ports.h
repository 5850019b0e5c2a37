/* SPDX-License-Identifier: Apache-2.0 */
/* The ports of a switch, the threads that move packets, and what they share. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"
#include "capture.h"
#include "offload.h"
#include "queues.h"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

enum {
    PP_BATCH = 64,         /* packets received at once */
    PP_BUFFER = 16384,     /* longest packet; longer ones are dropped and counted */
    PP_FRAME = 65664,      /* longest frame, of which a sender left the cutting to its interface */
    PP_TAG = 4,            /* a VLAN tag */
    PP_VNET = sizeof(struct virtio_net_hdr), /* in front of each frame that comes */
    PP_ROOM = PP_FRAME + 1600, /* from one frame to the next: far from a multiple of 64 KiB, at which
                                * all would share a few lines of a cache */
    PP_OUT = 512,          /* packets sent at once */
    PP_ARENA = 1 << 20,    /* bytes sent at once */
    PP_PORTS = 512,
    PP_CPU = 4096,         /* packets that wait for the controller */
    PP_NO_PORT = 0xFFFFFFFF,
    PP_TIMER = 1 /* what epoll adds to the address of a set whose timer has fired */
};
enum { PP_EVENT_PACKET = 1, PP_EVENT_DIGEST = 2, PP_EVENT_WAKE = 4 };

typedef int (*pp_process_fn)(ss_switch *, uint32_t, const uint8_t *, uint32_t, uint64_t,
                             ss_admit_fn, void *, ss_result *);
typedef uint32_t (*pp_pending_fn)(ss_switch *);
typedef uint32_t (*pp_priority_fn)(const ss_switch *);
typedef void (*pp_waits_fn)(ss_switch *, uint32_t, uint32_t, uint32_t);
typedef void (*pp_log_to_fn)(ss_switch *, ss_log_fn, void *);

typedef struct {
    uint64_t rx_packets, rx_bytes, rx_dropped, tx_packets, tx_bytes, tx_dropped;
} pp_counters;

typedef struct {
    struct pp_set *set;
    uint32_t number;
    int fd, out_fd; /* to receive and to send; -1: a port of a file, or one that was removed */
    FILE *in, *out; /* what is kept of its packets, or NULL */
    uint16_t first, last; /* of what is to send, as places in out, 1 more; 0: nothing */
    pp_egress egress;
    pp_counters count;
} pp_port;

typedef struct {
    uint32_t offset, length;
    uint16_t priority, next; /* of the same port, as pp_port.first */
} pp_out;

typedef struct {
    uint32_t length;
    uint8_t *data;
} pp_cpu_packet;

/* What packets go through on their way; whoever runs one has a space of its own. Between two batches
 * it is empty, so it serves many sets in turn. */
typedef struct {
    ss_result result;
    pp_out out[PP_OUT]; /* to send */
    uint16_t busy[PP_OUT]; /* ports that have something to send */
    uint32_t out_n, busy_n, arena_used;
    uint8_t *arena, segment[PP_BUFFER];
} pp_space;

/* A thread that moves the packets of some sets. */
typedef struct {
    pthread_mutex_t working; /* held from one look for packets to the next */
    atomic_uint waiting; /* threads that want it: to let a set go */
    pthread_t thread;
    int running, epoll, wake;
    uint8_t *buffers;
    struct mmsghdr messages[PP_BATCH];
    struct iovec frames[PP_BATCH];
    struct {
        _Alignas(struct cmsghdr) uint8_t bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
    } control[PP_BATCH];
    pp_space space;
} pp_worker;

/* The workers of a process; each set belongs to one of them. */
typedef struct {
    uint32_t n;
    atomic_uint sets; /* that were made so far */
    pthread_mutex_t injecting; /* of `space`; taken before a set's lock */
    pp_space space; /* of packets that control threads inject */
    pp_worker workers[];
} pp_pool;

/* The ports of a switch. */
typedef struct pp_set {
    pthread_mutex_t lock;
    atomic_uint waiting; /* control threads that want the lock */
    pp_pool *pool;
    pp_worker *worker;
    int timer, captures;
    uint32_t ports_n, cpu_port, priorities;
    pp_port ports[PP_PORTS];
    uint16_t by_number[PP_PORTS]; /* port number to its place + 1 */
    int paused; /* its sockets are not read */
    ss_switch *sw;
    pp_process_fn process;
    pp_pending_fn pending;
    pp_priority_fn priority;
    pp_waits_fn waits;
    pp_log_to_fn log_to;
    uint64_t start_us, faults, unknown_port, cpu_dropped, number;
    uint64_t timer_ns; /* when the timer fires; 0: not set */
    uint32_t pending_seen;
    pp_space *space; /* of who has the lock and runs packets */
    pp_log log;
    pthread_mutex_t events_lock;
    pthread_cond_t events_cond;
    uint32_t events, cpu_head, cpu_n;
    pp_cpu_packet cpu[PP_CPU];
} pp_set;

static uint64_t pp_clock_us(void) { return pp_clock_ns() / 1000; }

/* A mutex would let a packet thread take a lock again and again: it steps back while others wait. */
static void pp_lock_waiting(pthread_mutex_t *lock, atomic_uint *waiting) {
    atomic_fetch_add(waiting, 1);
    pthread_mutex_lock(lock);
    atomic_fetch_sub(waiting, 1);
}
static void pp_lock_stepping_back(pthread_mutex_t *lock, atomic_uint *waiting) {
    for (int i = 0; i < 100 && atomic_load(waiting); i++) sched_yield();
    pthread_mutex_lock(lock);
}
void pp_lock(pp_set *s) { pp_lock_waiting(&s->lock, &s->waiting); }
void pp_unlock(pp_set *s) {
    uint32_t pending = s->sw ? s->pending(s->sw) : 0;
    if (pending < s->pending_seen) s->pending_seen = pending; /* some were acknowledged */
    pthread_mutex_unlock(&s->lock);
}
/* The lock, for a thread that runs packets in a space. */
static void pp_lock_packets(pp_set *s, pp_space *space) {
    pp_lock_stepping_back(&s->lock, &s->waiting);
    s->space = space;
}

static void pp_signal(pp_set *s, uint32_t events) {
    pthread_mutex_lock(&s->events_lock);
    s->events |= events;
    pthread_cond_signal(&s->events_cond);
    pthread_mutex_unlock(&s->events_lock);
}
