/* SPDX-License-Identifier: Apache-2.0 */
/* What a packet goes through at every switch, whichever way it goes: parser, controls, deparser. */

enum { SS_NORMAL, SS_I2E, SS_E2E, SS_RECIRC = 4, SS_REPLICATION, SS_RESUBMIT };
#define SS_NO_LIMIT 0xFFFFFFFFu

SS_INLINE void ss_parse_item(ss_switch *sw, ss_item *it) {
    it->error = SS_NO_ERROR;
    it->checksum_error = 0;
    ss_parser(sw, it);
    ss_verify_checksums(0, sw, it, NULL);
}

/* Run the ingress control of a parsed packet, from where the program for its stack left it. Returns 1 if
 * its last action dropped the packet, which may be found out later, too. */
SS_INLINE int ss_run_ingress(int stack, ss_switch *sw, ss_item *it, int from, ss_result *out) {
    if (!from) SET_PARSER_ERROR(&it->p, it->error);
    if (!from) SET_CHECKSUM_ERROR(&it->p, it->checksum_error);
    if (ss_pipeline_ingress(sw, it, stack, from)) { /* a way of its own, which nothing joins */
        it->exit = 0;
        if (it->original) out->observed = SS_OBSERVED(&it->p);
        return 1;
    }
    it->exit = 0;
    if (it->original) out->observed = SS_OBSERVED(&it->p);
    return 0;
}
/* Put a packet to the outputs as the one with this number, from 0. */
SS_INLINE void ss_put_out(ss_result *out, uint32_t number, const ss_item *it, uint8_t *data,
                          uint32_t length, uint32_t stored) {
    ss_packet *o = out->packets + number;
    out->n = number + 1;
    o->port = it->egress_port;
    o->length = length < it->limit ? length : it->limit;
    o->stored = stored < o->length ? stored : o->length;
    o->data = data;
    o->kind = it->kind;
    o->priority = it->priority;
}

/* Whether a packet may come to its queue; what egress reads of its wait is then in the item. */
SS_INLINE int ss_admitted(ss_switch *sw, ss_item *it, uint32_t port, uint32_t length,
                          ss_admit_fn admit, void *admit_ctx, ss_result *out) {
    it->priority = GET_PRIORITY(&it->p);
    if (it->priority && it->priority >= sw->queues) return 0; /* there is at least one */
    it->deq_timedelta = it->deq_qdepth = 0;
    sw->enq_qdepth = 0;
    out->egress_port = port;
    if (admit) {
        sw->priority = it->priority;
        sw->deq_timedelta = sw->deq_qdepth = 0;
        if (!admit(admit_ctx, port, length)) {
            out->queue_dropped++;
            return 0;
        }
        it->deq_timedelta = sw->deq_timedelta;
        it->deq_qdepth = sw->deq_qdepth;
    }
    SET_ENQ_TIMESTAMP(&it->p, sw->now);
    SET_ENQ_QDEPTH(&it->p, sw->enq_qdepth);
    return 1;
}
uint32_t ss_priority(const ss_switch *sw) { return sw->priority; }
void ss_waits(ss_switch *sw, uint32_t enq_qdepth, uint32_t deq_timedelta, uint32_t deq_qdepth) {
    sw->enq_qdepth = enq_qdepth;
    sw->deq_timedelta = deq_timedelta;
    sw->deq_qdepth = deq_qdepth;
}
void ss_log_to(ss_switch *sw, ss_log_fn log, void *ctx) {
    sw->log = log;
    sw->log_ctx = ctx;
}

/* Run the egress control. Returns as ss_run_ingress. */
SS_INLINE int ss_run_egress(ss_switch *sw, ss_item *it, ss_result *out) {
    SET_EGRESS_TIMESTAMP(&it->p, sw->now);
    SET_DEQ_TIMEDELTA(&it->p, it->deq_timedelta);
    SET_DEQ_QDEPTH(&it->p, it->deq_qdepth);
    SET_QID(&it->p, it->priority);
    SET_EGRESS_PORT(&it->p, it->egress_port);
    SET_EGRESS_SPEC(&it->p, SS_DROP_PORT + 1);
    SET_PACKET_LENGTH(&it->p, it->reg_length);
    if (ss_pipeline_egress(sw, it, 0, 0)) {
        it->exit = 0;
        if (it->original) out->observed = SS_OBSERVED(&it->p);
        return 1;
    }
    it->exit = 0;
    if (it->original) out->observed = SS_OBSERVED(&it->p);
    return 0;
}

SS_INLINE void ss_begin(ss_switch *sw, uint64_t now_us, ss_result *out) {
    sw->now = now_us;
    sw->fault = SS_OK;
    sw->current = NULL;
    out->n = out->queue_dropped = 0;
    out->egress_port = SS_NO_PORT;
    out->observed = 0;
}
/* A packet that arrives; its item is zero. */
SS_INLINE void ss_arrive(ss_item *it, const ss_arrival *in) {
    it->truncate = it->limit = SS_NO_LIMIT;
    it->data = in->data;
    it->stored = in->stored;
    it->length = it->reg_length = it->arrival_length = it->counted_length = in->length;
    it->port = in->port;
    it->original = 1;
    SET_INGRESS_PORT(&it->p, in->port);
    SET_PACKET_LENGTH(&it->p, in->length);
    SET_INGRESS_TIMESTAMP(&it->p, in->now_us);
}

int ss_process(ss_switch *sw, uint32_t port, const uint8_t *data, uint32_t length,
               uint64_t now_us, ss_admit_fn admit, void *admit_ctx, ss_result *out) {
    const ss_arrival in = {NULL, data, now_us, port, length, length};
    return ss_forward(sw, &in, admit, admit_ctx, out);
}

uint32_t ss_digests_pending(ss_switch *sw) { return sw->pending; }
