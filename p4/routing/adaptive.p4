// Sends every packet over the uplink with the shorter queue of two: the next one in turn, and the best
// of those before (DRILL, SIGCOMM 2017, with one sample and one unit of memory).
//
// v1model shows no queue at ingress. But a switch alone sends on its uplinks, so it counts what waits
// before each: the bytes that it has put there, less those that the link has sent since. The
// controller gives the rate of the links. Where queues are equal, the uplinks take turns.

#define BEST_FOR 64                      // packets for which one is remembered: it may leave its group

control Adaptive(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action_selector(HashAlgorithm.identity, 512, 8) uplink_selector;
    register<bit<32>>(MAX_PORTS) waiting;    // bytes on each port,
    register<bit<32>>(MAX_PORTS) since_us;   // at this time
    register<bit<32>>(1) turns;
    register<bit<32>>(1) best_turn;
    register<bit<16>>(1) best_port;
    register<bit<48>>(1) best_mac;
    bit<1> upward;
    bit<32> turn;
    bit<32> mixed;
    bit<32> now;
    bit<32> since;
    bit<64> rate;
    bit<64> sent;
    bit<32> bytes;
    bit<32> best_bytes;
    bit<32> drawn;
    bit<16> port;
    bit<48> mac;

#include "tables.p4"

    action set_timing(bit<32> value) {
        rate = (bit<64>)value;           // 256ths of a byte in a us
    }
    table timing {
        actions = { set_timing; }
        default_action = set_timing(32000);
        size = 1;
    }

// The bytes that wait before a port now.
#define LOOK(at, found) \
    waiting.read(found, 16w0 ++ (at)); \
    since_us.read(since, 16w0 ++ (at)); \
    sent = ((bit<64>)(now - since) * rate) >> 8; \
    if (sent >= (bit<64>)found) { found = 0; } else { found = found - (bit<32>)sent; }

    apply {
        upward = 0;
        routes.apply();
        if (upward == 1) {
            timing.apply();
            now = (bit<32>)std.ingress_global_timestamp;
            turns.read(turn, 0);
            turn = turn + 1;
            turns.write(0, turn);
            mixed = (turn ^ (bit<32>)meta.mask) * 0x9E3779B1;
            meta.ecmp_hash = mixed[31:24];
            if (uplinks.apply().hit) {
                LOOK(7w0 ++ std.egress_spec, bytes)
                best_turn.read(drawn, 0);
                if (drawn != 0 && turn - drawn < BEST_FOR) {
                    best_port.read(port, 0);
                    LOOK(port, best_bytes)
                    if (best_bytes < bytes) {
                        bytes = best_bytes;
                        best_mac.read(mac, 0);
                        std.egress_spec = (bit<9>)port;
                        hdr.ethernet.dst_mac = mac;
                    } else {
                        drawn = 0;
                    }
                } else {
                    drawn = 0;
                }
                if (drawn == 0) {
                    best_turn.write(0, turn);
                    best_port.write(0, 7w0 ++ std.egress_spec);
                    best_mac.write(0, hdr.ethernet.dst_mac);
                }
                waiting.write(23w0 ++ std.egress_spec, bytes + std.packet_length);
                since_us.write(23w0 ++ std.egress_spec, now);
            }
        }
    }
}
#define Routing Adaptive
