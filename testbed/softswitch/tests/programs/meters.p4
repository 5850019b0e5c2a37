// Meters of arrays and of table entries, counters, idle timeouts, a value set, priorities.
#include "common.p4inc"

header h_t { bit<8> op; bit<8> key; bit<8> colour; bit<8> direct; bit<8> member; bit<8> queue; }
struct headers { h_t h; }
struct metadata { bit<2> colour; bit<2> direct; bit<8> member; }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    value_set<bit<8>>(4) known;
    state start {
        pkt.extract(hdr.h);
        transition select(hdr.h.key) {
            known: member;
            default: accept;
        }
    }
    state member { meta.member = 1; transition accept; }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    meter(4, MeterType.packets) packets;
    meter(4, MeterType.bytes) bytes;
    direct_meter<bit<2>>(MeterType.bytes) each;
    direct_counter(CounterType.packets_and_bytes) hits;
    counter(4, CounterType.packets_and_bytes) all;
    action note() { each.read(meta.direct); hits.count(); }
    table entries {
        key = { hdr.h.key: exact; }
        actions = { note; NoAction; }
        default_action = NoAction();
        meters = each;
        counters = hits;
        support_timeout = true;
        size = 16;
    }
    apply {
        sm.egress_spec = 1;
        if (!hdr.h.isValid()) { return; }
        all.count((bit<32>)hdr.h.key);
        if (hdr.h.op == 0) {
            packets.execute_meter((bit<32>)hdr.h.key, meta.colour);
        } else if (hdr.h.op == 1) {
            bytes.execute_meter((bit<32>)hdr.h.key, meta.colour);
        } else if (hdr.h.op == 2) {
            sm.priority = (bit<3>)hdr.h.key;
        } else if (hdr.h.op == 3) {
            sm.mcast_grp = 1;
        }
        entries.apply();
        hdr.h.colour = (bit<8>)meta.colour;
        hdr.h.direct = (bit<8>)meta.direct;
        hdr.h.member = meta.member;
        log_msg("key {} colour {}", {hdr.h.key, meta.colour});
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    apply { hdr.h.queue = (bit<8>)sm.egress_rid; }
}
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
