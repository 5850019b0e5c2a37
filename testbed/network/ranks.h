/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a collective in the virtual network (virtual.c): hosts that wait for what they receive, and
 * send what was lost again, as RDMA's reliable connections do.
 *
 * A message is a chunk of `chunk` packets on the connection of two ranks. It begins when its rank has
 * received what it needs, and its connection's former message is acknowledged. Packets carry RoCEv2's
 * sequence numbers (PSN); acknowledgements and negative ones (NAK) are packets, too. Go-back-N: the
 * receiver discards what follows a gap, and the sender goes back to it. Selective repeat: it keeps what
 * follows, and asks for a packet once `reorder` packets behind it have come, or as much time has passed
 * since the message's last one. Both send again what nobody acknowledges for `timeout_ns`.
 *
 * What comes to hosts, and what they do later, waits in a heap of each thread. A host's ToR is of the
 * same thread, and what it receives in a window was sent to it in an earlier one. So all of a window is
 * known at its begin, and hosts act then, in the order of time.
 */
#ifndef CANARY_NETWORK_RANKS_H
#define CANARY_NETWORK_RANKS_H
#include "links.h"

#define BTH 42           /* where RoCEv2's header lies in a frame; behind it is AETH */
#define PSN_AT (BTH + 9) /* 24 bits */
#define AETH_AT (BTH + 12)
#define NAK 0x60
#define ACK_FRAME 64     /* bytes */

/* As Python gives them (testbed.network.ranks); the arrays stay the caller's. */
struct ranks {
    uint64_t frame_ns, timeout_ns, pause_ns, near_ns, end_ns;
    uint32_t source, n_connections, n_ranks, n_messages, chunk, last_size, full_size;
    uint32_t reorder, selective, most;
    uint32_t n_flows; /* with data; as many with acknowledgements follow */
    const uint32_t *flow;         /* of each connection; NOWHERE within a rack */
    const uint32_t *connection;   /* of each flow with data */
    const uint32_t *from, *to;    /* ranks of each connection */
    const uint32_t *host;         /* of each rank */
    const uint32_t *first;        /* message of each connection in an iteration; one more at the end */
    const uint32_t *of;           /* connection of each message */
    const uint32_t *needs;        /* messages that each needs; which follow it: */
    const uint32_t *next_first, *next;
    const uint32_t *own_first, *own; /* connections on which each rank sends */
    const uint32_t *sends, *receives; /* messages of each rank in an iteration */
    uint64_t *began, *ended;      /* [n_ranks * most] */
    uint64_t *resent;             /* packets of each connection that were sent again */
};

typedef struct sender {
    uint32_t acked, next, limit, highest; /* PSNs; those below `limit` may be sent */
    uint32_t messages, again_n;
    uint8_t timer, recovering;
    uint64_t deadline;
    uint64_t *again; /* packets of the message to be sent again, a bit each */
} sender_t;

typedef struct receiver {
    uint32_t expected, asked;
    uint8_t waiting; /* go-back-N: for what a NAK asked for */
    uint64_t *got;   /* packets of the message, a bit each */
} receiver_t;

typedef struct rank {
    uint32_t iteration, sends, at;
    uint32_t receives[2]; /* of this iteration and the next: no rank is further ahead of another */
    uint8_t running, busy;
} rank_t;

enum { CAME, ANSWERED, NEAR_CAME, LACKS, BEGINS, EXPIRES, SENDS };

static uint32_t words(const ranks_t *ranks) { return (ranks->chunk + 63) / 64; }

/* ---- the heap ---------------------------------------------------------------------------- */

static int earlier(const deed_t *a, const deed_t *b) {
    if (a->time != b->time) return a->time < b->time;
    if (a->kind != b->kind) return a->kind < b->kind;
    if (a->who != b->who) return a->who < b->who;
    return a->value < b->value;
}

static void later(part_t *part, uint64_t time, uint32_t kind, uint32_t who, uint32_t value) {
    deeds_t *deeds = &part->deeds;
    const deed_t deed = {time, who, value, kind};
    if (deeds->n == deeds->cap && !more((void **)&deeds->items, &deeds->cap, sizeof deed)) {
        part->oom = 1;
        return;
    }
    uint64_t i = deeds->n++;
    for (; i && earlier(&deed, &deeds->items[(i - 1) / 2]); i = (i - 1) / 2)
        deeds->items[i] = deeds->items[(i - 1) / 2];
    deeds->items[i] = deed;
}

static deed_t take_first(deeds_t *deeds) {
    const deed_t first = deeds->items[0], last = deeds->items[--deeds->n];
    uint64_t i = 0;
    for (;;) {
        uint64_t child = 2 * i + 1;
        if (child >= deeds->n) break;
        if (child + 1 < deeds->n && earlier(&deeds->items[child + 1], &deeds->items[child])) child++;
        if (!earlier(&deeds->items[child], &last)) break;
        deeds->items[i] = deeds->items[child];
        i = child;
    }
    deeds->items[i] = last;
    return first;
}

/* A frame of a connection came to its host. */
static void note_arrival(part_t *part, const frame_t *frame, uint64_t now) {
    const ranks_t *ranks = part->net->ranks;
    const uint8_t *data = frame->data + frame->begin;
    const uint32_t psn = (uint32_t)data[PSN_AT] << 16 | (uint32_t)data[PSN_AT + 1] << 8 |
                         data[PSN_AT + 2];
    if (frame->stored < AETH_AT + 1) return;
    if (frame->tag < ranks->n_flows)
        later(part, now, CAME, ranks->connection[frame->tag], psn);
    else
        later(part, now, ANSWERED, ranks->connection[frame->tag - ranks->n_flows],
              psn | (uint32_t)(data[AETH_AT] == NAK) << 24);
}

/* ---- packets ----------------------------------------------------------------------------- */

static void emit(part_t *part, uint32_t flow, uint32_t size, uint32_t psn, uint8_t syndrome,
                 uint64_t now) {
    net_t *net = part->net;
    source_t *source = &net->sources[net->ranks->source];
    frame_t *frame = frame_new(part);
    if (!frame) return;
    uint8_t *data = frame->data + FRAME_ROOM, *ip = data + 14;
    const uint32_t stored = source->template_length[flow];
    memset(data, 0, FRAME_HEAD);
    memcpy(data, source->templates + (uint64_t)flow * source->stride, stored);
    put16(ip + 2, size - 14);
    put16(ip + 4, source->sent[flow]);
    put16(ip + 10, 0);
    uint16_t checksum = ip_checksum(ip);
    memcpy(ip + 10, &checksum, 2);
    put16(ip + 24, size - 34);
    data[PSN_AT] = (uint8_t)(psn >> 16);
    put16(data + PSN_AT + 1, psn);
    data[AETH_AT] = syndrome;
    frame->begin = FRAME_ROOM;
    frame->length = size;
    frame->tag = flow;
    frame->kind = net->ranks->source & 0xff;
    frame->to = source->dst_host[flow] & 0xffffff;
    frame->born = now;
    uint32_t head = net->head < size ? net->head : size;
    frame->stored = (uint16_t)(stored < head ? head : stored);
    source->sent[flow]++;
    part->stats.sent++;
    leave_host(part, frame, source->src_host[flow], now, 0);
}

static void answer(part_t *part, uint32_t connection, uint32_t psn, uint8_t syndrome,
                   uint64_t now) {
    const ranks_t *ranks = part->net->ranks;
    emit(part, ranks->flow[connection] + ranks->n_flows, ACK_FRAME, psn, syndrome, now);
}

/* ---- ranks and messages ------------------------------------------------------------------ */

static void wake(part_t *part, uint32_t number, uint64_t now) {
    rank_t *rank = &part->net->state.ranks[number];
    if (rank->busy) return;
    rank->busy = 1;
    later(part, now, SENDS, number, 0);
}

/* Begin with a connection's next message, if its rank has what it needs. */
static void try_next(part_t *part, uint32_t connection, uint64_t now) {
    const ranks_t *ranks = part->net->ranks;
    struct rank_state *state = &part->net->state;
    sender_t *sender = &state->senders[connection];
    const rank_t *rank = &state->ranks[ranks->from[connection]];
    const uint32_t n = ranks->first[connection + 1] - ranks->first[connection];
    if (sender->acked != sender->limit || !rank->running) return;
    if (sender->messages / n != rank->iteration) return;
    const uint32_t message = ranks->first[connection] + sender->messages % n;
    if (state->waits[(rank->iteration & 1) * ranks->n_messages + message]) return;
    sender->messages++;
    sender->limit += ranks->chunk;
    if (ranks->flow[connection] == NOWHERE)
        later(part, now + ranks->near_ns, NEAR_CAME, connection, 0);
    else
        wake(part, ranks->from[connection], now);
}

/* A rank that has sent and received all of an iteration rests before the next one. */
static void try_end(part_t *part, uint32_t number, uint64_t now) {
    const ranks_t *ranks = part->net->ranks;
    struct rank_state *state = &part->net->state;
    rank_t *rank = &state->ranks[number];
    const uint32_t bank = rank->iteration & 1;
    if (!rank->running || rank->sends || rank->receives[bank]) return;
    if (rank->iteration < ranks->most)
        ranks->ended[(uint64_t)number * ranks->most + rank->iteration] = now;
    rank->running = 0;
    rank->iteration++;
    rank->receives[bank] = ranks->receives[number];
    for (uint32_t i = ranks->own_first[number]; i < ranks->own_first[number + 1]; i++) {
        const uint32_t first = ranks->first[ranks->own[i]], end = ranks->first[ranks->own[i] + 1];
        memcpy(state->waits + bank * ranks->n_messages + first, ranks->needs + first,
               (end - first) * sizeof(uint32_t));
    }
    later(part, now + ranks->pause_ns, BEGINS, number, 0);
}

static void begin_iteration(part_t *part, uint32_t number, uint64_t now) {
    const ranks_t *ranks = part->net->ranks;
    rank_t *rank = &part->net->state.ranks[number];
    rank->running = 1;
    rank->sends = ranks->sends[number];
    if (rank->iteration < ranks->most)
        ranks->began[(uint64_t)number * ranks->most + rank->iteration] = now;
    for (uint32_t i = ranks->own_first[number]; i < ranks->own_first[number + 1]; i++)
        try_next(part, ranks->own[i], now);
}

/* The n-th message of a connection has come as a whole. */
static void received(part_t *part, uint32_t connection, uint32_t nth, uint64_t now) {
    const ranks_t *ranks = part->net->ranks;
    struct rank_state *state = &part->net->state;
    const uint32_t n = ranks->first[connection + 1] - ranks->first[connection];
    const uint32_t bank = nth / n & 1, message = ranks->first[connection] + nth % n;
    state->ranks[ranks->to[connection]].receives[bank]--;
    for (uint32_t i = ranks->next_first[message]; i < ranks->next_first[message + 1]; i++) {
        const uint32_t next = ranks->next[i];
        state->waits[bank * ranks->n_messages + next]--;
        try_next(part, ranks->of[next], now);
    }
    try_end(part, ranks->to[connection], now);
}

/* A message is acknowledged as a whole. */
static void sent_whole(part_t *part, uint32_t connection, uint64_t now) {
    const uint32_t number = part->net->ranks->from[connection];
    part->net->state.ranks[number].sends--;
    try_next(part, connection, now);
    try_end(part, number, now);
}

/* ---- what receivers and senders do ------------------------------------------------------- */

/* The 32-bit PSN nearest to another whose lower 24 bits are `psn`. */
static uint32_t whole_psn(uint32_t psn, uint32_t near) {
    return near + (uint32_t)((int32_t)((psn - near) << 8) >> 8);
}

static void receive_in_order(part_t *part, uint32_t connection, uint32_t psn, uint64_t now) {
    const uint32_t chunk = part->net->ranks->chunk;
    receiver_t *receiver = &part->net->state.receivers[connection];
    if (psn > receiver->expected) {
        if (!receiver->waiting) answer(part, connection, receiver->expected, NAK, now);
        receiver->waiting = 1;
        return;
    }
    const int fresh = psn == receiver->expected;
    receiver->expected += (uint32_t)fresh;
    if (fresh) receiver->waiting = 0;
    if (fresh && receiver->expected % chunk) return;
    answer(part, connection, receiver->expected, 0, now);
    if (fresh) received(part, connection, receiver->expected / chunk - 1, now);
}

/* Ask for what has not come of a message, below a PSN; once for each packet. */
static void ask_below(part_t *part, uint32_t connection, uint32_t psn, uint64_t now) {
    const uint32_t chunk = part->net->ranks->chunk;
    receiver_t *receiver = &part->net->state.receivers[connection];
    const uint32_t start = receiver->expected / chunk * chunk;
    if (receiver->asked < receiver->expected) receiver->asked = receiver->expected;
    for (; receiver->asked < psn; receiver->asked++) {
        const uint32_t at = receiver->asked - start;
        if (!(receiver->got[at / 64] >> at % 64 & 1))
            answer(part, connection, receiver->asked, NAK, now);
    }
}

static void receive_any(part_t *part, uint32_t connection, uint32_t psn, uint64_t now) {
    const ranks_t *ranks = part->net->ranks;
    receiver_t *receiver = &part->net->state.receivers[connection];
    const uint32_t start = receiver->expected / ranks->chunk * ranks->chunk, at = psn - start;
    uint64_t *got = receiver->got;
    if (psn < receiver->expected || got[at / 64] >> at % 64 & 1) {
        answer(part, connection, receiver->expected, 0, now);
        return;
    }
    got[at / 64] |= UINT64_C(1) << at % 64;
    uint32_t end = receiver->expected - start;
    while (end < ranks->chunk && got[end / 64] >> end % 64 & 1) end++;
    receiver->expected = start + end;
    if (end == ranks->chunk) {
        memset(got, 0, words(ranks) * sizeof *got);
        receiver->asked = receiver->expected;
        answer(part, connection, receiver->expected, 0, now);
        received(part, connection, receiver->expected / ranks->chunk - 1, now);
        return;
    }
    if (psn >= ranks->reorder) ask_below(part, connection, psn - ranks->reorder, now);
    if (at == ranks->chunk - 1)
        later(part, now + ranks->reorder * ranks->frame_ns, LACKS, connection, start);
}

static void send_again(part_t *part, uint32_t connection, uint32_t psn) {
    const ranks_t *ranks = part->net->ranks;
    sender_t *sender = &part->net->state.senders[connection];
    const uint32_t at = psn - (sender->limit - ranks->chunk);
    if (psn < sender->acked || psn >= sender->next || sender->again[at / 64] >> at % 64 & 1) return;
    sender->again[at / 64] |= UINT64_C(1) << at % 64;
    sender->again_n++;
}

static void answered(part_t *part, uint32_t connection, uint32_t psn, int nak, uint64_t now) {
    const ranks_t *ranks = part->net->ranks;
    sender_t *sender = &part->net->state.senders[connection];
    if (sender->acked == sender->limit) return;
    sender->deadline = now + ranks->timeout_ns;
    if (nak && ranks->selective) {
        send_again(part, connection, psn);
    } else if (psn >= sender->acked && psn <= sender->limit) {
        sender->acked = psn;
        if (nak || sender->next < psn) sender->next = psn;
        if (psn == sender->limit) {
            if (sender->again_n) memset(sender->again, 0, words(ranks) * sizeof(uint64_t));
            sender->again_n = sender->recovering = 0;
            sent_whole(part, connection, now);
            return;
        }
        if (sender->recovering) send_again(part, connection, psn);
    }
    wake(part, ranks->from[connection], now);
}

static void expired(part_t *part, uint32_t connection, uint64_t now) {
    const ranks_t *ranks = part->net->ranks;
    sender_t *sender = &part->net->state.senders[connection];
    sender->timer = sender->acked != sender->limit;
    if (!sender->timer) return;
    if (now >= sender->deadline) {
        sender->deadline = now + ranks->timeout_ns;
        sender->recovering = (uint8_t)ranks->selective;
        if (ranks->selective)
            send_again(part, connection, sender->acked);
        else
            sender->next = sender->acked;
        wake(part, ranks->from[connection], now);
    }
    later(part, sender->deadline, EXPIRES, connection, 0);
}

/* The packet that a connection sends next; 0 if it has none. */
static int next_packet(part_t *part, uint32_t connection, uint32_t *psn) {
    const ranks_t *ranks = part->net->ranks;
    sender_t *sender = &part->net->state.senders[connection];
    const uint32_t start = sender->limit - ranks->chunk;
    if (ranks->flow[connection] == NOWHERE) return 0;
    for (uint32_t w = 0; sender->again_n && w < words(ranks); w++) {
        while (sender->again[w]) {
            const uint32_t bit = (uint32_t)__builtin_ctzll(sender->again[w]);
            sender->again[w] &= sender->again[w] - 1;
            sender->again_n--;
            *psn = start + 64 * w + bit;
            if (*psn >= sender->acked) return 1;
        }
    }
    if (sender->next >= sender->limit) return 0;
    *psn = sender->next++;
    return 1;
}

/* A rank sends one packet, and is busy until its last bit has left. */
static void send_packet(part_t *part, uint32_t number, uint64_t now) {
    const ranks_t *ranks = part->net->ranks;
    struct rank_state *state = &part->net->state;
    rank_t *rank = &state->ranks[number];
    const uint32_t first = ranks->own_first[number], n = ranks->own_first[number + 1] - first;
    rank->busy = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t connection = ranks->own[first + (rank->at + i) % n];
        sender_t *sender = &state->senders[connection];
        uint32_t psn;
        if (!next_packet(part, connection, &psn)) continue;
        rank->at = (rank->at + i) % n;
        rank->busy = 1;
        if (psn < sender->highest) ranks->resent[connection]++;
        if (psn >= sender->highest) sender->highest = psn + 1;
        const int last = psn % ranks->chunk == ranks->chunk - 1;
        emit(part, ranks->flow[connection], last ? ranks->last_size : ranks->full_size, psn, 0, now);
        sender->deadline = now + ranks->timeout_ns;
        if (!sender->timer) {
            sender->timer = 1;
            later(part, sender->deadline, EXPIRES, connection, 0);
        }
        later(part, now + ranks->frame_ns, SENDS, number, 0);
        return;
    }
}

/* Let hosts do what they do before a time. Those of a run that is over do nothing more. */
static void run_ranks(part_t *part, uint64_t end) {
    const ranks_t *ranks = part->net->ranks;
    struct rank_state *state = &part->net->state;
    while (part->deeds.n && part->deeds.items->time < end) {
        const deed_t deed = take_first(&part->deeds);
        const uint32_t who = deed.who;
        if (deed.time >= ranks->end_ns) continue;
        switch (deed.kind) {
        case CAME: {
            uint32_t psn = whole_psn(deed.value, state->receivers[who].expected);
            (ranks->selective ? receive_any : receive_in_order)(part, who, psn, deed.time);
            break;
        }
        case ANSWERED: {
            uint32_t psn = whole_psn(deed.value & 0xffffff, state->senders[who].acked);
            answered(part, who, psn, deed.value >> 24 != 0, deed.time);
            break;
        }
        case NEAR_CAME:
            state->senders[who].acked = state->senders[who].limit;
            received(part, who, state->senders[who].messages - 1, deed.time);
            sent_whole(part, who, deed.time);
            break;
        case LACKS: /* unless the message has come meanwhile */
            if (state->receivers[who].expected - deed.value < ranks->chunk)
                ask_below(part, who, deed.value + ranks->chunk, deed.time);
            break;
        case BEGINS: begin_iteration(part, who, deed.time); break;
        case EXPIRES: expired(part, who, deed.time); break;
        case SENDS: send_packet(part, who, deed.time); break;
        }
    }
}

/* ---- called from Python ------------------------------------------------------------------ */

static void free_ranks(net_t *net) {
    free(net->ranks);
    free(net->state.senders);
    free(net->state.receivers);
    free(net->state.ranks);
    free(net->state.waits);
    free(net->state.bits);
}

/* Let the flows of a source be connections of ranks, once. Returns 0, or -1 without memory. */
EXPORT int net_add_ranks(net_t *net, const ranks_t *given) {
    struct rank_state *state = &net->state;
    const uint32_t n = given->n_connections, size = words(given);
    ranks_t *ranks = malloc(sizeof *ranks);
    state->senders = calloc(n + 1, sizeof *state->senders);
    state->receivers = calloc(n + 1, sizeof *state->receivers);
    state->ranks = calloc(given->n_ranks + 1, sizeof *state->ranks);
    state->waits = calloc(2 * (size_t)given->n_messages + 1, sizeof *state->waits);
    state->bits = calloc(2 * (size_t)n * size + 1, sizeof *state->bits);
    if (!ranks || !state->senders || !state->receivers || !state->ranks || !state->waits ||
        !state->bits)
        return -1;
    net->ranks = memcpy(ranks, given, sizeof *ranks);
    net->alike = 0; /* what hosts send depends on what they receive: windows are needed */
    for (uint32_t i = 0; i < n; i++) {
        state->senders[i].again = state->bits + 2 * (size_t)i * size;
        state->receivers[i].got = state->bits + (2 * (size_t)i + 1) * size;
    }
    for (uint32_t i = 0; i < 2 * ranks->n_messages; i++)
        state->waits[i] = ranks->needs[i % ranks->n_messages];
    for (uint32_t r = 0; r < ranks->n_ranks; r++) {
        state->ranks[r].receives[0] = state->ranks[r].receives[1] = ranks->receives[r];
        later(&net->parts[net->host_owner[ranks->host[r]]], 0, BEGINS, r, 0);
    }
    return 0;
}
#endif
