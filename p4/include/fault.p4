// Silent drops, on purpose. One instance acts on packets leaving a port, after the USM counted
// them; one on packets arriving, before the DSM counts them.

control Fault(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std,
              in bit<9> port) {
    direct_counter(CounterType.packets_and_bytes) matched;
    counter(MAX_PORTS, CounterType.packets_and_bytes) dropped;
    bit<1> drop;
    bit<16> src_port;
    bit<16> dst_port;

    // Drops with probability threshold / 2^32.
    action lossy(bit<32> threshold) {
        bit<32> dice;
        random(dice, 0, 0xffffffff);
        matched.count();
        drop = dice < threshold ? 1w1 : 1w0;
    }
    action blackhole() {
        matched.count();
        drop = 1;
    }
    // The next hop discards what arrives with a wrong checksum.
    action corrupt(bit<32> threshold) {
        bit<32> dice;
        random(dice, 0, 0xffffffff);
        matched.count();
        meta.corrupted = meta.corrupted | (dice < threshold ? 1w1 : 1w0);
    }
    action healthy() {
        matched.count();
    }

    table faults {
        key = {
            port                : exact;
            hdr.ipv4.src_ip     : ternary;
            hdr.ipv4.dst_ip     : ternary;
            hdr.ipv4.protocol   : ternary;
            src_port            : ternary;
            dst_port            : ternary;
        }
        actions = { lossy; blackhole; corrupt; healthy; }
        default_action = healthy;
        counters = matched;
        size = FAULTS;
    }

    apply {
        drop = 0;
        src_port = 0;                    // where there are none: an invalid header is undefined
        dst_port = 0;
        if (hdr.l4.isValid()) {
            src_port = hdr.l4.src_port;
            dst_port = hdr.l4.dst_port;
        }
        faults.apply();
        if (drop == 1) {
            dropped.count((bit<32>)port);
            DROP(meta, hdr, std, CAUSE_FAULT);
        }
    }
}
