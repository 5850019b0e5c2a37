// Actions of a table that the control calls directly, too: with parameters, without, of either order.
#include "common.p4inc"

header h_t { bit<8> key; bit<8> first; bit<8> second; bit<8> third; }
struct headers { h_t h; }
struct metadata { bit<8> x; }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start { pkt.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    action one(bit<8> v) { hdr.h.first = v; }
    action two(bit<8> v, bit<8> w) { hdr.h.second = v; hdr.h.third = w; }
    action none() { hdr.h.third = 7; }
    table before { key = { hdr.h.key: exact; } actions = { one; none; NoAction; } }
    table after { key = { hdr.h.key: exact; } actions = { one; two; none; NoAction; } }
    apply {
        sm.egress_spec = 1;
        before.apply();
        if (hdr.h.first == 0) { one(1); }
        two(2, 3);
        if (hdr.h.key == 9) { none(); }
        after.apply();
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
