/* SPDX-License-Identifier: Apache-2.0 */
/* C interface of a compiled program: what other C code needs to push packets
 * through a switch. Obtain ss_process from Program.process_address and the
 * ss_switch from Switch.handle. */
#ifndef CANARY_SOFTSWITCH_ABI_H
#define CANARY_SOFTSWITCH_ABI_H
#include <stdint.h>

typedef struct ss_switch ss_switch; /* opaque */

typedef struct {
    uint32_t port;
    uint32_t length; /* bytes */
    uint8_t *data;
    /* BMv2 instance_type: 0 normal, 1 ingress clone, 2 egress clone, 4 recirculated,
     * 5 replicated, 6 resubmitted (0 once such a packet left ingress as unicast) */
    uint32_t kind;
    uint32_t stored; /* bytes of data; less than length where the input's were */
    uint32_t priority; /* of the queue that it came through */
} ss_packet;

/* Called between ingress and egress for every packet that enters the egress
 * queue; 0 = tail drop (egress is then not run for it); may be NULL. */
typedef int (*ss_admit_fn)(void *ctx, uint32_t egress_port, uint32_t length);

#define SS_MAX_OUT 1024
#define SS_NO_PORT UINT32_MAX

typedef struct {
    uint32_t n;
    uint32_t queue_dropped;
    uint32_t egress_port; /* of the last packet that came to an egress queue, or SS_NO_PORT */
    uint64_t observed;
    ss_packet packets[SS_MAX_OUT];
} ss_result;

/* Return values of ss_process. On a fault the outputs made so far are in the result. */
enum {
    SS_OK = 0,
    SS_TOO_MANY = 1, /* more than SS_MAX_OUT outputs: the surplus was dropped */
    SS_LOOP = 2,     /* more than 256 passes (recirculate, resubmit, clones): cut off */
    SS_ASSERT = 3,   /* a P4 assert or assume failed: the packet was dropped */
    SS_NO_MEMORY = 4,
    SS_JUMPS = 5 /* more than 1,000,000 jumps in an action: it was left there */
};

/* Data of outputs stays valid until the next ss_process on the same switch;
 * input data is not modified. now_us is the time in microseconds. */
int ss_process(ss_switch *sw, uint32_t port, const uint8_t *data, uint32_t length,
               uint64_t now_us, ss_admit_fn admit, void *admit_ctx, ss_result *out);

/* A packet that arrives, of which only the first `stored` bytes exist, at least those that the program
 * can read (Program.head_bytes). `room`, at most data: the bytes from there to the end of the packet
 * may be overwritten, and the output may lie there; NULL: input data is not modified. */
typedef struct {
    uint8_t *room;
    const uint8_t *data;
    uint64_t now_us;
    uint32_t port, stored, length;
} ss_arrival;

/* As ss_process. */
int ss_forward(ss_switch *sw, const ss_arrival *in, ss_admit_fn admit, void *admit_ctx,
               ss_result *out);

/* Within admit: the priority of the packet that asks, and what its egress shall read of its wait:
 * packets in its queue when it came and when it left, and the time between, in microseconds (all 0
 * unless this is called). */
uint32_t ss_priority(const ss_switch *sw);
void ss_waits(ss_switch *sw, uint32_t enq_qdepth, uint32_t deq_timedelta, uint32_t deq_qdepth);

/* Told each line of the program's log_msg (error: what is wrong with one); text does not end in 0.
 * Without it (NULL, as at the beginning) they go nowhere. */
typedef void (*ss_log_fn)(void *ctx, int error, const char *text, uint32_t length);
void ss_log_to(ss_switch *sw, ss_log_fn log, void *ctx);

/* Number of digest samples not yet acknowledged. */
uint32_t ss_digests_pending(ss_switch *sw);
#endif
