// log_msg of values of all kinds and sizes, in the parser, in both controls and in the deparser.
#include "common.p4inc"

header h_t {
    bit<8> b; int<8> i; bit<64> l; bit<128> w; int<100> s; bit<28> rest; bit<320> bytes; int<200> most;
    bit<8> n;
}
struct headers { h_t h; }
struct metadata { bit<16> port; bool big; }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        log_msg("parser: {}", {hdr.h.b});
        transition accept;
    }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    action to(bit<9> port, int<16> delta) {
        sm.egress_spec = port;
        log_msg("ingress: to port {} by {}, {hex} {}", {port, delta, port, delta});
    }
    table t {
        key = { hdr.h.b: exact; }
        actions = { to; }
        const default_action = to(1, -3);
    }
    apply {
        t.apply();
        meta.big = hdr.h.b > 100;
        log_msg("ingress: \\{ {}\\} \"100%s\" ? {} {}", {hdr.h.i, hdr.h.isValid(), meta.big});
        log_msg("ingress: {}", {hdr.h});
        log_msg("ingress: {} and {} and {}", {hdr.h.bytes, hdr.h.most, hdr.h.w + 1});
        log_msg("ingress: {}", {hdr.h.b ++ hdr.h.n});
        log_msg("ingress: {}", {hdr.h.i - 1});
        log_msg("ingress: nothing to tell, ü");
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    apply { log_msg("egress: {} bytes {}", {sm.packet_length, hdr.h.l}); }
}
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out pkt, in headers hdr) {
    apply {
        pkt.emit(hdr.h);
        log_msg("deparser: {}", {hdr.h.s});
    }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
