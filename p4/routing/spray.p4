// Sprays packets over the uplinks: one is chosen for every packet.
//
// The packets of a flow take the uplinks in turn, so each flow is spread as evenly as can be,
// and a switch needs no random numbers. Every 256 packets the turn begins at another uplink: else
// two flows of one hash, which take turns together, could keep step and leave uplinks out. The hash
// has the switch's bits of pathBF, which the run's seed draws, so each seed and switch has its own.

#define SPRAYED 65536                    // turns of a switch, by the hash of a flow

control Spraying(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action_selector(HashAlgorithm.identity, 512, 8) uplink_selector;
    register<bit<16>>(SPRAYED) turns;
    bit<16> ecmp;
    bit<32> mixed;
    bit<16> src_port;
    bit<16> dst_port;
    bit<1> upward;
    bit<16> turn;

#include "tables.p4"

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
            turns.read(turn, 16w0 ++ ecmp);
            turns.write(16w0 ++ ecmp, turn + 1);
            mixed = (bit<32>)(ecmp + (8w0 ++ turn[15:8])) * 0x9E3779B1;
            if (meta.upper_tier == 1) {
                meta.ecmp_hash = mixed[23:16] + turn[7:0];
            } else {
                meta.ecmp_hash = mixed[31:24] + turn[7:0];
            }
            uplinks.apply();
        }
    }
}
#define Routing Spraying
