/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a packet through a program that makes copies, as in simple_switch: clones, multicast,
 * packets that go round again. */

#define SS_MAX_PASSES 256

static ss_item *ss_item_new(ss_switch *sw) {
    ss_item *it = sw->free;
    if (it) sw->free = it->next;
    else if (!(it = malloc(sizeof *it))) {
        sw->fault = SS_NO_MEMORY;
        return NULL;
    }
    memset(it, 0, sizeof *it);
    it->truncate = it->limit = SS_NO_LIMIT;
    return it;
}
SS_INLINE void ss_item_drop(ss_switch *sw, ss_item *it) {
    it->next = sw->free;
    sw->free = it;
}
static ss_item *ss_item_copy(ss_switch *sw, const ss_item *from) {
    ss_item *it = sw->free;
    if (it) sw->free = it->next;
    else if (!(it = malloc(sizeof *it))) {
        sw->fault = SS_NO_MEMORY;
        return NULL;
    }
    memcpy(it, from, sizeof *it);
    it->clone = it->clone_list = it->learn = it->resubmit = it->recirculate = 0;
    it->exit = it->original = 0;
    if (it->length > it->truncate) it->length = it->truncate;
    if (it->stored > it->length) it->stored = it->length;
    it->truncate = SS_NO_LIMIT;
    it->limit = SS_NO_LIMIT;
    return it;
}
SS_INLINE void ss_push_ingress(ss_switch *sw, ss_item *it) {
    it->next = NULL;
    if (sw->ingress) sw->ingress_end->next = it;
    else sw->ingress = it;
    sw->ingress_end = it;
}
/* A packet waits behind those of its priority and higher ones. */
static void ss_enqueue(ss_switch *sw, ss_item *it, uint32_t port) {
    ss_item **place = &sw->egress;
    if (!ss_admitted(sw, it, port, it->reg_length < it->limit ? it->reg_length : it->limit,
                     sw->admit, sw->admit_ctx, sw->out)) {
        ss_item_drop(sw, it);
        return;
    }
    it->egress_port = port;
    if (sw->queues == 1) {
        it->next = NULL;
        if (sw->egress) sw->egress_end->next = it;
        else sw->egress = it;
        sw->egress_end = it;
        return;
    }
    while (*place && (*place)->priority >= it->priority) place = &(*place)->next;
    it->next = *place;
    *place = it;
}
static void ss_multicast(ss_switch *sw, const ss_item *it, uint32_t mgid) {
    const ss_mgroup *g = ss_mgroup_of(sw, mgid);
    for (uint32_t i = 0; g && i < g->n; i++) {
        ss_item *copy = ss_item_copy(sw, it);
        if (!copy) return;
        copy->limit = it->limit;
        SET_EGRESS_RID(&copy->p, g->pairs[2 * i + 1]);
        ss_enqueue(sw, copy, g->pairs[2 * i]);
    }
}
static void ss_send_clone(ss_switch *sw, ss_item *copy, const ss_session *s) {
    copy->limit = s->limit ? s->limit : SS_NO_LIMIT;
    if (s->mgid) ss_multicast(sw, copy, s->mgid);
    if (s->has_port) ss_enqueue(sw, copy, s->port);
    else ss_item_drop(sw, copy);
}
typedef struct { const uint8_t *data; uint32_t length, stored; } ss_bytes;

/* The clone of ingress is parsed anew from the packet as it arrived. */
static void ss_clone_ingress(ss_switch *sw, ss_item *it, const ss_bytes *whole) {
    const ss_session *s = ss_session_of(sw, it->clone & 0x7FFF);
    uint32_t list = it->clone_list;
    ss_item *copy;
    it->clone = it->clone_list = 0;
    if (!s || !(copy = ss_item_new(sw))) return;
    copy->data = whole->data;
    copy->length = whole->length;
    copy->stored = whole->stored;
    copy->reg_length = it->arrival_length;
    copy->arrival_length = it->arrival_length;
    copy->counted_length = it->counted_length;
    copy->kind = SS_I2E;
    SET_INGRESS_PORT(&copy->p, it->port);
    copy->port = it->port;
    ss_parse_item(sw, copy);
    ss_reset_metadata(&copy->p);
    ss_copy_fields(&copy->p, &it->p, list);
    SET_INSTANCE_TYPE(&copy->p, SS_I2E);
    ss_send_clone(sw, copy, s);
}
static void ss_resubmit(ss_switch *sw, const ss_item *it, const ss_bytes *whole) {
    ss_item *copy = ss_item_new(sw);
    if (!copy) return;
    copy->data = whole->data;
    copy->length = whole->length;
    copy->stored = whole->stored;
    copy->reg_length = copy->arrival_length = it->arrival_length;
    copy->counted_length = it->counted_length;
    copy->port = it->port;
    copy->original = it->original;
    copy->kind = SS_RESUBMIT;
    ss_copy_fields(&copy->p, &it->p, it->resubmit);
    SET_INSTANCE_TYPE(&copy->p, SS_RESUBMIT);
    SET_PACKET_LENGTH(&copy->p, it->arrival_length);
    ss_push_ingress(sw, copy);
}

static void ss_ingress(ss_switch *sw, ss_item *it) {
    const ss_bytes whole = {it->data, it->length, it->stored};
    uint32_t mgid, spec;
    ss_parse_item(sw, it);
    ss_run_ingress(0, sw, it, 0, sw->out);
    if (sw->fault == SS_ASSERT) {
        ss_item_drop(sw, it);
        return;
    }
    spec = GET_EGRESS_SPEC(&it->p);
    mgid = GET_MCAST_GRP(&it->p);
    if (it->clone) ss_clone_ingress(sw, it, &whole);
    if (it->learn) ss_learn_fields(sw, it);
    if (it->resubmit) {
        ss_resubmit(sw, it, &whole);
    } else if (mgid) {
        SET_INSTANCE_TYPE(&it->p, SS_REPLICATION);
        it->kind = SS_REPLICATION;
        ss_multicast(sw, it, mgid);
    } else if (spec != SS_DROP_PORT) {
        SET_INSTANCE_TYPE(&it->p, SS_NORMAL);
        it->kind = SS_NORMAL;
        ss_enqueue(sw, it, spec);
        return;
    }
    ss_item_drop(sw, it);
}

static void ss_egress(ss_switch *sw, ss_item *it) {
    uint8_t *data;
    uint32_t length, stored;
    ss_run_egress(sw, it, sw->out);
    if (sw->fault == SS_ASSERT) {
        ss_item_drop(sw, it);
        return;
    }
    if (it->clone) {
        const ss_session *s = ss_session_of(sw, it->clone & 0x7FFF);
        uint32_t list = it->clone_list;
        it->clone = it->clone_list = 0;
        if (s) {
            ss_item *copy = ss_item_copy(sw, it);
            if (!copy) return;
            copy->kind = SS_E2E;
            ss_reset_metadata(&copy->p);
            ss_copy_fields(&copy->p, &it->p, list);
            SET_INSTANCE_TYPE(&copy->p, SS_E2E);
            ss_send_clone(sw, copy, s);
        }
    }
    if (GET_EGRESS_SPEC(&it->p) == SS_DROP_PORT) {
        ss_item_drop(sw, it);
        return;
    }
    data = ss_deparser(0, sw, it, NULL, 0, &length, &stored);
    if (data && it->recirculate) {
        ss_item *copy = ss_item_new(sw);
        if (!copy) return;
        copy->data = data;
        copy->length = copy->reg_length = length;
        copy->stored = stored;
        copy->arrival_length = copy->counted_length = length;
        copy->port = it->port;
        copy->original = it->original;
        copy->kind = SS_RECIRC;
        ss_copy_fields(&copy->p, &it->p, it->recirculate);
        SET_INSTANCE_TYPE(&copy->p, SS_RECIRC);
        SET_PACKET_LENGTH(&copy->p, length);
        ss_push_ingress(sw, copy);
    } else if (data && sw->out->n < SS_MAX_OUT) {
        ss_put_out(sw->out, sw->out->n, it, data, length, stored);
    } else if (data) {
        sw->fault = SS_TOO_MANY;
    }
    ss_item_drop(sw, it);
}

__attribute__((noinline))
int ss_forward(ss_switch *sw, const ss_arrival *in, ss_admit_fn admit, void *admit_ctx,
               ss_result *out) {
    ss_item *it;
    unsigned passes = 0, left = SS_MAX_PASSES + SS_MAX_OUT; /* of ingress; of egress */
    ss_begin(sw, in->now_us, out);
    sw->admit = admit;
    sw->admit_ctx = admit_ctx;
    sw->out = out;
    if (!(it = ss_item_new(sw))) return sw->fault;
    ss_arrive(it, in); /* but without room: a copy may still want the bytes */
    ss_push_ingress(sw, it);
    for (;;) {
        if ((it = sw->ingress)) {
            sw->ingress = it->next;
            if (++passes <= SS_MAX_PASSES) ss_ingress(sw, it);
        } else if ((it = sw->egress)) {
            sw->egress = it->next;
            if (!left) passes = SS_MAX_PASSES + 1;
            if (passes <= SS_MAX_PASSES) {
                left--;
                ss_egress(sw, it);
            }
        } else {
            break;
        }
        if (passes > SS_MAX_PASSES) {
            sw->fault = SS_LOOP;
            ss_item_drop(sw, it);
        }
    }
    return sw->fault;
}
