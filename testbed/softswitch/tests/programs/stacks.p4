// Header stacks: extraction, last, push, pop, run-time index; lookahead, advance.
#include "common.p4inc"

header op_t { bit<8> op; bit<8> index; }
header label_t { bit<7> value; bit<1> last; }
header tail_t { bit<24> x; }
struct headers { op_t h; label_t[4] labels; tail_t tail; }
struct metadata { bit<8> seen; bit<24> ahead; }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        transition select(hdr.h.op) { 9: skip; default: labels; }
    }
    state skip { pkt.advance((bit<32>)hdr.h.index); transition labels; }
    state labels {
        pkt.extract(hdr.labels.next);
        meta.seen = meta.seen + 1;
        transition select(hdr.labels.last.last) { 1: tail; default: labels; }
    }
    state tail {
        meta.ahead = pkt.lookahead<bit<24>>();
        pkt.extract(hdr.tail);
        transition accept;
    }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = (bit<9>)meta.seen;
        if (sm.parser_error == error.StackOutOfBounds) { sm.egress_spec = 100; }
        if (sm.parser_error == error.PacketTooShort) { sm.egress_spec = 101; }
        if (sm.parser_error == error.ParserInvalidArgument) { sm.egress_spec = 102; }
        if (hdr.h.op == 1) { hdr.labels.push_front(1); hdr.labels[0].setValid(); hdr.labels[0].value = 0x55; }
        if (hdr.h.op == 2) { hdr.labels.pop_front(1); }
        if (hdr.h.op == 3) { hdr.labels[hdr.h.index].value = 0x7F; }
        if (hdr.h.op == 4) { hdr.labels[0] = hdr.labels[1]; }
        if (hdr.h.op == 5 && hdr.tail.isValid()) { hdr.tail.x = meta.ahead + 1; }
        if (hdr.h.op == 6) { hdr.labels.push_front(2); }
        if (hdr.h.op == 7) { hdr.labels.pop_front(3); }
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr.h); pkt.emit(hdr.labels); pkt.emit(hdr.tail); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
