// CRCs whose parameters can be set, a digest, and state of all kinds that a reset begins anew.
#include "common.p4inc"

header h_t { bit<72> data; bit<32> crc32; bit<16> crc16; bit<8> key; bit<8> verdict; }
struct headers { h_t h; }
struct metadata { bit<8> x; }
struct sample_t { bit<8> key; }

parser P(packet_in pkt, out headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    state start { pkt.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout metadata meta) { apply { } }
control I(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) {
    register<bit<32>>(8) seen;
    counter(8, CounterType.packets) packets;
    meter(2, MeterType.packets) rates;
    action set(bit<8> v) { hdr.h.verdict = v; }
    action flood(bit<16> group) { sm.mcast_grp = group; }
    table timed {
        key = { hdr.h.key: exact; }
        actions = { set; flood; NoAction; }
        default_action = set(1);
        support_timeout = true;
        size = 16;
    }
    table ways {
        key = { hdr.h.data: ternary; hdr.h.key: exact; }
        actions = { set; NoAction; }
        size = 16;
    }
    table prefixes {
        key = { hdr.h.crc32: lpm; hdr.h.key: exact; }
        actions = { set; NoAction; }
        size = 16;
    }
    apply {
        sm.egress_spec = 1;
        hash(hdr.h.crc32, HashAlgorithm.crc32_custom, 32w0, { hdr.h.data }, 33w0x100000000);
        hash(hdr.h.crc16, HashAlgorithm.crc16_custom, 16w0, { hdr.h.data }, 17w0x10000);
        seen.write(0, hdr.h.crc32);
        packets.count(0);
        rates.execute_meter(0, meta.x);
        digest<sample_t>(1, { hdr.h.key });
        timed.apply();
        ways.apply();
        prefixes.apply();
    }
}
control E(inout headers hdr, inout metadata meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers hdr, inout metadata meta) { apply { } }
control D(packet_out pkt, in headers hdr) { apply { pkt.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
