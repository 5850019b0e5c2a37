// Meters of an array and of table entries, and entries that time out.
#include "common.p4inc"

header h_t { bit<8> key; bit<8> colour; bit<8> own; }
struct headers { h_t h; }
struct metadata { bit<2> colour; bit<2> own; }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start { pkt.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    meter(4, MeterType.packets) array;
    direct_meter<bit<2>>(MeterType.bytes) own;
    action note() { own.read(meta.own); }
    table entries {
        key = { hdr.h.key: exact; }
        actions = { note; NoAction; }
        default_action = NoAction();
        meters = own;
        support_timeout = true;
        size = 16;
    }
    apply {
        sm.egress_spec = 100;
        array.execute_meter(1, meta.colour);
        entries.apply();
        hdr.h.colour = (bit<8>)meta.colour;
        hdr.h.own = (bit<8>)meta.own;
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
