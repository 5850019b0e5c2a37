// Sprays packets over the uplinks, and counts at the leaf that receives them what came by each spine
// (after SprayCheck, arXiv 2605.03702).
//
// `Spraying` takes the place of `Routing`: it has the same tables, and chooses an uplink for every
// packet. The packets of a flow take the uplinks in turn, so each flow is spread as evenly as can be,
// and a switch needs no random numbers. Every 256 packets the turn begins at another uplink: else
// two flows of one hash, which take turns together, could keep step and leave uplinks out. The hash
// has the switch's bits of pathBF, which the run's seed draws, so each seed and switch has its own.

#define SPRAYED 65536                    // turns of a switch, by the hash of a flow
#define WAYS 16384                       // counters of a leaf: leaves times spines

control Spraying(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action_selector(HashAlgorithm.identity, 512, 8) uplink_selector;
    register<bit<16>>(SPRAYED) turns;
    bit<16> ecmp;
    bit<32> mixed;
    bit<16> src_port;
    bit<16> dst_port;
    bit<1> upward;
    bit<16> turn;

    action forward(bit<9> port, bit<48> mac) {
        hdr.ethernet.src_mac = hdr.ethernet.dst_mac;
        hdr.ethernet.dst_mac = mac;
        std.egress_spec = port;
    }
    action deliver(bit<9> port, bit<48> mac) {
        forward(port, mac);
        meta.to_host = 1;
    }
    action up() {
        upward = 1;
    }
    action unroutable() {
        DROP(meta, hdr, std, CAUSE_NO_ROUTE);
    }
    action local() {
        DROP(meta, hdr, std, CAUSE_LOCAL);
    }

    table routes {
        key = { hdr.ipv4.dst_ip : lpm; }
        actions = { forward; deliver; up; local; unroutable; }
        default_action = unroutable;
        size = ROUTES;
    }
    table uplinks {
        key = {
            upward         : exact;
            meta.ecmp_hash : selector;
        }
        actions = { forward; unroutable; }
        default_action = unroutable;
        implementation = uplink_selector;
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

control Arriving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    counter(WAYS, CounterType.packets) ways;
    bit<32> cell;

    // The counters of a rack's packets begin at `first`, in the order of the spines.
    action begin(bit<32> first) {
        cell = first;
    }
    table racks {
        key = { hdr.ipv4.src_ip : lpm; }
        actions = { begin; NoAction; }
        default_action = NoAction;
        size = ROUTES;
    }
    action count(bit<32> spine) {
        ways.count(cell + spine);
    }
    table spines {
        key = { std.ingress_port : exact; }
        actions = { count; NoAction; }
        default_action = NoAction;
        size = MAX_PORTS;
    }

    apply {
        if (meta.from_host == 0 && meta.countable == 1) {
            if (racks.apply().hit) {
                spines.apply();
            }
        }
    }
}

control Leaving(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}
