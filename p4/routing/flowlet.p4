// Chooses an uplink for every flowlet: packets of a flow without a pause of `gap` us or more between
// them (LetFlow, NSDI 2017). What is sent after a pause cannot overtake what was sent before it.
//
// A flowlet takes the uplink of the hash of its flow and its number. The controller gives the gap.

#define FLOWLETS 65536                   // of a switch, by the hash of a flow

control Flowlets(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action_selector(HashAlgorithm.identity, 512, 8) uplink_selector;
    register<bit<32>>(FLOWLETS) last_us;
    register<bit<16>>(FLOWLETS) numbers;
    bit<16> ecmp;
    bit<32> mixed;
    bit<16> src_port;
    bit<16> dst_port;
    bit<1> upward;
    bit<16> number;
    bit<32> last;
    bit<32> now;
    bit<32> gap;

#include "tables.p4"

    action set_timing(bit<32> value) {
        gap = value;
    }
    table timing {
        actions = { set_timing; }
        default_action = set_timing(500);
        size = 1;
    }

    apply {
        upward = 0;
        routes.apply();
        if (upward == 1) {
            src_port = 0;
            dst_port = 0;
            if (meta.flow_valid == 1) {
                src_port = hdr.l4.src_port;
                dst_port = hdr.l4.dst_port;
            }
            hash(ecmp, HashAlgorithm.crc16, 16w0,
                 { hdr.ipv4.src_ip, hdr.ipv4.dst_ip, src_port, dst_port, hdr.ipv4.protocol,
                   meta.mask },
                 32w0x10000);
            timing.apply();
            now = (bit<32>)std.ingress_global_timestamp;
            last_us.read(last, 16w0 ++ ecmp);
            last_us.write(16w0 ++ ecmp, now);
            numbers.read(number, 16w0 ++ ecmp);
            if (now - last >= gap) {
                number = number + 1;
                numbers.write(16w0 ++ ecmp, number);
            }
            mixed = (bit<32>)(ecmp + number) * 0x9E3779B1;
            if (meta.upper_tier == 1) {
                meta.ecmp_hash = mixed[23:16];
            } else {
                meta.ecmp_hash = mixed[31:24];
            }
            uplinks.apply();
        }
    }
}
#define Routing Flowlets
