// L3 forwarding: longest prefix down, 5-tuple ECMP up. ToRs and aggregation switches use disjoint
// windows of the hash, or all flows of one uplink would take the same next uplink; its polynomial
// is not the meters', or the flows of one segment would crowd into a part of the buckets. A CRC is
// linear, so flows with consecutive ports would see two windows that follow each other and leave
// paths unused: the multiplication mixes it. With TOFINO_CHOICES the mixing is Tofino's, which has
// no multiplication: the carries of two additions.

control Routing(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action_selector(HashAlgorithm.identity, 512, 8) uplink_selector;
    bit<16> ecmp;
    bit<32> mixed;
    bit<16> src_port;
    bit<16> dst_port;
    bit<1> upward;

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
                 { hdr.ipv4.src_ip, hdr.ipv4.dst_ip, src_port, dst_port, hdr.ipv4.protocol },
                 32w0x10000);
#ifdef TOFINO_CHOICES
            ecmp = ecmp + meta.flow_hash[31:16];
            mixed = (ecmp + (ecmp[4:0] ++ ecmp[15:5])) ++ 16w0;
#else
            mixed = (bit<32>)ecmp * 0x9E3779B1;
#endif
            if (meta.upper_tier == 1) {
                meta.ecmp_hash = mixed[23:16];
            } else {
                meta.ecmp_hash = mixed[31:24];
            }
            uplinks.apply();
        }
    }
}
