/* SPDX-License-Identifier: Apache-2.0 */
/* The way of a packet through a program that makes no copies: ingress, queue, egress, out. Its fields
 * are local variables (nothing takes the item's address), its headers are written over those it came
 * with, and its payload stays where it is. The usual stacks of headers (SS_STACKS) have a copy of the
 * program each, in which the compiler knows which headers are valid. */

#define SS_PARAMETERS                                                                           \
    ss_switch *sw, const ss_arrival *in, ss_admit_fn admit, void *admit_ctx, ss_result *out
#define SS_ARGUMENTS sw, in, admit, admit_ctx, out

/* The packet's way after ingress. `was` and `sum`: its headers as they came, and their checksum's sum. */
SS_INLINE int ss_leave(int stack, ss_item *it, const struct phv *was, uint64_t sum, SS_PARAMETERS) {
    uint32_t length, stored;
    uint8_t *bytes;
    (void)in;
    if (SS_ASSERTS && sw->fault == SS_ASSERT) return sw->fault;
    if (it->learn) ss_learn_fields(sw, it);
    it->egress_port = GET_EGRESS_SPEC(&it->p);
    if (it->egress_port == SS_DROP_PORT) return sw->fault;
    SET_INSTANCE_TYPE(&it->p, SS_NORMAL);
    if (!ss_admitted(sw, it, it->egress_port, it->reg_length, admit, admit_ctx, out))
        return sw->fault;
    if (ss_run_egress(sw, it, out)) return sw->fault;
    if (SS_ASSERTS && sw->fault == SS_ASSERT) return sw->fault;
    if (GET_EGRESS_SPEC(&it->p) == SS_DROP_PORT) return sw->fault;
    bytes = ss_deparser(stack, sw, it, was, sum, &length, &stored);
    if (bytes) ss_put_out(out, 0, it, bytes, length, stored);
    return sw->fault;
}

SS_INLINE int ss_straight(int stack, SS_PARAMETERS) {
    ss_item item;
    struct phv was;
    uint64_t sum;
    item.next = NULL;
    item.error = SS_NO_ERROR;
    item.clone = item.clone_list = item.learn = item.resubmit = item.recirculate = item.left = 0;
    item.exit = item.kind = item.checksum_error = 0;
    ss_clear(&item.p);
    ss_begin(sw, in->now_us, out);
    ss_arrive(&item, in);
    item.room = in->room;
    ss_parse_as(stack, sw, &item, &was);
    sum = ss_verify_checksums(stack, sw, &item, in->data);
    if (ss_run_ingress(stack, sw, &item, 0, out)) {
        if (item.learn && !(SS_ASSERTS && sw->fault == SS_ASSERT)) ss_learn_fields(sw, &item);
        return sw->fault;
    }
    if (stack && __builtin_expect(!!item.left, 0)) { /* it has got other headers than it came with */
        ss_parse_kept(stack, &item, &was, in->data);
        ss_run_ingress(0, sw, &item, item.left, out);
        return ss_leave(0, &item, &was, sum, SS_ARGUMENTS);
    }
    return ss_leave(stack, &item, &was, sum, SS_ARGUMENTS);
}

#define SS_WAY(stack)                                                                           \
    static __attribute__((noinline)) int ss_way_##stack(SS_PARAMETERS) {                        \
        return ss_straight(stack, SS_ARGUMENTS);                                                \
    }
SS_WAY(0)
#if SS_STACKS > 0
SS_WAY(1)
#endif
#if SS_STACKS > 1
SS_WAY(2)
#endif
#if SS_STACKS > 2
SS_WAY(3)
#endif

__attribute__((noinline))
int ss_forward(SS_PARAMETERS) {
    switch (ss_stack(in->data, in->length)) {
#if SS_STACKS > 0
    case 1: return ss_way_1(SS_ARGUMENTS);
#endif
#if SS_STACKS > 1
    case 2: return ss_way_2(SS_ARGUMENTS);
#endif
#if SS_STACKS > 2
    case 3: return ss_way_3(SS_ARGUMENTS);
#endif
    default: return ss_way_0(SS_ARGUMENTS);
    }
}
