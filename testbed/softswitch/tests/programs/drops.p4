// mark_to_drop of the standard metadata and of copies of it; op selects what happens.
#include "common.p4inc"

header op_t { bit<8> op; bit<8> pad; bit<16> spec; bit<16> group; }
struct headers { op_t h; }
struct metadata { bit<8> x; }

// An inout argument: p4c copies it in, drops the copy, and copies it back.
action drop(inout standard_metadata_t any) { mark_to_drop(any); }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start { pkt.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    table drops { actions = { drop(sm); } const default_action = drop(sm); }
    standard_metadata_t own;
    apply {
        sm.egress_spec = 2;
        if (hdr.h.op == 1) { mark_to_drop(sm); }
        if (hdr.h.op == 3) { sm.mcast_grp = 1; }  // the drop takes the group away as well
        if (hdr.h.op >= 2 && hdr.h.op <= 4) { drops.apply(); }
        if (hdr.h.op == 4) { sm.egress_spec = 3; }  // the later choice wins
        if (hdr.h.op == 5) {  // a copy that is never copied back
            own = sm;
            own.mcast_grp = 7;
            mark_to_drop(own);
            hdr.h.spec = (bit<16>)own.egress_spec;
            hdr.h.group = own.mcast_grp;
        }
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    table drops { actions = { drop(sm); } const default_action = drop(sm); }
    apply {
        if (hdr.h.op == 6) { drops.apply(); }
    }
}
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
