// Parsers and deparsers. The ingress parser refuses what v1model's program drops as malformed; what
// it refuses is dropped. It also ends tunnels and finds flows: a stage for either is one too many.

parser CanaryIngressParser(packet_in packet, out headers_t hdr, out metadata_t meta,
                           out ingress_intrinsic_metadata_t ig) {
    Checksum() ipv4_checksum;
    value_set<bit<32>>(1) own_ip;

    state start {
        packet.extract(ig);
        packet.advance(PORT_METADATA_SIZE);
        meta.corrupt = 0;
        meta.monitor = 0;
        meta.parity = 0;
        meta.upper_tier = 0;
        meta.mask = 0;
        meta.from_host = 0;
        meta.ended = 0;
        meta.flow_valid = 0;
        meta.countable = 0;
        meta.monitored = 0;
        meta.to_hashpipe = 0;
        meta.carrying = 0;
        meta.ports = 0;
        meta.flow_hash = 0;
        meta.flow_mix = 0;
        meta.upward = 0;
        meta.hashpipe_count = 0;
        transition parse_ethernet;
    }
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_SHIM: parse_shim;
            ETHERTYPE_IPV4: parse_from_host;
            default: reject;
        }
    }
    state parse_from_host {
        meta.from_host = 1;
        transition parse_ipv4;
    }
    state parse_shim {
        packet.extract(hdr.shim);
        transition select(hdr.shim.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            default: reject;
        }
    }
    state parse_ipv4 {
        transition select(packet.lookahead<bit<8>>()) {
            0x45: parse_ipv4_plain;
            0x46 &&& 0xFE: parse_ipv4_options;
            0x48 &&& 0xF8: parse_ipv4_options;
            default: reject;
        }
    }
    state parse_ipv4_options {           // not parsed, so the sum cannot be verified either
        packet.extract(hdr.ipv4);
        transition accept;
    }
    state parse_ipv4_plain {
        ipv4_h ip = packet.lookahead<ipv4_h>();
        transition select(ip.fragment, ip.protocol) {
            (0, PROTOCOL_IPIP): parse_tunnel;
            default: parse_ip;
        }
    }
    // IP-in-IP addressed to this switch loses its outer header and goes on: a core switch bounces a
    // NetBouncer probe back (NetBouncer, section 3.2).
    state parse_tunnel {
        ipv4_h ip = packet.lookahead<ipv4_h>();
        transition select(ip.dst_ip) {
            own_ip: parse_outer_ipv4;
            default: parse_ip;
        }
    }
    state parse_outer_ipv4 {
        packet.extract(hdr.outer_ipv4);
        ipv4_checksum.add(hdr.outer_ipv4);
        meta.corrupt = (bit<1>)ipv4_checksum.verify();
        transition parse_inner_ipv4;
    }
    state parse_inner_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (5, 0, PROTOCOL_TCP): parse_l4;
            (5, 0, PROTOCOL_UDP): parse_l4;
            default: accept;
        }
    }
    state parse_ip {
        packet.extract(hdr.ipv4);
        ipv4_checksum.add(hdr.ipv4);
        meta.corrupt = (bit<1>)ipv4_checksum.verify();
        transition select(hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (0, PROTOCOL_TCP): parse_l4;
            (0, PROTOCOL_UDP): parse_l4;
            default: accept;
        }
    }
    state parse_l4 {
        meta.flow_valid = 1;
        meta.ports = packet.lookahead<bit<32>>();
        packet.extract(hdr.l4);
        transition accept;
    }
}

control CanaryIngressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                              in ingress_intrinsic_metadata_for_deparser_t deparser) {
#ifdef HEAVY_HITTER
    Digest<heavy_hitter_t>() heavy_hitter;
#endif

    apply {
#ifdef HEAVY_HITTER
        if (deparser.digest_type == 1) {
            heavy_hitter.pack({
                hdr.ipv4.src_ip, hdr.ipv4.dst_ip, hdr.l4.src_port, hdr.l4.dst_port,
                hdr.ipv4.protocol, meta.reported_bf
            });
        }
#endif
        packet.emit(hdr.bridge);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.shim);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.l4);
    }
}

// Only packets that the USM may count come through egress.
parser CanaryEgressParser(packet_in packet, out headers_t hdr, out metadata_t meta,
                          out egress_intrinsic_metadata_t eg) {
    state start {
        packet.extract(eg);
#ifdef USM
        packet.extract(hdr.bridge);
        packet.extract(hdr.ethernet);
        packet.extract(hdr.shim);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.l4);
#endif
        transition accept;
    }
}

control CanaryEgressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                             in egress_intrinsic_metadata_for_deparser_t deparser) {
    apply {
#ifdef USM
        packet.emit(hdr.ethernet);
        packet.emit(hdr.shim);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.l4);
#endif
    }
}
