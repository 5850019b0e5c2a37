// Clones, resubmit, recirculate, multicast, truncate, digests; op selects what happens.
#include "common.p4inc"

header op_t { bit<8> op; bit<8> arg; bit<8> out_type; bit<8> keep; bit<32> length; }
header extra_t { bit<16> x; }
struct headers { op_t h; extra_t extra; }
struct metadata { @field_list(1) bit<8> keep; bit<8> lost; @field_list(1, 2) bit<8> count; }
struct learned { bit<8> op; bit<104> wide; bit<9> port; }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start { pkt.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 2;
        meta.lost = 77;
        if (hdr.h.op == 1) {
            meta.keep = 55;
            hdr.h.arg = 99;
            clone_preserving_field_list(CloneType.I2E, 5, 1);
        } else if (hdr.h.op == 2) {
            meta.count = meta.count + 1;
            if (meta.count < 4) { resubmit_preserving_field_list(2); }
        } else if (hdr.h.op == 3) {
            sm.mcast_grp = (bit<16>)hdr.h.arg;
        } else if (hdr.h.op == 4) {
            truncate(10);
        } else if (hdr.h.op == 5) {
            digest<learned>(1, { hdr.h.op, 96w7 ++ hdr.h.arg, sm.ingress_port });
        } else if (hdr.h.op == 8) {
            hdr.extra.setValid();
            hdr.extra.x = 0xBEEF;
        } else if (hdr.h.op == 9) {
            resubmit_preserving_field_list(2);
        } else if (hdr.h.op == 10) {
            mark_to_drop(sm);
            clone(CloneType.I2E, 6);
        } else if (hdr.h.op == 11) {
            assert(hdr.h.arg != 3);
        }
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    apply {
        hdr.h.out_type = sm.instance_type[7:0];
        hdr.h.length = sm.packet_length;
        hdr.h.keep = meta.keep + meta.count;
        if (sm.instance_type == 5) { hdr.h.keep = (bit<8>)sm.egress_rid; }
        if (hdr.h.op == 6 && sm.instance_type == 0) {
            meta.keep = 44;
            clone_preserving_field_list(CloneType.E2E, 5, 1);
        }
        if (hdr.h.op == 7) {
            if (hdr.h.arg > 0) {
                hdr.h.arg = hdr.h.arg - 1;
                meta.count = meta.count + 10;
                recirculate_preserving_field_list(2);
            }
        }
        if (hdr.h.op == 12) { mark_to_drop(sm); }
    }
}
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr.h); pkt.emit(hdr.extra); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
