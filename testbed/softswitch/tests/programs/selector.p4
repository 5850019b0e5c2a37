// An action profile and an action selector.
#include "common.p4inc"

header key_t { bit<16> a; bit<16> flow; bit<8> verdict; }
struct headers { key_t k; }
struct metadata { bit<8> x; }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start { pkt.extract(hdr.k); transition accept; }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    action set(bit<8> v) { hdr.k.verdict = v; }
    action send(bit<9> port) { sm.egress_spec = port; }
    action_profile(16) ap;
    action_selector(HashAlgorithm.crc16, 64, 16) ecmp;
    table direct { key = { hdr.k.a : exact; } actions = { set; NoAction; } implementation = ap; }
    table hashed {
        key = { hdr.k.a : lpm; hdr.k.flow : selector; }
        actions = { send; NoAction; }
        implementation = ecmp;
    }
    apply { sm.egress_spec = 1; direct.apply(); if (hashed.apply().miss) { hdr.k.a = 0; } }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr.k); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
