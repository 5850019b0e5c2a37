// Every match kind, wide keys, priorities; the first header carries the key fields.
#include "common.p4inc"

header key_t {
    bit<32> a; bit<32> b; bit<12> c; bit<4> d; bit<104> wide; bit<160> huge; bit<8> verdict;
}
struct headers { key_t k; }
struct metadata { bit<8> x; }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start { pkt.extract(hdr.k); transition accept; }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    action set(bit<8> v) { hdr.k.verdict = v; }
    action wide(bit<104> v) { hdr.k.wide = v; }
    table exact_t { key = { hdr.k.a : exact; hdr.k.wide : exact; } actions = { set; wide; NoAction; } size = 2048; }
    table lpm_t { key = { hdr.k.d : exact; hdr.k.a : lpm; } actions = { set; NoAction; } }
    table lpm12_t { key = { hdr.k.c : lpm; } actions = { set; NoAction; } }
    table ternary_t { key = { hdr.k.a : ternary; hdr.k.c : ternary; hdr.k.d : exact; } actions = { set; NoAction; } size = 128; }
    table range_t { key = { hdr.k.a : range; hdr.k.c : range; hdr.k.b : ternary; } actions = { set; NoAction; } }
    table optional_t { key = { hdr.k.a : optional; hdr.k.c : optional; } actions = { set; NoAction; } }
    table huge_t { key = { hdr.k.huge : exact; hdr.k.d : exact; } actions = { set; NoAction; } }
    table slice_t { key = { hdr.k.a[15:8] : exact; hdr.k.b[31:24] : ternary; } actions = { set; NoAction; } }
    apply {
        sm.egress_spec = 1;
        if (hdr.k.verdict == 0) { exact_t.apply(); }
        else if (hdr.k.verdict == 1) { lpm_t.apply(); }
        else if (hdr.k.verdict == 2) { lpm12_t.apply(); }
        else if (hdr.k.verdict == 3) { ternary_t.apply(); }
        else if (hdr.k.verdict == 4) { range_t.apply(); }
        else if (hdr.k.verdict == 5) { optional_t.apply(); }
        else if (hdr.k.verdict == 6) { huge_t.apply(); }
        else if (hdr.k.verdict == 7) { slice_t.apply(); }
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr.k); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
