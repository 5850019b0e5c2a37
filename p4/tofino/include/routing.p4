// L3 forwarding: longest prefix down, 5-tuple ECMP up. ToRs and aggregation switches use disjoint
// windows of one hash. TNA has no multiplication to mix a CRC with, and CRCs alone are linear: sums
// of two of them, with their carries, and of the sum and itself rotated, are not. The CRC16 makes
// the choice independent of the meters' buckets.

control Ecmp(inout headers_t hdr, inout metadata_t meta) {
    Hash<bit<16>>(HashAlgorithm_t.CRC16) crc;

    action hash_addresses_and_ports() {
        meta.ecmp = crc.get({
            hdr.ipv4.src_ip, hdr.ipv4.dst_ip, meta.ports, hdr.ipv4.protocol
        });
    }
    action mix_crcs() {
        meta.ecmp = meta.ecmp + meta.flow_mix;
    }
    action rotate() {
        meta.rotated = meta.ecmp[4:0] ++ meta.ecmp[15:5];
    }
    action mix_rotated() {
        meta.ecmp = meta.ecmp + meta.rotated;
    }

    apply {
        hash_addresses_and_ports();
        mix_crcs();
        rotate();
        mix_rotated();
        if (meta.upper_tier == 1) {
            meta.ecmp_hash = meta.ecmp[7:0];
        } else {
            meta.ecmp_hash = meta.ecmp[15:8];
        }
    }
}

control Routing(inout headers_t hdr, inout metadata_t meta,
                inout ingress_intrinsic_metadata_for_deparser_t deparser,
                inout ingress_intrinsic_metadata_for_tm_t tm) {
    Hash<bit<14>>(HashAlgorithm_t.IDENTITY) member;
    ActionProfile(512) uplink_profile;
    ActionSelector(uplink_profile, member, SelectorMode_t.FAIR, 64, 8) uplink_selector;

    action forward(PortId_t port, bit<48> mac) {
        hdr.ethernet.src_mac = hdr.ethernet.dst_mac;
        hdr.ethernet.dst_mac = mac;
        tm.ucast_egress_port = port;
    }
    action deliver(PortId_t port, bit<48> mac) {
        hdr.ethernet.src_mac = hdr.ethernet.dst_mac;
        hdr.ethernet.dst_mac = mac;
        hdr.ethernet.ether_type = hdr.shim.ether_type;
        hdr.shim.setInvalid();
        tm.ucast_egress_port = port;
        meta.countable = 0;
    }
    action up() {
        meta.upward = 1;
    }
    action unroutable() {
        deparser.drop_ctl = 1;
    }
    action local() {
        deparser.drop_ctl = 1;
    }

    table routes {
        key = { hdr.ipv4.dst_ip : lpm; }
        actions = { forward; deliver; up; local; unroutable; }
        default_action = unroutable;
        size = ROUTES;
    }
    @selector_enable_scramble(0)
    table uplinks {
        key = {
            meta.upward    : exact @name("upward");
            meta.ecmp_hash : selector;
        }
        actions = { forward; unroutable; }
        default_action = unroutable;
        implementation = uplink_selector;
        size = 1;
    }

    apply {
        routes.apply();
        if (meta.upward == 1) {
            uplinks.apply();
        }
#ifdef USM
        if (meta.monitor == 1 && meta.countable == 1) {
            hdr.bridge.setValid();
            hdr.bridge.flow_hash = meta.flow_hash;
            hdr.bridge.parity = meta.parity;
        } else {
            tm.bypass_egress = 1;
        }
#else
        tm.bypass_egress = 1;
#endif
    }
}
