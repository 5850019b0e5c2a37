// What comes in at port 1 leaves at port 2, and back.
#include "common.p4inc"

header byte_t { bit<8> first; }
struct headers { byte_t b; }
struct metadata { bit<8> x; }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start { transition accept; }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    apply { sm.egress_spec = sm.ingress_port == 1 ? (bit<9>)2 : (bit<9>)1; }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr.b); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
